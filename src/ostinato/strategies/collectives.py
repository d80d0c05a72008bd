"""Gathering: rows from every process, on every process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ..core.tree import tree_map


def gather_tree(tree: Any, device: torch.device, *, pad: float | None = None) -> Any:
    """Concatenate every tensor of `tree` over the ranks. The number of rows may differ from rank to rank."""
    return tree_map(lambda leaf: _gather(leaf, device, pad) if isinstance(leaf, Tensor) else leaf, tree)


def _gather(tensor: Tensor, device: torch.device, pad: float | None) -> Tensor:
    tensor = torch.atleast_1d(tensor.detach()).contiguous().to(device)
    shape = torch.tensor(tensor.shape, device=device)
    shapes = [torch.zeros_like(shape) for _ in range(dist.get_world_size())]
    dist.all_gather(shapes, shape)
    sizes = [tuple(int(size) for size in one) for one in torch.stack(shapes).tolist()]
    widest = [max(dimension) for dimension in zip(*sizes, strict=True)]
    filler = 0 if pad is None else pad
    # All-gather needs equal shapes: pad, exchange, cut the padded rows off again.
    padding = [
        amount
        for have, want in zip(reversed(tensor.shape), reversed(widest), strict=True)
        for amount in (0, want - have)
    ]
    filled = F.pad(tensor, padding, value=filler) if any(padding) else tensor
    gathered = [torch.empty_like(filled) for _ in sizes]
    dist.all_gather(gathered, filled)
    return torch.cat([part[: size[0]] for part, size in zip(gathered, sizes, strict=True)])
