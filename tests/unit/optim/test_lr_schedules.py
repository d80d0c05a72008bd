"""Learning-rate schedules: bit for bit as in transformers, and their shapes in small."""

from __future__ import annotations

import copy
import doctest
import inspect
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.arguments.settings import ScheduleSettings
from ostinato.core.choices import SchedulerType
from ostinato.core.errors import ConfigError
from ostinato.core.notices import forget_notices
from ostinato.optim import adafactor, greedy, groups, optimizers, schedulers
from ostinato.optim.adafactor import Adafactor, AdafactorSchedule
from ostinato.optim.schedulers import build_schedule, get_scheduler, is_metric_schedule

BY_STEP = [name for name in SchedulerType if name.value not in ("reduce_lr_on_plateau", "greedy")]
REQUIRED = {
    "cosine_with_min_lr": {"min_lr_rate": 0.1},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1},
    "warmup_stable_decay": {"num_decay_steps": 3},
}

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")


def optimizer_with(rate: float = 1.0, num_groups: int = 1) -> torch.optim.Optimizer:
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": rate * (1 + 0.3 * index)} for index in range(num_groups)]
    return torch.optim.SGD(groups, lr=rate)


def rates(scheduler: Any, num_steps: int) -> list[float]:
    """The rate of the first group at every step."""
    seen = []
    for _ in range(num_steps):
        seen.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.step()
    return seen


def schedule_rates(name: str, warmup: int, total: int, num_steps: int, **options: Any) -> list[float]:
    return rates(get_scheduler(name, optimizer_with(), warmup, total, options), num_steps)


# ------------------------------------------------------------------------------------------------------------ shapes


def test_linear_rises_and_ends_at_exactly_zero() -> None:
    assert schedule_rates("linear", 2, 6, 9) == [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0]


def test_constant_is_constant() -> None:
    assert schedule_rates("constant", 2, 6, 4) == [1.0] * 4
    assert schedule_rates("constant_with_warmup", 2, 6, 4) == [0.0, 0.5, 1.0, 1.0]


def test_cosine_ends_at_exactly_zero_and_comes_back() -> None:
    seen = schedule_rates("cosine", 1, 5, 7)
    assert seen[:2] == [0.0, 1.0] and seen[3] == pytest.approx(0.5) and seen[5] == 0.0 and seen[6] > 0.0


def test_restarts_begin_at_the_top_and_the_end_is_zero() -> None:
    seen = schedule_rates("cosine_with_restarts", 0, 8, 10, num_cycles=2)
    assert seen[0] == seen[4] == 1.0 and seen[8] == seen[9] == 0.0


def test_polynomial_ends_at_its_end() -> None:
    seen = schedule_rates("polynomial", 0, 4, 6, power=2.0, lr_end=0.1)
    assert seen == pytest.approx([1.0, 0.1 + 0.9 * 0.75**2, 0.1 + 0.9 * 0.25, 0.1 + 0.9 / 16, 0.1, 0.1])


def test_polynomial_survives_a_run_that_is_all_warmup() -> None:
    assert schedule_rates("polynomial", 4, 4, 6, lr_end=0.1) == [0.0, 0.25, 0.5, 0.75, 0.1, 0.1]


def test_inverse_sqrt_halves_at_four_times_the_timescale() -> None:
    seen = schedule_rates("inverse_sqrt", 2, 100, 9)
    assert seen[2] == 1.0 and seen[8] == 0.5


def test_min_lr_is_reached_at_the_end() -> None:
    assert schedule_rates("cosine_with_min_lr", 1, 5, 6, min_lr=0.25)[5] == 0.25
    seen = schedule_rates("cosine_warmup_with_min_lr", 2, 6, 6, min_lr_rate=0.25)
    assert seen[:2] == [0.5, 1.0] and seen[5] == 0.25


def test_warmup_stable_decay_has_three_parts() -> None:
    seen = schedule_rates("warmup_stable_decay", 2, 8, 9, num_decay_steps=2, decay_type="linear", min_lr_ratio=0.5)
    assert seen == [0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5]


