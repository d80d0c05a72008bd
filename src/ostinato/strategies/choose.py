"""The choice of a strategy from the world and the settings."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..arguments.settings import ReplicaSettings
from ..arguments.shard_settings import ShardSettings
from ..core.notices import note_once
from ..core.protocols import Strategy
from ..core.world import World
from .mesh import find_data_groups, find_given_mesh, find_tensor_size
from .process_group import join
from .replicated import Replicated
from .sharded import Sharded
from .single import SingleDevice


def choose_strategy(
    world: World,
    device: torch.device,
    replicas: ReplicaSettings,
    shards: ShardSettings | None = None,
    model: nn.Module | None = None,
) -> Strategy:
    """Return the strategy: one process trains alone; several share the rows, and replicate or divide the model.

    A model that is divided already stays so.
    """
    join(world, device, backend=replicas.backend, timeout_seconds=replicas.timeout_seconds)
    if world.size == 1:
        if shards is not None:
            note_once("the model is not sharded: there is one process. torchrun or ostinato launch starts several")
        return SingleDevice(device)
    is_divided = model is not None and find_given_mesh(model) is not None
    if shards is None and not is_divided:
        return Replicated(device, world, replicas, timeout_seconds=replicas.timeout_seconds)
    tensor_size = 1 if shards is None else shards.tensor_size
    if model is not None and is_divided:
        is_gathered = any(isinstance(module, FSDPModule) for module in model.modules())
        tensor_size = find_tensor_size(model, world, is_gathered=is_gathered)
    find_data_groups(tensor_size, timedelta(seconds=replicas.timeout_seconds))
    settings = shards or ShardSettings()
    return Sharded(device, world, settings, tensor_size=tensor_size, timeout_seconds=replicas.timeout_seconds)
