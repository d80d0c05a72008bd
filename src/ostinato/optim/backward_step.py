"""Optimizers that change the weights during the backward pass: LOMO, and the layer-wise ones.

They have a method `fused_backward(loss, learning_rate)`, which computes the gradients and uses each at once.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..core.notices import note_once


def run_backward(fused_backward: Callable[[Tensor, float], Any], loss: Tensor, learning_rate: float) -> None:
    """Change the weights by the gradients of `loss`; a loss that is not finite must not reach them."""
    if torch.isfinite(loss):
        fused_backward(loss, learning_rate)


def remove_hooks(model: nn.Module) -> None:
    """Remove what an earlier LOMO has left on the parameters: it would change them in every backward pass."""
    for parameter in model.parameters():
        hooks = parameter._backward_hooks or {}
        for key in [key for key, hook in hooks.items() if str(hook.__module__).startswith("lomo_optim.")]:
            del hooks[key]


def adapt_to_loop(optimizer: Any, max_grad_norm: float | None) -> None:
    """Give an optimizer that steps in the backward pass a `step` that does nothing, for the loop and the schedule."""
    if getattr(optimizer, "fused_backward", None) is None:
        return
    optimizer.step = types.MethodType(_step_nothing, optimizer)
    if max_grad_norm:
        note_once(
            f"max_grad_norm={max_grad_norm:g} has no effect, and grad_norm is not logged: "
            f"{type(optimizer).__name__} uses every gradient as soon as it is computed"
        )


def _step_nothing(optimizer: Any, closure: Any = None) -> None:
    """Change nothing: the weights were changed during the backward pass."""
