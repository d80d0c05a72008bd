"""The loss of a batch: its source, and its scale.

A loss is a sum and a weight, divided once by the weight of the whole optimizer step. The result of a model or a user's
function has one of three scales, determined on the first step for which it matters:

    share   sum / num_items_in_batch      already divided by the step's weight: added as it is
    mean    sum / own weight              turned into a share by own weight / step's weight
    mixed   a share plus something else   (an auxiliary loss): computed as a mean, then turned into a share
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.logged_numbers import Number, hearing
from ..core.notices import note_once
from ..core.protocols import Batch
from ..core.random import RandomState
from ..core.tree import read
from .counting import trial
from .model_outputs import BareTensorError as BareTensorError
from .model_outputs import loss_of, one_number, total_and_parts
from .smoothing import LabelSmoother

Scale = Literal["unknown", "share", "mean", "mixed"]
LossFunction = Callable[..., Tensor]


@dataclass
class Objective:
    """The model's own loss, the user's function, or smoothed labels."""

    loss_func: LossFunction | None = None
    smoother: LabelSmoother | None = None
    model_takes_num_items: bool = False
    smoother_shifts: bool = False
    scale: Scale = "unknown"
    stated: bool = False  # stated by the user: it holds for losses without a count, too
    processes: int = 1  # gradients are averaged over them; a share is not
    source: str = "the model"  # what computes the loss, for messages
    overridden: bool = False  # by a subclass
    makes_up: bool = False  # the subclass multiplies its shares by the number of processes
    parts: list[dict[str, Number]] = field(default_factory=list)  # named losses of the update's micro-batches

    @property
    def wants_count(self) -> bool:
        """Whether the loss can use `num_items_in_batch`."""
        return self.model_takes_num_items or self.loss_func is not None

    def __call__(self, model: nn.Module, inputs: Batch, num_items: Tensor | int | None) -> tuple[Tensor, Any]:
        """Return the loss of one micro-batch, and the model's outputs."""
        labels = None
        if (self.loss_func is not None or self.smoother is not None) and "labels" in inputs:
            labels = inputs.pop("labels")
            inputs = _with_decoder_inputs(model, inputs, labels)
        if num_items is not None and self.model_takes_num_items:
            inputs = {**inputs, "num_items_in_batch": num_items}
        outputs = model(**inputs)
        if self.loss_func is not None:
            if labels is None:
                note_once("compute_loss_func is called with labels=None: the batch has no column named 'labels'")
            return self.loss_func(outputs, labels, num_items_in_batch=num_items), outputs
        if self.smoother is not None and labels is not None:
            return self.smoother(outputs, labels, self.smoother_shifts, num_items_in_batch=num_items), outputs
        return loss_of(outputs, inputs), outputs

    def scaled(self, divisor: float) -> ScaledLoss:
        """Return the loss of a micro-batch whose mean is divided by `divisor` to become its share of the step."""
        return ScaledLoss(self, divisor)


