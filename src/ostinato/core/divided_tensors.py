"""Tensors that are divided among processes (torch's `DTensor`), and others, in the same way."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def get_local(tensor: Any) -> Tensor:
    """Return the numbers of a tensor that this process holds.

    >>> import torch
    >>> get_local(torch.ones(2))
    tensor([1., 1.])
    """
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gather_whole(tensor: Any) -> Tensor:
    """Return the whole tensor. All processes that hold a part have to call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def divide_like(tensor: Any, other: Any) -> Any:
    """Return a tensor that is divided among the same processes, along the same axes, as another.

    >>> import torch
    >>> divide_like(torch.ones(2), torch.zeros(2))
    tensor([1., 1.])
    """
    return tensor.redistribute(other.device_mesh, other.placements) if hasattr(other, "placements") else tensor
