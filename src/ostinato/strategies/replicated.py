"""Data parallelism: every process holds the whole model (DDP) and computes its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..arguments.settings import ReplicaSettings
from ..core.world import World
from .clipping import clip
from .collectives import gather_tree


@dataclass
class Replicated:
    """Train in several processes: gradients are averaged over all of them at the end of each optimizer step."""

    device: torch.device
    world: World
    settings: ReplicaSettings

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def size(self) -> int:
        return self.world.size

    def place(self, model: nn.Module) -> nn.Module:
        if isinstance(model, DistributedDataParallel):
            return model
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # nothing to exchange, and DDP rejects such a model
        given = {
            "find_unused_parameters": self.settings.find_unused_parameters,
            "bucket_cap_mb": self.settings.bucket_cap_mb,
            "broadcast_buffers": self.settings.broadcast_buffers,
            "static_graph": self.settings.static_graph,
        }
        options = {name: value for name, value in given.items() if value is not None}
        is_here = all(parameter.device == self.device for parameter in model.parameters())
        # Without ids, DDP leaves inputs on their devices, as a model needs that is spread over several devices.
        ids = [self.device.index] if self.device.type == "cuda" and is_here else None
        return DistributedDataParallel(model, device_ids=ids, **options)

    def accumulate(self, model: nn.Module, *, sync: bool) -> AbstractContextManager[Any]:
        return nullcontext() if sync or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def clip(self, gradients: list[Tensor], max_norm: float) -> Tensor:
        return clip(gradients, max_norm)

    def sum(self, value: Tensor) -> Tensor:
        total = value.detach().clone().to(self.device)
        dist.all_reduce(total)
        return total

    def mean(self, value: Tensor) -> Tensor:
        return self.sum(value) / self.world.size

    def gather(self, tree: Any, *, pad: float | None = None) -> Any:
        return gather_tree(tree, self.device, pad=pad)

    def any(self, flag: bool) -> bool:
        return bool(self.sum(torch.tensor(int(flag))))

    def gather_objects(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast_object(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def model_state(self, model: nn.Module) -> None:
        return None

    def load_model_state(self, model: nn.Module, state: Mapping[str, Any]) -> Any:
        return model.load_state_dict(state, strict=False)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)

    def barrier(self) -> None:
        dist.barrier()
