"""The loss of a batch: its source, and its scale.

A loss is a sum and a weight, divided once by the weight of the whole optimizer step. The result of a model or a user's
function has one of three scales, determined on the first step for which it matters:

    share   sum / num_items_in_batch      already divided by the step's weight: added as it is
    mean    sum / own weight              turned into a share by own weight / step's weight
    mixed   a share plus something else   (an auxiliary loss): computed as a mean, then turned into a share
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core.notices import note_once
from ..core.protocols import Batch
from .model_outputs import loss_of, require_number, split_loss
from .named_losses import NamedLosses
from .scale_probe import Scale, ScaleProbe
from .share import KnownShare, Share
from .smoothing import LabelSmoother

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
    is_multiplied: bool = False  # the subclass multiplies its shares by the number of processes
    named: NamedLosses = field(default_factory=NamedLosses)  # of the update's micro-batches

    @property
    def wants_count(self) -> bool:
        """Whether the loss can use `num_items_in_batch`."""
        return self.model_takes_num_items or self.loss_func is not None

    @property
    def is_left_alone(self) -> bool:
        """Whether no loss is to be rescaled: libraries state so by a `loss_func` that is not a function."""
        return self.loss_func is not None and not callable(self.loss_func)

    def __call__(self, model: nn.Module, inputs: Batch, num_items: Tensor | int | None) -> tuple[Tensor, Any]:
        """Return the loss of one micro-batch, and the model's outputs."""
        labels = None
        if (self.loss_func is not None or self.smoother is not None) and "labels" in inputs:
            labels = inputs.pop("labels")
            inputs = _add_decoder_inputs(model, inputs, labels)
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

    def scale_by(self, divisor: float) -> ScaledLoss:
        """Return the loss of a micro-batch whose mean is divided by `divisor` to become its share of the step."""
        return ScaledLoss(self, KnownShare(divisor))


@dataclass(frozen=True)
class ScaledLoss:
    """The loss of one micro-batch, on the scale of its optimizer step."""

    objective: Objective
    share: Share

    def choose_count(self, num_items: Tensor | int | None) -> Any:
        """Return the count for `compute_loss`: the step's, or the micro-batch's own if only part of a loss uses it."""
        return (
            self.get_own_count(num_items) if num_items is not None and self.objective.scale == "mixed" else num_items
        )

    def get_own_count(self, num_items: Any) -> Any:
        """Return the part of `num_items` that belongs to this micro-batch."""
        return num_items / (self.share.divisor * self.objective.processes)

    def share_of(self, loss: Tensor, num_items: Tensor | int | None) -> Tensor:
        """Return the loss as its share of the whole optimizer step: the shares of a step add up to its mean."""
        objective = self.objective
        if not isinstance(loss, Tensor) or loss.dim() > 0:
            loss = self._add_named(loss, num_items)
        if objective.scale == "share" and (num_items is not None or objective.stated):
            # Only a loss that was divided by the count of all processes has to compensate for their averaging.
            alone = objective.processes == 1 or num_items is None or objective.is_multiplied
            return loss if alone else loss * objective.processes
        divisor = self.share.divisor
        return loss if divisor == 1.0 else loss / divisor

    def _add_named(self, loss: Any, num_items: Tensor | int | None) -> Tensor:
        """Return one number: the sum, if several losses have names; the share of each is then recorded."""
        objective = self.objective
        total, parts = split_loss(loss, objective.source)
        if not parts:
            return require_number(total, objective.source)
        if objective.processes > 1 or self.share.divisor != 1.0:  # else the part is its own share
            parts = {name: self.share_of(part, num_items) for name, part in parts.items()}
        objective.named.hold(parts)
        return total

    def is_scale_needed(self, num_items: Tensor | int | None) -> bool:
        """Return whether this micro-batch is the first for which the scale of the loss matters."""
        if self.objective.scale != "unknown" or num_items is None:
            return False
        return self.objective.processes > 1 or self.share.divisor not in (1.0, math.inf)

    def settle_scale(self, compute: Callable[[Tensor | int | None], Any], num_items: Any, model: nn.Module) -> Any:
        """Compute the first loss whose scale matters, and determine its scale."""
        objective = self.objective
        probe = ScaleProbe(compute, num_items, self.get_own_count(num_items), model, objective.source)
        loss, objective.scale = probe.run()
        if objective.scale == "share" and objective.processes > 1 and objective.overridden:
            objective.is_multiplied = probe.is_multiplied(self.share.divisor, objective.processes)
        return loss


def build_zero_loss(model: nn.Module, computed: Tensor | None = None) -> Tensor:
    """Return zero, with a zero gradient for every parameter.

    A mean over nothing is NaN, and other processes wait for the gradients. Where they also wait for the layers of the
    backward, `computed` is the loss whose graph is used.
    """
    if computed is not None:
        return torch.nan_to_num(computed) * 0.0
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.stack([(parameter * 0.0).sum() for parameter in trainable]).sum()


def _add_decoder_inputs(model: nn.Module, inputs: Batch, labels: Tensor) -> Batch:
    """Add the decoder's input, which an encoder-decoder makes from labels that it does not get here."""
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    config = getattr(model, "config", None)
    if prepare is None or "decoder_input_ids" in inputs or not getattr(config, "is_encoder_decoder", False):
        return inputs
    return {**inputs, "decoder_input_ids": prepare(labels=labels)}