def test_every_group_keeps_its_own_scale() -> None:
    optimizer = optimizer_with(0.5, num_groups=2)
    schedule = get_scheduler("linear", optimizer, 0, 2)
    schedule.step()
    assert schedule.get_last_lr() == [0.25, 0.325]


# -------------------------------------------------------------------------------------------------- bit for bit


def random_options(draw: random.Random, name: str) -> dict[str, Any]:
    pick = draw.choice
    cycles = pick([{}, {"num_cycles": pick([0.5, 1, 2.3])}])
    end = {pick(["min_lr", "min_lr_rate"]): pick([0.0, 1e-5, 0.1, 1.0])}
    match name:
        case "cosine":
            return cycles
        case "cosine_with_restarts":
            return pick([{}, {"num_cycles": pick([1, 2, 3, 7, 0, 2.5])}])
        case "polynomial":
            return pick([{}, {"power": pick([1.0, 2, 0.5, 0, 3.3]), "lr_end": pick([1e-7, 1e-5, 0.0, 0.01, -1e-3])}])
        case "inverse_sqrt":
            return pick([{}, {"timescale": pick([1, 5, 100, 3.5])}])
        case "cosine_with_min_lr":
            return {**end, **cycles}
        case "cosine_warmup_with_min_lr":
            return {**end, **cycles, **pick([{}, {"warmup_lr_rate": pick([0.0, 0.1, 0.25, 0.333])}])}
        case "warmup_stable_decay":
            return {
                "num_decay_steps": pick([0, 1, 5, 13, 40]),
                "warmup_type": pick(["linear", "cosine", "1-sqrt"]),
                "decay_type": pick(["linear", "cosine", "1-sqrt"]),
                "min_lr_ratio": pick([0, 0.1, 0.33]),
                "num_cycles": pick([0.5, 1, 0.7]),
            }
        case _:
            return {}


# ------------------------------------------------------------------------------------------------- state and pickles


@pytest.mark.parametrize("name", list(SchedulerType))
def test_state_is_json_and_continues(name: SchedulerType) -> None:
    options = REQUIRED.get(name.value, {})
    optimizer = optimizer_with(0.1)
    first = get_scheduler(name, optimizer, 2, 9, options)
    metric = (3.0,) if is_metric_schedule(first) else ()
    for _ in range(4):
        first.step(*metric)
    state, optimizer_state = json.loads(json.dumps(first.state_dict())), copy.deepcopy(optimizer.state_dict())
    other = optimizer_with(0.1)
    second = get_scheduler(name, other, 2, 9, options)
    other.load_state_dict(optimizer_state)
    second.load_state_dict(state)
    for _ in range(8):
        first.step(*metric)
        second.step(*metric)
        assert second.state_dict() == first.state_dict()
        assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_a_longer_run_follows_its_own_numbers_after_loading() -> None:
    short, long = get_scheduler("linear", optimizer_with(), 0, 4), get_scheduler("linear", optimizer_with(), 0, 8)
    short.step()
    long.load_state_dict(short.state_dict())
    long.step()
    assert long.get_last_lr() == [0.75]


@pytest.mark.parametrize("name", BY_STEP)
def test_shapes_can_be_pickled(name: SchedulerType) -> None:
    schedule: Any = get_scheduler(name, optimizer_with(), 2, 9, REQUIRED.get(name.value, {}))
    (shape,) = pickle.loads(pickle.dumps(schedule.lr_lambdas))
    assert [shape(step) for step in range(12)] == [schedule.lr_lambdas[0](step) for step in range(12)]


# ------------------------------------------------------------------------------------------------ refusals, notices


@pytest.mark.parametrize("name", list(SchedulerType))
def test_unknown_options_are_answered_with_the_valid_ones(name: SchedulerType) -> None:
    with pytest.raises(ConfigError) as error:
        get_scheduler(name, optimizer_with(), 2, 9, {**REQUIRED.get(name.value, {}), "num_cicles": 2})
    assert "num_cicles" in error.value.what and error.value.why.startswith("its options are ")


