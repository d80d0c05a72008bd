"""The process group of a run."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from ..arguments import usage_errors
from ..core.world import World, provide_barrier

_POLL_SECONDS = 0.02


def join(world: World, device: torch.device, *, backend: str | None = None, timeout_seconds: int = 1800) -> None:
    """Open the default process group, unless the script already did. A world of one process has none."""
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL uses the current device, even if the script opened the group
    if world.size == 1 or dist.is_initialized():
        return
    timeout = timedelta(seconds=timeout_seconds)
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=timeout)
        return
    # torchrun's store outlives the processes. Entries from before a restart must not be read again, so the running
    # processes use a prefix of their own.
    launcher = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout
    )
    shared = dist.PrefixStore("ostinato", launcher)
    store = dist.PrefixStore(agree_on_name(shared, world, timeout_seconds), shared)
    dist.init_process_group(backend, timeout=timeout, store=store, rank=world.rank, world_size=world.size)


def agree_on_name(store: dist.Store, world: World, timeout_seconds: float) -> str:
    """Return a name that the running processes share and that was not used before them.

    The launcher's count of restarts cannot serve: every node has a count of its own, and a node that restarts alone is
    ahead of the others.

    Each process writes a greeting with a random word. The first process answers every greeting with its own word,
    which becomes the name, and waits until all have acknowledged it. A process that died is answered too, but does
    not acknowledge; a process that replaces it writes a greeting with another word.
    """
    word = uuid.uuid4().hex
    if not world.is_main:
        store.set(f"greeting/{world.rank}", word)
        try:
            store.wait([f"answer/{word}"], timedelta(seconds=timeout_seconds))
        except dist.DistStoreError as error:
            raise usage_errors.processes_missing([0], timeout_seconds) from error
        name = store.get(f"answer/{word}").decode()
        store.set(f"acknowledged/{name}/{world.rank}", "")
        return name
    missing, deadline = set(range(1, world.size)), time.monotonic() + timeout_seconds
    while missing:
        for rank in missing:
            if store.check([f"greeting/{rank}"]):
                store.set(f"answer/{store.get(f'greeting/{rank}').decode()}", word)
        missing = {rank for rank in missing if not store.check([f"acknowledged/{word}/{rank}"])}
        if missing and time.monotonic() > deadline:
            raise usage_errors.processes_missing(sorted(missing), timeout_seconds)
        time.sleep(_POLL_SECONDS)
    return word


def barrier(device: torch.device, *, backend: str | None, timeout_seconds: int) -> None:
    """Wait for every process; open the group first if arguments are read before a trainer exists."""
    world = World.from_environment()
    if world.size == 1:
        return
    join(world, device, backend=backend, timeout_seconds=timeout_seconds)
    dist.barrier()


provide_barrier(barrier)
