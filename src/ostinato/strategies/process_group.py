"""The process group of a run."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from ..arguments import usage_errors
from ..core import accelerator
from ..core.errors import ConfigError
from ..core.world import World, provide_barrier

_POLL_SECONDS = 0.02


def join(world: World, device: torch.device, *, backend: str | None = None, timeout_seconds: int = 1800) -> None:
    """Open the default process group, unless the script already did. A world of one process has none."""
    accelerator.set_current(device)  # NCCL uses the current device, even if the script opened the group
    if world.size == 1 or dist.is_initialized():
        return
    timeout = timedelta(seconds=timeout_seconds)
    backend = backend or _choose_backend(device)
    # NCCL connects the processes now, each with its device, and not at some later call with a device that it guesses.
    device_id = device if accelerator.is_accelerator(device) and backend not in ("gloo", "mpi") else None
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=timeout, device_id=device_id)
        return
    # torchrun's store outlives the processes. Entries from before a restart must not be read again, so the running
    # processes use a prefix of their own.
    launcher = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout
    )
    shared = dist.PrefixStore("ostinato", launcher)
    store = dist.PrefixStore(agree_on_name(shared, world, timeout_seconds), shared)
    dist.init_process_group(
        backend, timeout=timeout, store=store, rank=world.rank, world_size=world.size, device_id=device_id
    )


def _choose_backend(device: torch.device) -> str:
    """Return the backend that torch has for the processes of a kind of device: nccl for cuda, gloo for a CPU."""
    try:
        return dist.get_default_backend_for_device(device)
    except ValueError as error:
        raise ConfigError(
            what=f"several processes on {device.type} devices cannot exchange data",
            why=f"torch knows no backend for {device.type}",
            fix="set ddp_backend to one that the package of the device registers, or use_cpu=True",
        ) from error


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


def total_processes_number(local_rank: int) -> int:
    """Return the number of processes; a process whose `local_rank` is -1 is alone.

    Args:
        local_rank: The number of this process on its machine, or -1.

    Returns:
        The number of processes.

    >>> total_processes_number(-1)
    1
    """
    return 1 if local_rank == -1 else dist.get_world_size()


def barrier(device: torch.device, *, backend: str | None, timeout_seconds: int) -> None:
    """Wait for every process; open the group first if arguments are read before a trainer exists."""
    world = World.from_environment()
    if world.size == 1:
        return
    join(world, device, backend=backend, timeout_seconds=timeout_seconds)
    dist.barrier()


provide_barrier(barrier)
