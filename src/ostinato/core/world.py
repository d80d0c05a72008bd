"""Who else is training with this process: rank, world size and device, as the launcher tells it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class World:
    """The processes of a run, as seen from this one. Under `torchrun` these come from the environment."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1
    local_size: int = 1

    @classmethod
    def from_environment(cls) -> World:
        """What the launcher set; a world of one when there is no launcher."""
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
        """One process, one device."""
        if use_cpu:
            return torch.device("cpu")
        if torch.cuda.is_available():
            return torch.device("cuda", self.local_rank)
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")


_barrier: Callable[[], None] | None = None


def provide_barrier(barrier: Callable[[], None]) -> None:
    """Called by the room that owns the process group; arguments are read before it exists."""
    global _barrier
    _barrier = barrier


def wait_for_everyone() -> None:
    """Return once every process has come here. Nothing to wait for in a world of one."""
    if _barrier is not None:
        _barrier()