def test_a_number_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_training_steps"):
        get_scheduler("linear", optimizer_with(), 2, 9, {"num_training_steps": 5})


@pytest.mark.parametrize(
    ("name", "warmup", "total", "options", "message"),
    [
        ("linear", None, 8, {}, "SchedulerType.LINEAR requires `num_warmup_steps`, please provide that argument."),
        ("cosine", 2, None, {}, "SchedulerType.COSINE requires `num_training_steps`, please provide that argument."),
        ("polynomial", 2, 8, {"lr_end": 1.0}, r"lr_end \(1.0\) must be smaller than initial lr \(1.0\)"),
        ("inverse_sqrt", 2, 8, {"timescale": 0}, "timescale=0 is not a length of time"),
        ("cosine_with_min_lr", 2, 8, {}, "One of min_lr or min_lr_rate should be set"),
        ("cosine_with_min_lr", 2, 8, {"min_lr": 0.1, "min_lr_rate": 0.1}, "Only one of min_lr or min_lr_rate"),
        ("warmup_stable_decay", 2, 8, {}, "missing num_decay_steps"),
        ("warmup_stable_decay", 2, None, {"num_decay_steps": 2}, "Either num_training_steps or num_stable_steps"),
        ("warmup_stable_decay", 2, 8, {"num_decay_steps": 2, "warmup_type": "x"}, "Unknown warmup type: x"),
        ("warmup_stable_decay", 2, 8, {"num_decay_steps": 2, "decay_type": "x"}, "Unknown decay type: x"),
        ("sawtooth", 2, 8, {}, "sawtooth"),
    ],
)
def test_contradictions_are_refused(name: str, warmup: Any, total: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_scheduler(name, optimizer_with(), warmup, total, options)


def test_a_rate_cannot_be_relative_to_nothing() -> None:
    with pytest.raises(ConfigError, match="initial learning rate is 0"):
        get_scheduler("cosine_with_min_lr", optimizer_with(0.0), 2, 8, {"min_lr": 0.1})
    with pytest.raises(ConfigError, match="no learning rate to decay from"):
        get_scheduler("polynomial", Adafactor([nn.Parameter(torch.ones(1))]), 2, 8)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("constant", {}, "warmup_steps=2 is not used"),
        ("reduce_lr_on_plateau", {}, "warmup_steps=2 is not used"),
        ("warmup_stable_decay", {"num_decay_steps": 9}, "longer than the run"),
        ("warmup_stable_decay", {"num_decay_steps": 2, "num_stable_steps": 1}, "the schedule ends at step 5"),
    ],
)
def test_what_is_not_used_is_mentioned(name: str, options: Any, words: str, capsys: Any) -> None:
    forget_notices()
    build_schedule(ScheduleSettings(SchedulerType(name), 2, 9, options), optimizer_with())
    assert words in capsys.readouterr().err


def test_what_fits_is_not_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    options = {"num_decay_steps": 2, "num_stable_steps": 5}
    build_schedule(ScheduleSettings(SchedulerType.WARMUP_STABLE_DECAY, 2, 9, options), optimizer_with())
    build_schedule(ScheduleSettings(SchedulerType.LINEAR, 2, 9, {}), optimizer_with())
    build_schedule(ScheduleSettings(SchedulerType.CONSTANT, 0, 9, {}), optimizer_with())
    assert capsys.readouterr().err == ""


def test_an_optimizer_with_its_own_rate_gets_a_schedule_that_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    optimizer = Adafactor([nn.Parameter(torch.ones(1))])
    assert isinstance(build_schedule(ScheduleSettings(SchedulerType.LINEAR, 2, 9, {}), optimizer), AdafactorSchedule)
    assert "linear schedule is not used" in capsys.readouterr().err


def test_which_schedules_wait_for_a_metric() -> None:
    made = {name: get_scheduler(name, optimizer_with(), 2, 9, REQUIRED.get(name.value, {})) for name in SchedulerType}
    assert [name.value for name, one in made.items() if is_metric_schedule(one)] == ["reduce_lr_on_plateau", "greedy"]
    assert all(isinstance(one, torch.optim.lr_scheduler.LRScheduler) for one in made.values())


