"""The accelerator of this machine: which one, its random streams, its memory, and what it can compute.

torch has one kind of accelerator in a process: cuda (NVIDIA and AMD), xpu, mps, npu, hpu, or one that a package adds.
No other module of this package names a kind, so that what works on one works on all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

CPU = torch.device("cpu")


# Which device --------------------------------------------------------------------------------------------------------


def find_kind() -> str | None:
    """Return the kind of the devices that can be used: "cuda", "xpu", "mps", ...; None if there is none."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None else found.type


def find_missing_kind() -> str | None:
    """Return the kind that torch was built for if there is no such device here."""
    built = torch.accelerator.current_accelerator()
    return built.type if built is not None and find_kind() is None else None


def count_devices() -> int:
    """Return the number of devices that this process sees."""
    return 0 if (kind := find_kind()) is None else torch.get_device_module(kind).device_count()


def choose_device(local_rank: int) -> torch.device:
    """Return the device of the process with this number on its machine: one of those that are there."""
    kind = find_kind()
    if kind is None:
        return CPU
    if kind == "mps":  # a machine has one, and torch writes it without a number
        return torch.device(kind)
    # A launcher may make one device visible to each process: it is number 0 in all of them.
    return torch.device(kind, local_rank % max(1, count_devices()))


def get_current() -> torch.device:
    """Return the device that is meant where a script names none; the CPU without one."""
    kind = find_kind()
    return CPU if kind is None else torch.device(kind, torch.accelerator.current_device_index())


def set_current(device: torch.device) -> None:
    """Make a device the one that is meant where a script names none (`model.to("cuda")`). Nothing for a CPU."""
    choose = _find(device, "set_device")
    if choose is not None and device.index is not None:
        choose(device)


def is_accelerator(device: torch.device) -> bool:
    return device.type not in ("cpu", "meta")


def describe_device(device: torch.device) -> dict[str, Any]:
    """Return the name of a device and its memory in bytes, as far as torch knows them."""
    found: dict[str, Any] = {}
    if (name := get_name(device)) is not None:
        found["device_name"] = name
    read = _find(device, "get_device_properties")
    total = getattr(read(device), "total_memory", None) if read is not None else None
    if total is not None:
        found["device_memory"] = total
    software = "hip" if device.type == "cuda" and torch.version.hip else device.type
    if (version := getattr(torch.version, software, None)) is not None:
        found[software] = version
    return found


def get_name(device: torch.device) -> str | None:
    """Return the name of the product, such as "NVIDIA A100-SXM4-80GB"; None if torch does not know it."""
    read = _find(device, "get_device_name")
    return None if read is None else str(read(device))


# Random streams ------------------------------------------------------------------------------------------------------


def read_streams() -> dict[str, list[torch.Tensor]]:
    """Return the states of the random streams of all devices, by kind; empty before a device is used."""
    kind = find_kind()
    if kind is None or not _is_in_use(kind):
        return {}
    return {kind: [read_stream(torch.device(kind, number)) for number in range(count_devices())]}


def write_streams(streams: Mapping[str, list[torch.Tensor]]) -> None:
    """Set the states of the random streams of devices, in the order of their numbers."""
    for kind, states in streams.items():
        for number, state in enumerate(states):
            write_stream(torch.device(kind, number), state)


def read_stream(device: torch.device) -> torch.Tensor:
    """Return the state of the random stream of one device."""
    return torch.get_device_module(device.type).get_rng_state(device)


def write_stream(device: torch.device, state: torch.Tensor) -> None:
    """Set the state of the random stream of one device."""
    torch.get_device_module(device.type).set_rng_state(state, device)


def _is_in_use(kind: str) -> bool:
    """Return whether the devices have been used. Reading a stream would begin that, which a forked worker must not."""
    module = torch.get_device_module(kind)
    is_forked = getattr(module, "_is_in_bad_fork", None)
    is_initialized = getattr(module, "is_initialized", None)
    return not (is_forked is not None and is_forked()) and (is_initialized is None or bool(is_initialized()))


# Memory --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of tensors on a device: now, and at most since the last reset (None if torch does not count that)."""

    allocated: int
    peak: int | None