@dataclass(frozen=True)
class ScaledLoss:
    """The loss of one micro-batch, on the scale of its optimizer step."""

    objective: Objective
    divisor: float = 1.0  # step's weight / (own weight x processes); infinite: the micro-batch has no weight

    def share_of(self, loss: Tensor, num_items: Tensor | int | None) -> Tensor:
        """Return the loss as its share of the whole optimizer step: the shares of a step add up to its mean."""
        objective = self.objective
        if not isinstance(loss, Tensor) or loss.dim() > 0:
            loss = self._whole(loss, num_items)
        if objective.scale == "share" and (num_items is not None or objective.stated):
            # Only a loss that was divided by the count of all processes has to compensate for their averaging.
            alone = objective.processes == 1 or num_items is None or objective.makes_up
            return loss if alone else loss * objective.processes
        return loss if self.divisor == 1.0 else loss / self.divisor

    def _whole(self, loss: Any, num_items: Tensor | int | None) -> Tensor:
        """Return one number: the sum, if several losses have names; the share of each is then recorded."""
        objective = self.objective
        total, parts = total_and_parts(loss, objective.source)
        if parts:
            if self.divisor != 1.0 or objective.processes > 1:  # else the part is its own share
                parts = {name: self.share_of(part, num_items) for name, part in parts.items()}
            # Without their graph, and without waiting for a device.
            objective.parts.append(
                {name: read(part) if part.is_cpu else part.detach() for name, part in parts.items()}
            )
        return total if parts else one_number(total, objective.source)

    @property
    def weighs_nothing(self) -> bool:
        """Whether the micro-batch has no targets, or is a padding batch."""
        return self.divisor == math.inf

    def count_for(self, num_items: Tensor | int | None) -> Any:
        """Return the count for `compute_loss`: the step's, or the micro-batch's own if only part of a loss uses it."""
        return self.own_count(num_items) if num_items is not None and self.objective.scale == "mixed" else num_items

    def must_settle(self, num_items: Tensor | int | None) -> bool:
        """Return whether this micro-batch is the first for which the scale of the loss matters."""
        matters = self.divisor not in (1.0, math.inf) or self.objective.processes > 1
        return self.objective.scale == "unknown" and num_items is not None and matters

    def settle(self, compute: Callable[[Tensor | int | None], Any], num_items: Any, model: nn.Module) -> Any:
        """Compute the first accumulated loss, and determine its scale from its dependence on `num_items_in_batch`.

        For `a / n + b` the derivative by n gives the share `a / n`, at no further cost. A loss that took the number
        out of its tensor has no derivative; it is evaluated a second time, without side effects.
        """
        before, buffers = RandomState.capture(), [(buffer, buffer.clone()) for buffer in model.buffers()]
        count = torch.as_tensor(num_items, dtype=torch.float32).detach().requires_grad_(True)
        with warnings.catch_warnings():
            # torch would warn about a loss that takes the number out of its tensor.
            warnings.filterwarnings("ignore", message="Converting a tensor with requires_grad=True to a scalar")
            loss = compute(count)
        total = self._total(loss)
        slope = _derivative(total, count)
        value = float(total.detach())
        if value == 0.0 or not math.isfinite(value):
            # Its scale cannot be determined; the next loss will show it. As a mean, it is right in every case.
            return self._again(compute, num_items, before, buffers)
        if slope:
            share = -float(num_items) * slope
        else:
            with trial(model) as attempt:
                halved = attempt(lambda: (before.restore(), self._total(compute(num_items * 2)))[1])
            share = 2 * (value - (halved or 0.0))
        self.objective.scale = _classify(share, value)
        if self.objective.scale == "share" and self.objective.processes > 1 and self.objective.overridden:
            with trial(model) as attempt:
                mean = attempt(lambda: (before.restore(), self._total(compute(None)))[1])
            self.objective.makes_up = self._is_multiplied(value, mean)
        if self.objective.scale == "mixed":
            loss = self._again(compute, num_items, before, buffers)
        if self.objective.scale != "share":
            note_once(_SCALE_NOTES[self.objective.scale])
        return loss

    def _total(self, loss: Any) -> Tensor:
        return one_number(total_and_parts(loss, self.objective.source)[0], self.objective.source)

    def _again(
        self,
        compute: Callable[[Any], Any],
        num_items: Any,
        streams: RandomState,
        buffers: list[tuple[Tensor, Tensor]],
    ) -> Any:
        """Return the loss computed again, as a mean, as if it had not been computed before."""
        streams.restore()
        for buffer, earlier in buffers:
            buffer.detach().copy_(earlier)  # statistics would count the batch twice
        with hearing(None):  # its tracked numbers were recorded the first time
            return compute(self.own_count(num_items))

    def _is_multiplied(self, share: float, mean: float | None) -> bool:
        """Return whether a share is the micro-batch's mean share times the number of processes.

        transformers' own `compute_loss` multiplies by their number, and so do subclasses that were modelled on it.
        """
        if not mean:
            return False
        times = share * self.divisor * self.objective.processes / mean
        return times > math.sqrt(self.objective.processes)  # the geometric mean of 1 and the number of processes

    def own_count(self, num_items: Any) -> Any:
        """Return the part of `num_items` that belongs to this micro-batch."""
        return num_items / (self.divisor * self.objective.processes)


def no_loss(model: nn.Module) -> Tensor:
    """Return zero, with a zero gradient for every parameter.

    A mean over nothing is NaN, and other processes wait for the gradients.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.stack([(parameter * 0.0).sum() for parameter in trainable]).sum()


_SCALE_NOTES = {
    "mean": (
        "the loss does not use num_items_in_batch: each micro-batch's mean is weighted by its number of targets, so "
        "that accumulation and processes do not change the gradient"
    ),
    "mixed": (
        "only part of the loss is divided by num_items_in_batch (an auxiliary loss?): each micro-batch is computed as "
        "a mean and weighted by its number of targets"
    ),
}


def _classify(share: float, loss: float) -> Scale:
    if abs(share) <= 1e-4 * abs(loss):
        return "mean"
    return "share" if abs(share - loss) <= 1e-4 * abs(loss) else "mixed"


def _derivative(loss: Tensor, by: Tensor) -> float | None:
    if not loss.requires_grad:
        return None
    (slope,) = torch.autograd.grad(loss, by, retain_graph=True, allow_unused=True)
    return None if slope is None else float(slope)


def _with_decoder_inputs(model: nn.Module, inputs: Batch, labels: Tensor) -> Batch:
    """Add the decoder's input, which an encoder-decoder makes from labels that it does not get here."""
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    config = getattr(model, "config", None)
    if prepare is None or "decoder_input_ids" in inputs or not getattr(config, "is_encoder_decoder", False):
        return inputs
    return {**inputs, "decoder_input_ids": prepare(labels=labels)}


def takes_num_items(model: nn.Module) -> bool:
    """Return whether a model's forward accepts `num_items_in_batch`: it states so, or it accepts any keyword."""
    stated = getattr(model, "accepts_loss_kwargs", None)
    if stated is not None:
        return bool(stated)
    parameters = inspect.signature(model.forward).parameters
    return "num_items_in_batch" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )


@dataclass(frozen=True)
class LossSignature:
    """The newer keywords that a `compute_loss` accepts; older overrides are still in use."""

    takes_num_items: bool
    takes_return_outputs: bool

    @classmethod
    def of(cls, compute_loss: Callable[..., Any]) -> LossSignature:
        parameters = inspect.signature(compute_loss).parameters
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        return cls(
            takes_num_items=anything or "num_items_in_batch" in parameters,
            takes_return_outputs=anything or "return_outputs" in parameters,
        )
