"""The scale of a loss, determined from its dependence on `num_items_in_batch`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.logged_numbers import collect_numbers
from ..core.notices import note_once
from ..core.random import RandomState
from .counting import trial
from .model_outputs import require_number, split_loss

Scale = Literal["unknown", "share", "mean", "mixed"]  # objective.py explains them

_NOTES: dict[Scale, str] = {
    "mean": (
        "the loss does not use num_items_in_batch: each micro-batch's mean is weighted by its number of targets, so "
        "that accumulation and processes do not change the gradient"
    ),
    "mixed": (
        "only part of the loss is divided by num_items_in_batch (an auxiliary loss?): each micro-batch is computed as "
        "a mean and weighted by its number of targets"
    ),
}


@dataclass
class ScaleProbe:
    """Compute the loss of one micro-batch in such a way that its scale shows."""

    compute: Callable[[Any], Any]  # computes the loss, given a count
    num_items: Any  # the count of the whole step
    own_items: Any  # the micro-batch's part of it
    model: nn.Module
    source: str  # what computes the loss, for messages
    value: float = math.nan  # of the loss

    def __post_init__(self) -> None:
        self._streams = RandomState.capture()
        self._buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]

    def run(self) -> tuple[Any, Scale]:
        """Return the loss and its scale; "unknown" if the loss does not show it.

        For `a / n + b` the derivative by n gives the share `a / n`, at no further cost. A loss that took the number
        out of its tensor has no derivative; it is evaluated a second time, without side effects.
        """
        count = torch.as_tensor(self.num_items, dtype=torch.float32).detach().requires_grad_(True)
        with warnings.catch_warnings():
            # torch would warn about a loss that takes the number out of its tensor.
            warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad=True to a scalar")
            loss = self.compute(count)
        total = self._compute_total(loss)
        slope = _differentiate(total, count)
        self.value = float(total.detach())
        if self.value == 0.0 or not math.isfinite(self.value):
            return self._compute_mean(), "unknown"  # the next loss will show it; a mean is right in every case
        if slope:
            share = -float(self.num_items) * slope
        else:
            share = 2 * (self.value - (self._try_count(self.num_items * 2) or 0.0))
        scale = _classify(share, self.value)
        if scale in _NOTES:
            note_once(_NOTES[scale])
        return (self._compute_mean() if scale == "mixed" else loss), scale

    def is_multiplied(self, divisor: float, processes: int) -> bool:
        """Return whether a share is the micro-batch's mean share times the number of processes.

        transformers' own `compute_loss` multiplies by their number, and so do subclasses that were modelled on it.
        """
        mean = self._try_count(None)
        if not mean:
            return False
        times = self.value * divisor * processes / mean
        return times > math.sqrt(processes)  # the geometric mean of 1 and the number of processes

    def _try_count(self, count: Any) -> float | None:
        """Return the loss for another count, without side effects."""
        with trial(self.model) as attempt:
            return attempt(lambda: (self._streams.restore(), self._compute_total(self.compute(count)))[1])

    def _compute_total(self, loss: Any) -> Tensor:
        return require_number(split_loss(loss, self.source)[0], self.source)

    def _compute_mean(self) -> Any:
        """Return the loss computed again, as a mean, as if it had not been computed before."""
        self._streams.restore()
        for buffer, earlier in self._buffers:
            buffer.detach().copy_(earlier)  # statistics would count the batch twice
        with collect_numbers(None):  # its tracked numbers were recorded the first time
            return self.compute(self.own_items)


def _classify(share: float, loss: float) -> Scale:
    if abs(share) <= 1e-4 * abs(loss):
        return "mean"
    return "share" if abs(share - loss) <= 1e-4 * abs(loss) else "mixed"


def _differentiate(loss: Tensor, by: Tensor) -> float | None:
    if not loss.requires_grad:
        return None
    (slope,) = torch.autograd.grad(loss, by, retain_graph=True, allow_unused=True)
    return None if slope is None else float(slope)
