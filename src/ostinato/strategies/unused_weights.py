"""Weights that have no part in a loss, in models that are replicated by DDP.

DDP waits for the gradient of every weight. It can look for those that will get none, at the price of a walk through
the graph and one more exchange in every step, and warns if there are none. Here it is set to expect none. What
is missing after a backward is added as zero, so that no process waits; from then on DDP looks for such weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..core.errors import ModelOutputError

_MISSING = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


@dataclass
class UnusedWeights:
    """Complete the gradients of a model for which DDP does not look for unused weights."""

    weights: list[nn.Parameter]  # in the order in which DDP numbers them
    is_first: bool = True  # the next step is the first
    is_agreed: bool = False  # all processes have learned in the same step that there are unused weights

    @classmethod
    def of(cls, model: nn.Module) -> UnusedWeights:
        """Return the weights of a model that is about to be replicated."""
        return cls([parameter for parameter in model.parameters() if parameter.requires_grad])

    def complete(self, model: DistributedDataParallel, gather: Callable[[Any], list[Any]]) -> bool:
        """Add zero to gradients that DDP still waits for; return whether there were any, in any process if known.

        The processes compare the first step. What no process has used there gets no gradient, and so no weight decay.
        """
        missing = _find_missing(model)
        if missing:
            _add_zeros([self.weights[index] for index in missing])
        if not self.is_first:
            return bool(missing)
        self.is_first = False
        found = [set(each) for each in gather(missing)]
        self.is_agreed = any(found)
        for index in set.intersection(*found):
            self.weights[index].grad = None
        return self.is_agreed

    def settle_buckets(self, model: DistributedDataParallel) -> None:
        """Let DDP choose its buckets before the first step.

        It chooses them anew after its first backward. With three and more processes, sums are rounded as the buckets
        have it, and the first step of a resumed run would not be that of a run that was not interrupted.
        """
        if not model.static_graph:
            model.reducer.prepare_for_backward([])
            _add_zeros(self.weights)
            for weight in self.weights:
                weight.grad = None


def can_complete(model: nn.Module) -> bool:
    """Return whether zero can be added to any gradient: no weight has a sparse gradient or a hook, or is left out."""
    if any(getattr(module, "sparse", False) for module in model.modules()):
        return False
    if getattr(model, "_ddp_params_and_buffers_to_ignore", None):
        return False
    return not any(
        parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        for parameter in model.parameters()
    )


def _find_missing(model: DistributedDataParallel) -> list[int]:
    """Return the numbers of the weights whose gradients DDP still waits for."""
    try:
        model._check_reducer_finalized()
    except RuntimeError as error:
        if found := _MISSING.search(str(error)):
            return [int(number) for number in found[1].split()]
        raise ModelOutputError(
            what="some weights got no gradient, and DDP waits for them",
            why=str(error),
            fix="TrainingArguments(ddp_find_unused_parameters=True)",
        ) from error
    return []


def _add_zeros(weights: Sequence[nn.Parameter]) -> None:
    """Add zero to gradients by a backward, which DDP notices; weights that were frozen since are included."""
    frozen = [weight for weight in weights if not weight.requires_grad]
    for weight in frozen:
        weight.requires_grad_(True)
    with torch.enable_grad():
        torch.autograd.backward([(weight * 0.0).sum() for weight in weights])
    for weight in frozen:
        weight.requires_grad_(False)
