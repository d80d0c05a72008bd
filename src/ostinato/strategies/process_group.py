"""Joining the other processes of a run."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from ..core.world import World, provide_barrier


def join(world: World, device: torch.device, *, backend: str | None = None, timeout_seconds: int = 1800) -> None:
    """Open the default process group, unless the script already did. A world of one has none."""
    if world.size == 1 or dist.is_initialized():
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    default = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend or default, timeout=timedelta(seconds=timeout_seconds), store=_store(world))


def _store(world: World) -> dist.Store | None:
    """A store of this attempt's own.

    After a restart torchrun keeps the old one, and a process that comes up late would read addresses of the
    attempt before.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0":
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.PrefixStore(f"attempt-{attempt}", dist.TCPStore(address, port, world.size, is_master=False))


def barrier() -> None:
    """Wait for every process; opens the group first when arguments are read before a trainer exists."""
    world = World.from_environment()
    if world.size == 1:
        return
    join(world, world.device())
    dist.barrier()


provide_barrier(barrier)
