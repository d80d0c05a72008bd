"""The weights that every process starts with: those of the first process.

The other processes may create the model on the meta device, which takes no memory. Then the model is divided first,
and each weight is broadcast once there is room for a part of it: no device ever holds the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ..core.errors import NotSupportedError
from .placement import Slot, find_ties

_META = torch.device("meta")


@dataclass
class FirstWeights:
    """The weights of a model before it was divided: all of them in the first process, shapes in the others."""

    device: torch.device
    kept: dict[str, Tensor] = field(default_factory=dict)
    ties: list[list[Slot]] = field(default_factory=list)
    is_pending: bool = False  # some process has no weights yet

    @classmethod
    def of(cls, model: nn.Module, device: torch.device) -> FirstWeights:
        """Note the weights of a model; broadcast them, if every process has memory for them already.

        Raises:
            NotSupportedError: The first process has no weights either.
        """
        tensors = _list_tensors(model)
        lacks = torch.tensor([int(any(tensor.is_meta for tensor in tensors.values()))] * 2, device=device)
        dist.all_reduce(lacks[:1], op=dist.ReduceOp.MAX)
        dist.broadcast(lacks[1:], src=0)
        anyone, first = lacks.tolist()
        if first:
            raise NotSupportedError(
                what=f"{type(model).__name__} has no weights: its parameters are on the meta device in every process",
                why="they have shapes and no values",
                fix="create it on the meta device in all processes but the first, whose weights the others receive; "
                "or from_pretrained(..., distributed_config=DistributedConfig(fsdp_size=...)), which reads parts",
            )
        if not anyone:
            for tensor in tensors.values():
                _broadcast(tensor.data, device)
            return cls(device)
        kept = {name: tensor.detach() for name, tensor in tensors.items()}
        first = cls(device, kept, find_ties(model), is_pending=True)
        first._make_empty(model, torch.device("meta"))
        return first

    @torch.no_grad()
    def fill(self, model: nn.Module) -> None:
        """Give a divided model its weights and buffers, and tie again what making room for them has untied."""
        if not self.is_pending:
            return
        self._make_empty(model, self.device)
        for name, tensor in _list_tensors(model).items():
            self._fill_one(tensor, self.kept[name])
        self.kept.clear()

    def _make_empty(self, model: nn.Module, device: torch.device) -> None:
        model.to_empty(device=device)
        for (first, name), *others in self.ties:
            for module, other in others:
                module._parameters[other] = first._parameters[name]

    def _fill_one(self, tensor: Tensor, kept: Tensor) -> None:
        if not kept.numel():
            return
        whole = torch.empty(kept.shape, dtype=kept.dtype, device=self.device) if kept.is_meta else kept.to(self.device)
        dist.broadcast(whole, src=0)
        if not isinstance(tensor, DTensor):
            tensor.data.copy_(whole)
            return
        shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        box = tuple(slice(begin, begin + size) for begin, size in zip(offset, shape, strict=True))
        tensor.to_local().copy_(whole[box])


def _list_tensors(model: nn.Module) -> Mapping[str, Tensor]:
    """Return parameters and buffers by name: each once, and those too that no checkpoint has."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _broadcast(tensor: Tensor, device: torch.device) -> None:
    """Give every process the tensor of the first one, by way of the device that exchanges tensors."""
    if not tensor.numel():
        return
    passed: Any = tensor if tensor.device == device else tensor.to(device)
    dist.broadcast(passed, src=0)
    if passed is not tensor:
        tensor.copy_(passed)
