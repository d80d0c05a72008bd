"""The first evaluation, tried on its first batch before the first step: mistakes in metrics cost seconds, not hours.

Nothing is logged, no callback hears of it, and it leaves no trace: not in weights, buffers or modes of the model, not
in random streams, and not in what metric functions, collators and data sets remember.
"""

from __future__ import annotations

import difflib
import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from ..arguments import usage_errors
from ..core.errors import MetricError, MetricFunctionError
from ..core.logged_numbers import hearing
from ..core.random import undisturbed
from ..core.state_guard import unchanged
from ..metrics.base import TooFewRowsError

# Mistakes in a metric function that do not depend on the rows it is given. Others (one class only, an index beyond it)
# may be due to its seeing one batch, and are tried again with all.
AT_ONCE = (TypeError, AttributeError, NameError, ImportError, MetricError)

# What an evaluation measures besides.
SPEED = ("runtime", "samples_per_second", "steps_per_second")


@dataclass(frozen=True)
class Outcome:
    """How an attempt went: its metrics, or what it raised, and whether a metric function raised it."""

    metrics: Mapping[str, Any]
    error: Exception | None = None
    in_metrics: bool = False


@dataclass(frozen=True)
class Stage:
    """What is rehearsed."""

    prefixes: Sequence[str]  # of the metrics' names, one for each evaluation set
    attempt: Callable[[str, bool], Outcome]  # (prefix, whether on the whole set)
    wanted: str | None  # metric_for_best_model, if its absence would be an error
    anyone: Callable[[bool], bool] = bool  # whether any process says so: all must evaluate together


def rehearse(stage: Stage) -> None:
    """Try every evaluation set; raise what the first evaluation would raise."""
    known: dict[str, Any] = {}
    for prefix in stage.prefixes:
        known.update(_tried(stage, prefix))
    if stage.wanted is not None:
        _check_wanted(stage, stage.wanted, known)


def _tried(stage: Stage, prefix: str) -> Mapping[str, Any]:
    outcome = stage.attempt(prefix, False)
    if stage.anyone(outcome.in_metrics and not _is_certain(outcome.error)):
        outcome = stage.attempt(prefix, True)
    if outcome.error is not None:
        raise outcome.error
    return outcome.metrics


def _is_certain(error: Exception | None) -> bool:
    """Whether more rows would change nothing."""
    return isinstance(error, AT_ONCE) and not isinstance(error, TooFewRowsError)


def _check_wanted(stage: Stage, wanted: str, known: dict[str, Any]) -> None:
    """The metric that decides must be there, and be a number."""
    name = wanted if wanted.startswith("eval_") else f"eval_{wanted}"
    if name in {f"{prefix}_{measured}" for prefix in stage.prefixes for measured in SPEED}:
        return
    if name == "eval_loss" and all(f"{prefix}_loss" in known for prefix in stage.prefixes):
        return  # of several sets, the mean of their losses
    if stage.anyone(name not in known):
        for prefix in stage.prefixes:  # a function may name more when it sees all rows: recall_0, recall_1, ...
            known.update(stage.attempt(prefix, True).metrics)
    if name not in known:
        raise _no_such_metric(wanted, known)
    if not isinstance(known[name], (numbers.Number, np.generic)):
        raise MetricFunctionError(
            what=f"metric_for_best_model={wanted!r} is a {type(known[name]).__name__}, and must be a number",
            why=f"compute_metrics returned {_shortened(known[name])}, which cannot be the best or the worst",
            fix="return a float under this name, or name another metric",
        )


def _no_such_metric(wanted: str, known: Mapping[str, Any]) -> MetricError:
    error, name = usage_errors.no_such_metric(wanted, known), wanted.removeprefix("eval_")
    if name == "loss" and not any(one.endswith("_loss") for one in known):
        why = "an evaluation computes a loss from labels, and its batches have none, or the model returns none"
        return type(error)(what=error.what, why=why, fix="give the evaluation set labels, or name another metric")
    near = [one for one in known if one.endswith(f"_{name}")]  # the name of the evaluation set was forgotten
    near = near or difflib.get_close_matches(f"eval_{name}", known, n=1, cutoff=0.7)
    if not near:
        return error
    meant = " or ".join(repr(one.removeprefix("eval_")) for one in near)
    return type(error)(what=error.what, why=error.why, fix=f"did you mean {meant}?")


def _shortened(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def untouched(model: nn.Module, *memories: Any) -> Iterator[None]:
    """Whatever is computed inside leaves the model, the random streams and these objects as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(m, name, b) for m, _ in modes for name, b in m._buffers.items() if b is not None]
    with undisturbed(), hearing(None), unchanged(*memories), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a function says about one batch need not hold for all
        for module, name, buffer in buffers:
            module._buffers[name] = buffer.clone()
        try:
            yield
        finally:
            for module, name, buffer in buffers:
                module._buffers[name] = buffer
            for module, mode in modes:
                module.training = mode