def read_memory(device: torch.device) -> DeviceMemory | None:
    """Return the memory of tensors on a device; None for a CPU."""
    if not is_accelerator(device):
        return None
    if not _is_in_use(device.type):
        return DeviceMemory(0, 0)
    if device.type == "mps":
        return DeviceMemory(torch.mps.current_allocated_memory(), None)
    allocated, peak = _find(device, "memory_allocated"), _find(device, "max_memory_allocated")
    return None if allocated is None else DeviceMemory(allocated(device), None if peak is None else peak(device))


def reset_peak_memory(device: torch.device) -> None:
    """Begin a new maximum of `read_memory`."""
    if is_accelerator(device) and _is_in_use(device.type) and (reset := _find(device, "reset_peak_memory_stats")):
        reset(device)


def empty_cache(device: torch.device) -> None:
    """Return memory that torch holds for later tensors to a device, for other programs or other sizes.

    >>> empty_cache(torch.device("cpu"))
    """
    if (release := _find(device, "empty_cache")) is not None:
        release()


def can_pin_memory() -> bool:
    """Return whether batches can be put into memory from which the device copies by itself."""
    if find_kind() in (None, "mps"):
        return False
    try:
        torch.empty(1).pin_memory()
    except RuntimeError:  # the package that adds the device has no such memory
        return False
    return True


# Number formats ------------------------------------------------------------------------------------------------------


def supports_bf16(device: torch.device) -> bool:
    """Return whether a device computes in bfloat16. One that emulates it, slowly, does not."""
    ask = _find(device, "is_bf16_supported")
    if ask is not None:
        return _ask_without_emulation(ask)
    try:
        torch.ones(1, dtype=torch.bfloat16, device=device).add_(1)
    except (RuntimeError, TypeError):
        return False
    return True


def _ask_without_emulation(ask: Any) -> bool:
    try:
        return bool(ask(including_emulation=False))
    except TypeError:  # a package's own function, which emulates nothing
        return bool(ask())


def supports_tf32(device: torch.device) -> bool:
    """Return whether a device can multiply float32 matrices in TensorFloat-32."""
    if device.type == "xpu":
        return torch.xpu.is_tf32_supported()
    if device.type != "cuda":
        return False
    return bool(torch.version.hip) or torch.cuda.get_device_capability(device) >= (8, 0)


def set_tf32(device: torch.device, *, enabled: bool) -> None:
    """Let a device that supports TensorFloat-32 multiply float32 matrices in it, or forbid it; nothing for others."""
    if not supports_tf32(device):
        return
    if device.type == "xpu":
        torch.backends.mkldnn.allow_tf32 = enabled  # type: ignore[assignment]
        return
    # These set `fp32_precision` as well. Set alone, that makes torch's compiler fail, which reads the older setting.
    torch.backends.cuda.matmul.allow_tf32 = enabled
    torch.backends.cudnn.allow_tf32 = enabled  # type: ignore[assignment]


def uses_tf32(device: torch.device) -> bool:
    """Return whether float32 matrices are multiplied in a coarser format on this device."""
    if device.type == "xpu":
        return bool(torch.backends.mkldnn.allow_tf32)
    if device.type != "cuda":
        return False
    return torch.backends.cuda.matmul.fp32_precision not in ("ieee", "none")


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all that it was given; what it reports late is raised here."""
    if (wait := _find(device, "synchronize")) is not None:
        wait()


# Failures ------------------------------------------------------------------------------------------------------------

_FAILURE_WORDS = ("device-side assert", "illegal memory access", "misaligned address", "unspecified launch failure")


def has_failed(error: BaseException) -> bool:
    """Return whether a device reports that it has failed. It does so late, and computes nothing more.

    >>> has_failed(RuntimeError("CUDA error: device-side assert triggered")), has_failed(IndexError("out of range"))
    (True, False)
    """
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FAILURE_WORDS)


def follows_failure(error: BaseException | None) -> bool:
    """Return whether an error was raised because, or while, a device reported that it has failed."""
    while error is not None and not has_failed(error):
        error = error.__cause__ or error.__context__
    return error is not None


# How torch is asked --------------------------------------------------------------------------------------------------


def _find(device: torch.device, name: str) -> Any:
    """Return a function of the module that torch has for a kind of device, as `torch.cuda`; None if it has none."""
    if not is_accelerator(device):
        return None
    return getattr(torch.get_device_module(device.type), name, None)
