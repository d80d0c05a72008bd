"""Describe a run in sentences: a line before it, a line after it, and advice if it waits for its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.state import TrainerState
from ..core.timing import compute_shares
from .plain import format_value, to_single_line
from .speed import format_duration

# The first seconds of a run mean little, and so does a small share of its time.
SECONDS_BEFORE_ADVICE = 20
SHARE_FOR_ADVICE = 0.4

SHORT_PURPOSES = {"computing": "compute", "evaluation": "eval", "saving": "save"}


@dataclass(frozen=True)
class ObservedRun:
    """What progress reads of a run, without changing it."""

    header: str
    results: str  # where they are
    seconds: Callable[[], dict[str, float]]  # by purpose
    first_loss: Callable[[], float | None]  # of the first step; None if it is logged, or past
    workers: int
    cores: int
    expected: Callable[[], float | None] = lambda: None  # seconds of the whole run, if measured before


def format_header(header: str, seconds: float | None) -> str:
    """Return the line before a run: what is trained, and how long it takes where that is known.

    >>> format_header("training Bert on cpu in float32: 4.4 M parameters, 9,000 rows, 1,125 steps of 24 rows", 151.0)
    'training Bert on cpu in float32: 4.4 M parameters, 9,000 rows, 1,125 steps of 24 rows, about 2:31'
    """
    return header if seconds is None else f"{header}, about {format_duration(seconds)}"


def describe_run(
    model: str,
    parameters: tuple[int, int],
    device: str,
    precision: str,
    rows: int | None,
    steps: int,
    rows_per_step: int,
) -> str:
    """Return what is going to be trained.

    >>> describe_run("Bert", (110_000_000, 590_000), "cuda:0", "bf16", 8_000, 750, 32)
    'training Bert on cuda:0 in bf16: 590 K of 110 M parameters, 8,000 rows, 750 steps of 32 rows'
    """
    every, trained = parameters
    share = _format_count(every) if trained == every else f"{_format_count(trained)} of {_format_count(every)}"
    data = "a stream" if rows is None else f"{rows:,} row{'s' if rows != 1 else ''}"
    work = f"{steps:,} step{'s' if steps != 1 else ''} of {rows_per_step:,} row{'s' if rows_per_step != 1 else ''}"
    return f"training {model} on {device} in {precision}: {share} parameters, {data}, {work}"


def format_closing(args: Any, state: TrainerState, duration: str, results: str) -> str:
    """Return how a run ended, and where its results are.

    >>> from types import SimpleNamespace as Names
    >>> state = TrainerState(global_step=90, max_steps=90, best_metric=0.891, best_global_step=60)
    >>> format_closing(Names(metric_for_best_model="accuracy"), state, "1:05", "out")
    'done in 1:05: best accuracy 0.891 at step 60; results in out'
    """
    stopped = state.global_step < state.max_steps
    ended = (
        f"stopped after {state.global_step} of {state.max_steps} steps, {duration}"
        if stopped
        else f"done in {duration}"
    )
    parts = []
    name = getattr(args, "metric_for_best_model", None)
    if name and state.best_metric is not None:
        step = find_best_step(name, state)
        at = "" if step is None else f" at step {step}"
        parts.append(
            f"best {to_single_line(name.removeprefix('eval_'))} {format_value(name, state.best_metric, 20)}{at}"
        )
    used = next((log["train_mfu"] for log in reversed(state.log_history) if "train_mfu" in log), None)
    if used is not None:
        parts.append(f"MFU {used:.0%}".replace("%", " %"))
    return f"{ended}: {'; '.join([*parts, f'results in {to_single_line(results)}'])}"


def find_best_step(name: str, state: TrainerState) -> int | None:
    """Return the step of the best evaluation; the state knows it only of a run that saves."""
    if state.best_global_step or state.best_metric is None:
        return state.best_global_step
    logged = f"eval_{name.removeprefix('eval_')}"
    return next((int(log["step"]) for log in state.log_history if log.get(logged) == state.best_metric), None)


def find_advice(seconds: dict[str, float], workers: int, cores: int) -> str | None:
    """Return what to do about a run that mostly waits for its data; None if there is nothing to say.

    >>> find_advice({"computing": 30.0, "data": 50.0}, workers=0, cores=8)
    'loader-bound: 62 % of training is spent waiting for data; try dataloader_num_workers=4'
    >>> find_advice({"computing": 50.0, "data": 5.0}, workers=0, cores=8) is None
    True
    """
    training = {name: seconds.get(name, 0.0) for name in ("computing", "data")}
    share = compute_shares(training)["data"]
    if sum(training.values()) < SECONDS_BEFORE_ADVICE or share < SHARE_FOR_ADVICE:
        return None
    message = f"loader-bound: {share:.0%} of training is spent waiting for data".replace("%", " %")
    if workers == 0:
        return f"{message}; try dataloader_num_workers={max(1, min(4, cores))}"
    return f"{message}, with dataloader_num_workers={workers}; try more workers, or preprocess the rows once"


def format_time_shares(seconds: dict[str, float]) -> list[tuple[str, str]]:
    """Return the shares of time that are at least 1 %.

    >>> format_time_shares({"computing": 3.0, "data": 1.0, "evaluation": 0.0, "saving": 0.001})
    [('compute', '75%'), ('data', '25%')]
    """
    parts = compute_shares(seconds)
    return [(SHORT_PURPOSES.get(name, name), f"{share:.0%}") for name, share in parts.items() if share >= 0.01]


def _format_count(count: int) -> str:
    """Format a count: 771, 8.3 K, 110 M, 7.2 B."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)
