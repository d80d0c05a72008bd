"""The numbers of an evaluation: its mean loss, and the names under which it reports them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ..core.notices import note_once
from ..core.outputs import EvalLoopOutput


def average_losses(losses: np.ndarray | None, weights: np.ndarray | None) -> float | None:
    """Return the mean over everything that the losses average, however it was batched.

    There is one loss for each row, and the weight of that row's share of the batch's mean.
    """
    if losses is None or weights is None or not len(losses):
        return None
    if np.all(weights == weights[0]):
        return losses.mean().item()
    counted = weights > 0  # a batch without any label has a mean of nothing, which is NaN
    return float(np.average(losses[counted].astype(np.float64), weights=weights[counted]))


def average_sets(metrics: dict[str, float], names: list[str], prefix: str) -> dict[str, float]:
    """Return the mean of the losses of several evaluation sets, with equal weights; nothing if one has no loss.

    >>> average_sets({"eval_a_loss": 1.0, "eval_b_loss": 3.0}, ["a", "b"], "eval")
    {'eval_loss': 2.0}
    """
    losses = [metrics.get(f"{prefix}_{name}_loss") for name in names]
    known = [loss for loss in losses if loss is not None]
    return {f"{prefix}_loss": sum(known) / len(known)} if known and len(known) == len(losses) else {}


def add_tracked(output: EvalLoopOutput, tracked: dict[str, float], prefix: str) -> EvalLoopOutput:
    """Add the numbers that were tracked during the evaluation to its metrics."""
    if not tracked:
        return output
    reported, measured = name_metrics(tracked, {}, prefix), output.metrics or {}
    for name in reported.keys() & measured.keys():
        note_once(f"{name} is measured, and was also reported by track(): the measured one is shown")
    return output._replace(metrics={**reported, **measured})


def name_metrics(metrics: Mapping[str, Any], known: Mapping[str, float | None], prefix: str) -> dict[str, float]:
    """Return plain Python numbers under `prefix_…` names, including the values that the loop itself knows."""
    named = {name: _to_plain(value) for name, value in metrics.items()}
    named.update({f"{prefix}_{name}": value for name, value in known.items() if value is not None})
    for name in list(named):
        if not name.startswith(f"{prefix}_"):
            named[f"{prefix}_{name}"] = named.pop(name)
    return named


def _to_plain(value: Any) -> Any:
    if isinstance(value, (np.generic, Tensor)) and getattr(value, "size", None) is not None:
        return value.item() if _is_scalar(value) else value
    if isinstance(value, Mapping):
        return {name: _to_plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_to_plain(one) for one in value)
    return value


def _is_scalar(value: Any) -> bool:
    return math.prod(value.shape) == 1
