"""When something is logged, evaluated, saved, or the run stopped."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from ostinato.callbacks.flow import DefaultFlowCallback
from ostinato.core.state import TrainerControl, TrainerState
from tests.support.apis import guest, load_library

FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
EVERY = dict(logging_steps=4, eval_steps=3, save_steps=5, max_steps=11)


def arguments(**changes) -> SimpleNamespace:
    defaults = dict(
        logging_first_step=False, logging_strategy="no", eval_strategy="no", save_strategy="no", eval_delay=0
    )
    return SimpleNamespace(**{**defaults, **changes})


def requests(callback, state_cls, control_cls, args, *, event: str = "on_step_end", steps=range(1, 13), **fields):
    """The flags that are up after each step, as letters."""
    found = []
    for step in steps:
        state = state_cls(global_step=step, epoch=step / 4, **{**EVERY, **fields})
        control = getattr(callback, event)(args, state, control_cls())
        found.append(tuple(flag for flag in FLAGS if getattr(control, flag)))
    return found


def ours(args, **rest):
    return requests(DefaultFlowCallback(), TrainerState, TrainerControl, args, **rest)


def steps_with(flag: str, found: list) -> list[int]:
    return [step for step, flags in enumerate(found, start=1) if flag in flags]


def test_nothing_asked_but_to_stop() -> None:
    found = ours(arguments())
    assert steps_with("should_training_stop", found) == [11, 12]
    assert sum(map(len, found)) == 2


def test_by_steps() -> None:
    found = ours(arguments(logging_strategy="steps", eval_strategy="steps", save_strategy="steps"))
    assert steps_with("should_log", found) == [4, 8, 12]
    assert steps_with("should_evaluate", found) == [3, 6, 9, 11, 12]
    assert steps_with("should_save", found) == [5, 10, 11, 12]


def test_first_step_and_delay() -> None:
    found = ours(arguments(logging_first_step=True, logging_strategy="steps", eval_strategy="steps", eval_delay=7))
    assert steps_with("should_log", found) == [1, 4, 8, 12]
    assert steps_with("should_evaluate", found) == [9, 11, 12]


def test_by_epoch() -> None:
    args = arguments(logging_strategy="epoch", eval_strategy="epoch", save_strategy="epoch", eval_delay=2)
    assert all(flags in ((), ("should_training_stop",)) for flags in ours(args))
    found = ours(args, event="on_epoch_end", steps=(4, 8))
    assert found == [("should_save", "should_log"), ("should_save", "should_evaluate", "should_log")]


def test_best_asks_for_nothing_by_itself() -> None:
    args = arguments(save_strategy="best")
    assert steps_with("should_save", ours(args) + ours(args, event="on_epoch_end")) == []


def test_grid_as_transformers() -> None:
    pytest.importorskip("transformers")
    intervals = ("no", "steps", "epoch")
    grid = itertools.product(intervals, intervals, (*intervals, "best"), (False, True), (0, 2.5, 7), (2, 4), (3, 11))
    with guest("transformers"):
        theirs = load_library("transformers")
        flow = theirs.DefaultFlowCallback()
        for logging, evaluation, save, first, delay, every, last in grid:
            args = arguments(
                logging_strategy=theirs.IntervalStrategy(logging),
                eval_strategy=theirs.IntervalStrategy(evaluation),
                save_strategy=theirs.trainer_utils.SaveStrategy(save),
                logging_first_step=first,
                eval_delay=delay,
            )
            fields = dict(logging_steps=every, eval_steps=every, save_steps=every + 1, max_steps=last)
            for event in ("on_step_end", "on_epoch_end"):
                expected = requests(flow, theirs.TrainerState, theirs.TrainerControl, args, event=event, **fields)
                assert ours(args, event=event, **fields) == expected, (args, fields, event)
