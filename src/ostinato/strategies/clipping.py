"""The norm of a gradient, and clipping."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip(gradients: list[Tensor], max_norm: float) -> Tensor:
    """Scale `gradients` in place so that their joint 2-norm is at most `max_norm`; return the norm they had."""
    groups = _group_by_mesh(gradients)
    norm = _measure_norm(groups)
    if gradients and not math.isinf(max_norm):
        # No branch on whether the norm exceeds the limit: reading it would wait for the device.
        scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        for group in groups:
            for device in {gradient.device for gradient in group}:
                torch._foreach_mul_([one for one in group if one.device == device], scale.to(device))
    return norm


def _measure_norm(groups: list[list[Tensor]]) -> Tensor:
    """Return the joint norm. Gradients that are divided in different ways are measured apart, then joined."""
    norms = [_get_whole(nn.utils.get_total_norm(group)) for group in groups] or [torch.zeros(())]
    return norms[0] if len(norms) == 1 else nn.utils.get_total_norm(norms)


def _group_by_mesh(gradients: list[Tensor]) -> list[list[Tensor]]:
    """Return the gradients that torch can use in one operation together."""
    if not any(isinstance(gradient, DTensor) for gradient in gradients):
        return [gradients] if gradients else []
    groups: dict[object, list[Tensor]] = {}
    for gradient in gradients:
        groups.setdefault(gradient.device_mesh if isinstance(gradient, DTensor) else None, []).append(gradient)
    return list(groups.values())


def _get_whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
