"""The processes of a run: rank, world size and device, as set by the launcher."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import torch

from . import accelerator


@dataclass(frozen=True)
class World:
    """The processes of a run, as seen from this one. Under `torchrun` these come from the environment."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    local_size: int = 1

    @classmethod
    def from_environment(cls) -> World:
        """Return the world that the launcher set; a world of one without a launcher."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        rank = int(os.environ.get("RANK", "0"))
        return cls(
            rank=rank,
            local_rank=int(os.environ.get("LOCAL_RANK", rank)),
            size=size,
            local_size=int(os.environ.get("LOCAL_WORLD_SIZE", size)),
        )

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        return self.local_rank == 0

    def device(self, *, use_cpu: bool = False) -> torch.device:
        """Return the device of this process: each process has one."""
        return accelerator.CPU if use_cpu else accelerator.choose_device(self.local_rank)


def is_main_process(local_rank: int) -> bool:
    """Return whether the process with this `local_rank` is the first of its machine; -1 is a process without others.

    Args:
        local_rank: The number of the process on its machine.

    Returns:
        True for the first one.

    >>> is_main_process(-1), is_main_process(0), is_main_process(1)
    (True, True, False)
    """
    return local_rank in (-1, 0)


class Barrier(Protocol):
    """Wait for every process, in a process group that it opens with these settings if there is none yet."""

    def __call__(self, device: torch.device, *, backend: str | None, timeout_seconds: int) -> None: ...


_barrier: Barrier | None = None


def provide_barrier(barrier: Barrier) -> None:
    """Set the barrier. Called by the module that owns the process group; arguments are read before it exists."""
    global _barrier
    _barrier = barrier


def wait_for_everyone(device: torch.device, *, backend: str | None, timeout_seconds: int) -> None:
    """Return once every process has called it. Return immediately in a world of one."""
    if _barrier is not None:
        _barrier(device, backend=backend, timeout_seconds=timeout_seconds)
