"""The choice of a strategy from the world and the settings."""

from __future__ import annotations

import torch

from ..arguments.settings import ReplicaSettings
from ..core.protocols import Strategy
from ..core.world import World
from .process_group import join
from .replicated import Replicated
from .single import SingleDevice


def choose_strategy(world: World, device: torch.device, replicas: ReplicaSettings) -> Strategy:
    """Return the strategy: one process trains alone; several replicate the model and share the rows."""
    join(world, device, backend=replicas.backend, timeout_seconds=replicas.timeout_seconds)
    return SingleDevice(device) if world.size == 1 else Replicated(device, world, replicas)
