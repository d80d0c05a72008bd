"""GreedyLR: the same decisions as in transformers, and the rules in small."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.core.errors import ConfigError
from ostinato.core.notices import forget_notices
from ostinato.optim.greedy import GreedyLR, StreamingAverage, get_greedy_schedule


def optimizer_with(rate: float, num_groups: int = 1) -> torch.optim.Optimizer:
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": rate * (1 + 0.3 * index)} for index in range(num_groups)]
    return torch.optim.SGD(groups, lr=rate)


def rates_after(metrics: list[float], rate: float = 0.01, **kwargs: Any) -> list[float]:
    """The rate after every metric."""
    scheduler = GreedyLR(optimizer_with(rate), **kwargs)
    seen = []
    for metric in metrics:
        scheduler.step(metric)
        seen += scheduler.get_last_lr()
    return seen


def random_options(draw: random.Random, num_groups: int) -> dict[str, Any]:
    return {
        "mode": draw.choice(["min", "max"]),
        "factor": draw.choice([0.95, 0.5, 0.1]),
        "patience": draw.choice([0, 1, 2]),
        "threshold": draw.choice([1e-6, 0.05, 0.0]),
        "threshold_mode": draw.choice(["rel", "abs"]),
        "cooldown": draw.choice([0, 1, 2]),
        "warmup": draw.choice([0, 1, 3]),
        "min_lr": draw.choice([1e-3, 9e-3, [1e-3] * num_groups, 1e-9]),
        "max_lr": draw.choice([1.0, 1.1e-2, 1e-2]),
        "eps": draw.choice([1e-8, 1e-3, 0.0]),
        "smooth": draw.random() < 0.4,
        "window_size": draw.choice([1, 3, 50]),
        "reset_start": draw.choice([0, 1, 2, 3, 500]),
    }


def test_improvement_raises_and_failure_lowers() -> None:
    assert rates_after([4, 3, 2, 1], patience=1, factor=0.5) == [0.01, 0.02, 0.02, 0.04]
    assert rates_after([1, 2, 3, 4, 5], patience=1, factor=0.5) == [0.01, 0.01, 0.005, 0.005, 0.0025]
    assert rates_after([1, 2, 3], patience=0, factor=0.5, mode="max") == [0.02, 0.04, 0.08]


def test_rates_stay_within_bounds() -> None:
    assert rates_after([3, 2, 1], patience=0, factor=0.5, max_lr=0.03) == [0.02, 0.03, 0.03]
    assert rates_after([1, 1, 1, 1], patience=0, factor=0.5, min_lr=0.008) == [0.02, 0.01, 0.008, 0.008]


def test_metrics_in_cooldown_and_warmup_are_not_looked_at() -> None:
    assert rates_after([3, 2, 1, 0], patience=0, factor=0.5, warmup=2) == [0.02, 0.02, 0.02, 0.04]
    assert rates_after([1, 1, 1, 1], patience=0, factor=0.5, cooldown=2) == [0.02, 0.01, 0.01, 0.01]


def test_it_starts_over_after_too_long_at_the_bottom() -> None:
    rates = rates_after([5, 5, 5, 5, 5], patience=0, factor=0.5, min_lr=0.005, max_lr=0.01, reset_start=2)
    assert rates == [0.01, 0.005, 0.01, 0.01, 0.005]


def test_one_nan_leaves_the_average_with_its_window() -> None:
    average = StreamingAverage(2)
    values = [average.streamavg(value) for value in (1.0, float("nan"), 3.0, 5.0)]
    assert values[0] == 1.0 and values[3] == 4.0
    assert values[1] != values[1]


def test_it_counts_as_a_torch_scheduler_and_round_trips() -> None:
    first = get_greedy_schedule(optimizer_with(0.01, 2), patience=0, smooth=True, window_size=3)
    assert isinstance(first, torch.optim.lr_scheduler.LRScheduler)
    for metric in (3.0, 2.0, 2.5):
        first.step(torch.tensor(metric))
    second = GreedyLR(optimizer_with(0.5, 2))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert second.get_lr() == first.get_last_lr()
    first.step(1.0)
    second.step(1.0)
    assert second.state_dict() == first.state_dict()


def test_verbose_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    rates_after([3, 3], patience=0, factor=0.5, min_lr=0.01, max_lr=0.02, reset_start=1, verbose=True)
    said = capsys.readouterr().err
    assert "Epoch 1: increasing learning rate of group 0 to 2.0000e-02." in said
    assert "Epoch 2: reducing learning rate of group 0 to 1.0000e-02." in said
    assert "starts over" in said


@pytest.mark.parametrize(("rate", "word"), [(5e-5, "min_lr=0.001"), (2.0, "max_lr=1")])
def test_bounds_out_of_reach_are_mentioned(rate: float, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    GreedyLR(optimizer_with(rate))
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"factor": 1.0}, "Factor should be < 1.0."),
        ({"factor": 0.0}, "Factor should be > 0.0."),
        ({"mode": "up"}, "mode up is unknown!"),
        ({"threshold_mode": "x"}, "threshold mode x is unknown!"),
        ({"min_lr": [0.1, 0.2]}, "expected 1 min_lrs, got 2"),
        ({"max_lr": [0.1, 0.2]}, "expected 1 max_lrs, got 2"),
        ({"smooth": True, "window_size": 0}, "a mean over 0 values"),
    ],
)
def test_nonsense_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GreedyLR(optimizer_with(0.01), **kwargs)


def test_something_else_than_an_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="str is not an Optimizer"):
        GreedyLR("sgd")  # type: ignore[arg-type]


@pytest.mark.parametrize("block", range(10))
def test_same_rates_and_state_as_transformers(block: int, peer: Any) -> None:
    for seed in range(block * 40, (block + 1) * 40):
        draw = random.Random(seed)
        num_groups = draw.choice([1, 2, 3])
        rate, options = draw.choice([1e-2, 1e-3, 5e-4, 0.9]), random_options(draw, num_groups)
        ours = GreedyLR(optimizer_with(rate, num_groups), **options)
        theirs = peer.optimization.GreedyLR(optimizer_with(rate, num_groups), **options)
        level, chance = 1.0, draw.choice([0.2, 0.5, 0.8])
        for step in range(40):
            level += draw.uniform(-0.3, 0.1) if draw.random() < chance else draw.choice([0, 0.1])
            ours.step(level)
            theirs.step(level)
            assert ours.state_dict() == theirs.state_dict(), (seed, step)
            assert ours.get_last_lr() == [group["lr"] for group in theirs.optimizer.param_groups]
            if step == 20:  # a checkpoint of the one continues in the other
                ours = GreedyLR(optimizer_with(rate, num_groups), **options)
                ours.load_state_dict(json.loads(json.dumps(theirs.state_dict())))
