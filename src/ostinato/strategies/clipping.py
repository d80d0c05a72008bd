"""The norm of a gradient, and clipping."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


@torch.no_grad()
def clip(gradients: list[Tensor], max_norm: float) -> Tensor:
    """Scale `gradients` in place so that their joint 2-norm is at most `max_norm`; return the norm they had."""
    norm = nn.utils.get_total_norm(gradients)
    if gradients and not math.isinf(max_norm):
        # No branch on whether the norm exceeds the limit: reading it would wait for the device.
        scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for device in {gradient.device for gradient in gradients}:
            torch._foreach_mul_([one for one in gradients if one.device == device], scale.to(device))
    return norm
