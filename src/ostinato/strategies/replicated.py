"""Data parallelism: every process holds the whole model (DDP) and computes its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..arguments.settings import ReplicaSettings
from .clipping import clip
from .collectives import ProcessCollectives
from .unused_weights import UnusedWeights, can_complete


@dataclass
class Replicated(ProcessCollectives):
    """Train in several processes: gradients are averaged over all of them at the end of each optimizer step."""

    settings: ReplicaSettings
    is_sharded: bool = False
    has_unused: bool = False
    _unused: UnusedWeights | None = None  # None: DDP looks for them itself, in every step, or is set to expect none

    def place(self, model: nn.Module, *, training: bool = True) -> nn.Module:
        if isinstance(model, DistributedDataParallel) or not training:
            return model
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # nothing to exchange, and DDP rejects such a model
        searches = self.settings.find_unused_parameters
        if searches is None:
            searches = self.has_unused or not can_complete(model)
            self._unused = None if searches else UnusedWeights.of(model)
        return self._replicate(model, searches=searches)

    def _replicate(self, model: nn.Module, *, searches: bool) -> DistributedDataParallel:
        given = {
            "bucket_cap_mb": self.settings.bucket_cap_mb,
            "broadcast_buffers": self.settings.broadcast_buffers,
            "static_graph": self.settings.static_graph,
        }
        options = {name: value for name, value in given.items() if value is not None}
        is_here = all(parameter.device == self.device for parameter in model.parameters())
        # Without ids, DDP leaves inputs on their devices, as a model needs that is spread over several devices.
        ids = [self.device.index] if self.device.index is not None and is_here else None
        replica = DistributedDataParallel(model, device_ids=ids, find_unused_parameters=searches, **options)
        if self._unused is not None:
            self._unused.settle_buckets(replica)
        return replica

    def finish_backward(self, model: nn.Module) -> nn.Module:
        if self._unused is None or not isinstance(model, DistributedDataParallel):
            return model
        if self._unused.complete(model, self.gather_objects):
            self.has_unused = True
        return self.search_unused(model) if self.has_unused and self._unused.is_agreed else model

    def search_unused(self, model: nn.Module) -> nn.Module:
        if self._unused is None or not isinstance(model, DistributedDataParallel):
            return model
        self._unused, self.has_unused = None, True
        model._remove_autograd_hooks()
        return self._replicate(model.module, searches=True)

    def accumulate(self, model: nn.Module, *, sync: bool) -> AbstractContextManager[Any]:
        return nullcontext() if sync or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def clip(self, gradients: list[Tensor], max_norm: float) -> Tensor:
        return clip(gradients, max_norm)

    def model_state(self, model: nn.Module) -> None:
        return None

    def load_model_state(self, model: nn.Module, state: Mapping[str, Any]) -> Any:
        return model.load_state_dict(state, strict=False)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)

    def choose_optimizer_options(self, kind: type, options: dict[str, Any], model: nn.Module) -> dict[str, Any]:
        return options