@pytest.mark.parametrize("module", [schedulers, greedy, adafactor, groups, optimizers], ids=lambda m: m.__name__)
def test_examples_in_docstrings_run(module: Any) -> None:
    result = doctest.testmod(module, extraglobs={"torch": torch, "nn": nn, "optimizer": optimizer_with(0.1)})
    assert result.attempted > 0 and result.failed == 0


# -------------------------------------------------------------------------------------------------- bit for bit


@pytest.mark.parametrize("name", BY_STEP)
def test_same_bits_as_transformers(name: SchedulerType, peer: Any) -> None:
    draw = random.Random(name.value)
    for _ in range(100):
        options = random_options(draw, name.value)
        warmup, total = draw.choice([0, 1, 2, 3, 7, 10, 29, 50]), draw.choice([0, 1, 2, 3, 10, 17, 30, 41])
        rate, num_groups = draw.choice([5e-5, 1e-3, 0.1, 0.37]), draw.choice([1, 2])
        if name.value == "polynomial" and warmup == total:
            continue  # transformers divides by zero
        ours, theirs = optimizer_with(rate, num_groups), optimizer_with(rate, num_groups)
        case = (warmup, total, options, rate)
        try:
            reference = peer.optimization.get_scheduler(name.value, theirs, warmup, total, dict(options))
        except ValueError as error:
            with pytest.raises(ConfigError) as refusal:
                get_scheduler(name, ours, warmup, total, options)
            assert refusal.value.what == str(error)
            continue
        schedule = get_scheduler(name, ours, warmup, total, options)
        for step in range(60):
            assert schedule.get_last_lr() == reference.get_last_lr(), (case, step)
            assert schedule.state_dict() == reference.state_dict(), (case, step)
            schedule.step()
            reference.step()


@pytest.mark.parametrize("warmup_type", ["linear", "cosine", "1-sqrt"])
def test_same_bits_with_a_given_stable_part(warmup_type: str, peer: Any) -> None:
    numbers = {"num_warmup_steps": 5, "num_decay_steps": 7, "num_stable_steps": 4, "warmup_type": warmup_type}
    theirs = peer.optimization.get_wsd_schedule(optimizer_with(0.37), **numbers)
    assert rates(schedulers.get_wsd_schedule(optimizer_with(0.37), **numbers), 20) == rates(theirs, 20)


def test_same_public_functions_and_parameters_as_transformers(peer: Any) -> None:
    module = peer.optimization
    public = {
        name: value for name, value in vars(module).items() if name.startswith("get_") and inspect.isfunction(value)
    }
    theirs = {name: value for name, value in public.items() if value.__module__ == module.__name__}
    assert len(theirs) >= 13
    for name, function in theirs.items():
        expected = inspect.signature(function).parameters.values()
        found = inspect.signature(getattr(schedulers, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in found] == [(p.name, p.kind, p.default) for p in expected], name


@pytest.mark.parametrize("name", list(SchedulerType))
def test_same_schedule_as_create_scheduler_of_transformers(name: SchedulerType, tmp_path: Path, peer: Any) -> None:
    options = REQUIRED.get(name.value, {})
    args = peer.TrainingArguments(
        str(tmp_path),
        lr_scheduler_type=name.value,
        lr_scheduler_kwargs=options,
        warmup_steps=2,
        eval_strategy="epoch",
        use_cpu=True,
        report_to=[],
    )
    trainer = peer.Trainer(nn.Linear(2, 2), args, eval_dataset=[1])
    theirs = trainer.create_scheduler(12, optimizer_with(0.1))
    ours = build_schedule(ScheduleSettings(name, 2, 12, options), optimizer_with(0.1))
    metric = (3.0,) if is_metric_schedule(ours) else ()
    for _ in range(15):
        assert ours.state_dict() == theirs.state_dict()
        ours.step(*metric)
        theirs.step(*metric)
