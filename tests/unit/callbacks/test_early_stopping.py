"""Stopping when the metric that matters no longer improves."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace

import pytest

from ostinato.callbacks.early_stopping import EarlyStoppingCallback
from ostinato.callbacks.events import QuietCallback
from ostinato.core.errors import ConfigError
from ostinato.core.state import TrainerControl, TrainerState
from tests.support.apis import guest, load_library


def arguments(**changes) -> SimpleNamespace:
    defaults = dict(
        metric_for_best_model="loss", greater_is_better=False, eval_strategy="steps", load_best_model_at_end=True
    )
    return SimpleNamespace(**{**defaults, **changes})


def watch(callback, state, control, args, values) -> list[tuple[int, bool]]:
    """Counter and verdict after each evaluation; the best is kept as the trainer keeps it."""
    seen = []
    for value in values:
        callback.on_evaluate(args, state, control, metrics={"eval_loss": value})
        seen.append((callback.early_stopping_patience_counter, control.should_training_stop))
        better = state.best_metric is None or (
            value > state.best_metric if args.greater_is_better else value < state.best_metric
        )
        if better:
            state.best_metric = value
    return seen


def ours(values, args=None, **options):
    return watch(EarlyStoppingCallback(**options), TrainerState(), TrainerControl(), args or arguments(), values)


def test_counts_and_stops() -> None:
    seen = ours([1.0, 0.9, 0.95, 0.8, 0.8, 0.85], early_stopping_patience=2)
    assert [counter for counter, _ in seen] == [0, 0, 1, 0, 1, 2]
    assert [stop for _, stop in seen] == [False] * 5 + [True]


def test_threshold() -> None:
    """An improvement of no more than the threshold is none."""
    assert [counter for counter, _ in ours([1.0, 0.95, 0.7], early_stopping_threshold=0.1)] == [0, 1, 0]


def test_greater_is_better() -> None:
    args = arguments(greater_is_better=True)
    assert [counter for counter, _ in ours([0.5, 0.6, 0.55], args, early_stopping_patience=3)] == [0, 0, 1]


@pytest.mark.parametrize("seed", range(8))
def test_random_sequences_as_transformers(seed: int) -> None:
    pytest.importorskip("transformers")
    draw = random.Random(seed)
    with guest("transformers"):
        theirs = load_library("transformers")
        for _ in range(20):
            values = [round(draw.random(), 1) for _ in range(12)]
            options = dict(
                early_stopping_patience=draw.randrange(1, 5), early_stopping_threshold=draw.choice([0.0, 0.15, 0.3])
            )
            args = arguments(greater_is_better=draw.random() < 0.5)
            callback = theirs.EarlyStoppingCallback(**options)
            expected = watch(callback, theirs.TrainerState(), theirs.TrainerControl(), args, values)
            assert ours(values, args, **options) == expected


def test_state_round_trip() -> None:
    callback = EarlyStoppingCallback(early_stopping_patience=4, early_stopping_threshold=0.2)
    callback.early_stopping_patience_counter = 3
    again = EarlyStoppingCallback.from_state(json.loads(json.dumps(callback.state())))
    assert vars(again) == vars(callback)


def test_state_as_transformers() -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        theirs = load_library("transformers").EarlyStoppingCallback(3, 0.1).state()
    assert EarlyStoppingCallback(3, 0.1).state() == theirs


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"metric_for_best_model": None}, "metric_for_best_model"), ({"eval_strategy": "no"}, "eval_strategy")],
)
def test_needs_its_arguments(changes: dict, message: str) -> None:
    for kind in (AssertionError, ConfigError):
        with pytest.raises(kind, match=message):
            EarlyStoppingCallback().on_train_begin(arguments(**changes), TrainerState(), TrainerControl())


def test_says_that_the_last_weights_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    EarlyStoppingCallback().on_train_begin(arguments(), TrainerState(), TrainerControl())
    assert capsys.readouterr().err == ""
    EarlyStoppingCallback().on_train_begin(arguments(load_best_model_at_end=False), TrainerState(), TrainerControl())
    assert "load_best_model_at_end=True" in capsys.readouterr().err


def test_missing_metric_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    callback, control = EarlyStoppingCallback(), TrainerControl()
    callback.on_evaluate(arguments(), TrainerState(), control, metrics={"eval_accuracy": 1.0})
    said = capsys.readouterr().err
    assert "'loss'" in said
    assert "eval_accuracy" in said
    assert not control.should_training_stop


def test_draws_no_random_numbers() -> None:
    assert issubclass(EarlyStoppingCallback, QuietCallback)


def with_intervals(values, half: float, *, greater: bool, **options) -> list[int]:
    """The counter after each evaluation whose interval reaches so far to both sides."""
    callback, state = EarlyStoppingCallback(10, noise_bar=True, **options), TrainerState()
    args, counters = arguments(metric_for_best_model="f1", greater_is_better=greater), []
    for value in values:
        metrics = {"eval_f1": value, "eval_f1_low": value - half, "eval_f1_high": value + half}
        callback.on_evaluate(args, state, TrainerControl(), metrics=metrics)
        counters.append(callback.early_stopping_patience_counter)
        best = state.best_metric
        state.best_metric = value if best is None else (max if greater else min)(best, value)
    return counters


def test_an_improvement_within_the_noise_is_none() -> None:
    assert with_intervals([0.5, 0.55, 0.7, 0.65], 0.1, greater=True) == [0, 1, 0, 1]
    assert with_intervals([0.5, 0.45, 0.3, 0.35], 0.1, greater=False) == [0, 1, 0, 1]


def test_many_small_improvements_add_up() -> None:
    """Compared with the last one that counted, not with the best so far."""
    assert with_intervals([0.5, 0.55, 0.59, 0.61, 0.65], 0.1, greater=True) == [0, 1, 2, 0, 1]


def test_any_number_is_better_than_none() -> None:
    """A first evaluation that overflowed must not end a run that recovers."""
    nan = float("nan")
    assert with_intervals([nan, nan, 0.5, 0.7, 0.7], 0.1, greater=True) == [0, 1, 0, 0, 1]
    callback, state = EarlyStoppingCallback(10), TrainerState(best_metric=nan)
    for value, counter in ((nan, 1), (0.5, 0)):
        callback.on_evaluate(arguments(), state, TrainerControl(), metrics={"eval_loss": value})
        assert callback.early_stopping_patience_counter == counter


def test_the_threshold_comes_on_top_of_the_noise() -> None:
    assert with_intervals([0.5, 0.62, 0.66], 0.1, greater=True, early_stopping_threshold=0.05) == [0, 1, 0]


def test_the_bar_is_part_of_the_state_where_it_is_asked_for() -> None:
    assert "noise_bar" not in json.dumps(EarlyStoppingCallback().state())
    callback = EarlyStoppingCallback(3, noise_bar=True)
    callback.last_improvement = 0.5
    assert EarlyStoppingCallback.from_state(callback.state()).last_improvement == 0.5


def test_a_metric_without_an_interval_is_said(capsys) -> None:
    callback, state = EarlyStoppingCallback(10, noise_bar=True), TrainerState(best_metric=0.5)
    for value in (0.4, 0.45):
        callback.on_evaluate(arguments(), state, TrainerControl(), metrics={"eval_loss": value})
    assert callback.early_stopping_patience_counter == 0
    assert capsys.readouterr().err.count("noise_bar=True has no effect: 'loss' comes without an interval") == 1
