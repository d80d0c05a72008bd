"""An accelerator that is not there, for tests: a CPU-only torch believes in it, and it shows what a real one hides.

`install("cuda")` gives the process a device `cuda:0`, `install("privateuse1")` one called `pretend:0` that stands for
every accelerator that torch does not know. It cannot be undone: these tests have a session of their own
(`pytest --device=cuda`). Written for torch 2.13; no compiler is needed.

What is real: tensors (dispatch keys, views, autograd, autocast, scaling, fused and foreach optimizers), whose numbers
only kernels can reach; generators, streams, events, pinned memory, statistics of memory, `torch.accelerator`.
What is better than real: every wait of the host is recorded with the line that caused it; a *hostile* device makes
copies as late as it may, and raises `UnorderedAccess` where nothing orders two uses of memory; memory may be limited.
What is not: speed (`set_kernel_time` pretends some), rounding (numbers are the CPU's), more than one device, graphs,
and memory that storages are asked to grow into (`UntypedStorage.resize_`).

    with record_waits() as waits:
        trainer.train()
    assert not [wait.line for wait in waits if wait.drains]

| module | subject |
|---|---|
| `device_settings` | what the device is, and how it behaves |
| `torch_internals` | tensors with the device's keys, and what C++ asks |
| `device_memory` | host buffers behind addresses that cannot be read; pinned memory |
| `device_queue` | streams, events, clocks, late copies |
| `device_generators` | random numbers |
| `device_kernels` | one kernel for all operations, and those that allocate and copy |
| `device_autocast` | autocast for PrivateUse1 |
| `device_modules` | `torch.cuda`, `torch.accelerator` and the like |
| `host_waits` | recordings of waits |
"""

from __future__ import annotations

import torch

from tests.support.pretend_device.device_autocast import register_autocast
from tests.support.pretend_device.device_kernels import register_kernels
from tests.support.pretend_device.device_memory import MEMORY
from tests.support.pretend_device.device_modules import fill_cuda, make_module, replace_functions
from tests.support.pretend_device.device_queue import TIMELINE, UnorderedAccess
from tests.support.pretend_device.device_settings import DEVICE
from tests.support.pretend_device.host_waits import Wait, record_waits
from tests.support.pretend_device.torch_internals import announce_backend, announce_cuda

KINDS = ("cuda", "privateuse1")
PRETENDED_NAME = "pretend"  # what PrivateUse1 is called


def install(kind: str = "cuda") -> torch.device:
    """Give this process a device of a kind, and return it."""
    if DEVICE.type or torch.accelerator.is_available():
        raise RuntimeError(
            f"this process has a device already: {DEVICE.type or torch.accelerator.current_accelerator()}"
        )
    if kind not in KINDS:
        raise ValueError(f"a pretended device is one of {KINDS}, not {kind!r}")
    if kind == "cuda":
        DEVICE.type, DEVICE.key = "cuda", "CUDA"
        announce_cuda()
        fill_cuda()
    else:
        DEVICE.type, DEVICE.key = PRETENDED_NAME, "PrivateUse1"
        announce_backend(PRETENDED_NAME, make_module(PRETENDED_NAME))
        register_autocast()
    register_kernels()
    replace_functions()
    torch.get_device_module(DEVICE.type).manual_seed_all(torch.initial_seed())
    return DEVICE.device


def is_installed() -> bool:
    """Say whether this process has a pretended device."""
    return bool(DEVICE.type)


def set_hostile(on: bool) -> None:
    """Let whatever may happen late happen late, and raise where nothing orders two uses of memory."""
    DEVICE.hostile = on


def set_late_asserts(on: bool) -> None:
    """Let an index out of range be reported at the next wait, as kernels do; the device is dead afterwards."""
    DEVICE.late_asserts = on
    DEVICE.death, DEVICE.is_death_known = "", False


def set_float64(on: bool) -> None:
    """Let the device have float64 or, like MPS, none."""
    DEVICE.has_float64 = on


def set_pinned_memory(on: bool) -> None:
    """Let the device copy by itself from pinned memory of the host or, like some that packages add, have none."""
    DEVICE.has_pinned_memory = on


def set_memory_limit(size: int | None) -> None:
    """Let what takes more than this many bytes raise torch.OutOfMemoryError."""
    DEVICE.memory_limit = size


def set_kernel_time(seconds: float) -> None:
    """Let every kernel take its time, during which the host can do something else."""
    DEVICE.kernel_seconds = seconds


def peak_memory() -> int:
    """Return the most that was allocated at a time since the last reset, in bytes."""
    return MEMORY.read_peak()


def reset_peak_memory() -> None:
    MEMORY.reset_peak()


def restore() -> None:
    """Make the device as it was after `install`, whatever a test did; raise what it did wrong with freed memory."""
    MEMORY.sweep()
    DEVICE.restore()
    TIMELINE.forget()
    MEMORY.raise_mistakes()


__all__ = [
    "KINDS",
    "PRETENDED_NAME",
    "UnorderedAccess",
    "Wait",
    "install",
    "is_installed",
    "peak_memory",
    "record_waits",
    "reset_peak_memory",
    "restore",
    "set_float64",
    "set_hostile",
    "set_kernel_time",
    "set_late_asserts",
    "set_memory_limit",
    "set_pinned_memory",
]
