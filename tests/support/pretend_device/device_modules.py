"""What Python sees of a device: `torch.cuda` or a module of its own, `torch.accelerator`, pinned memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils._device import _device_constructors

from tests.support.pretend_device import device_generators as generators
from tests.support.pretend_device import device_queue as queue
from tests.support.pretend_device.device_memory import MEMORY, PINNED, TOTAL
from tests.support.pretend_device.device_queue import TIMELINE
from tests.support.pretend_device.device_settings import DEVICE

NAME = "Pretended device"
PROPERTIES = SimpleNamespace(
    name=NAME,
    major=8,
    minor=0,
    total_memory=TOTAL,
    multi_processor_count=1,
    warp_size=32,
    gcnArchName="",
    uuid="0",
    L2_cache_size=1 << 20,
    is_integrated=0,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=1 << 17,
    shared_memory_per_multiprocessor=1 << 17,
)
FACTORIES = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like")
FACTORIES += ("tensor", "rand", "randn", "arange")


def set_device(device: Any) -> None:
    if get_index(device) != 0:
        raise RuntimeError(
            f"{DEVICE.type.upper()} error: invalid device ordinal: there is one device, {DEVICE.device}"
        )


def get_index(device: Any) -> int:
    if device is None or isinstance(device, int):
        return device or 0
    return torch.device(device).index or 0


def synchronize(device: Any = None) -> None:
    TIMELINE.wait_for_all("synchronize")


def memory_stats(device: Any = None) -> dict[str, int]:
    return {"allocated_bytes.all.current": MEMORY.read_allocated(), "allocated_bytes.all.peak": MEMORY.read_peak()}


def memory_info(device: Any = None) -> tuple[int, int]:
    total = DEVICE.memory_limit or TOTAL
    return total - MEMORY.read_allocated(), total


def check_sync_mode(mode: Any) -> None:
    raise NotImplementedError("use record_waits: a pretended device writes down where the host waits")


MEMORY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "memory_allocated": MEMORY.read_allocated,
    "max_memory_allocated": MEMORY.read_peak,
    "memory_reserved": MEMORY.read_allocated,
    "max_memory_reserved": MEMORY.read_peak,
    "reset_peak_memory_stats": MEMORY.reset_peak,
    "reset_accumulated_memory_stats": MEMORY.reset_peak,
    "memory_stats": memory_stats,
    "empty_cache": lambda: None,
}
DEVICE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "init": lambda: None,
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "_is_in_bad_fork": lambda: DEVICE.is_forked,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": set_device,
    "_exchange_device": lambda index: 0,
    "_maybe_exchange_device": lambda index: 0,
    "can_device_access_peer": lambda one, other: False,
    "synchronize": synchronize,
    "set_sync_debug_mode": check_sync_mode,
    "get_device_name": lambda device=None: NAME,
    "get_device_capability": lambda device=None: (8, 0),
    "get_device_properties": lambda device=None: PROPERTIES,
    "get_arch_list": lambda: ["sm_80"],
    "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_current_stream_capturing": lambda: False,
    "ipc_collect": lambda: None,
    "mem_get_info": memory_info,
    "manual_seed": generators.manual_seed,
    "manual_seed_all": generators.manual_seed,
    "seed": generators.DEFAULT_GENERATOR.seed,
    "seed_all": generators.DEFAULT_GENERATOR.seed,
    "initial_seed": generators.DEFAULT_GENERATOR.initial_seed,
    "get_rng_state": generators.get_rng_state,
    "set_rng_state": generators.set_rng_state,
    "get_rng_state_all": generators.get_rng_state_all,
    "set_rng_state_all": generators.set_rng_state_all,
    "Stream": queue.Stream,
    "Event": queue.Event,
    "stream": queue.StreamContext,
    "StreamContext": queue.StreamContext,
    "current_stream": queue.current_stream,
    "default_stream": queue.default_stream,
    "set_stream": queue.set_stream,
    **MEMORY_FUNCTIONS,
}
ACCELERATOR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_accelerator": lambda check_available=False: torch.device(DEVICE.type),
    "current_device_index": lambda: 0,
    "current_device_idx": lambda: 0,
    "set_device_index": set_device,
    "set_device_idx": set_device,
    "device_index": lambda index: contextlib.nullcontext(),
    "synchronize": synchronize,
    "current_stream": lambda device=None: queue.current_stream(device),  # not the function of `torch.cuda` to dynamo
    "set_stream": queue.set_stream,
    "get_memory_info": memory_info,
    **MEMORY_FUNCTIONS,
}


def make_module(name: str) -> ModuleType:
    """Return `torch.<name>`."""
    module = ModuleType(f"torch.{name}")
    _fill(module, {**DEVICE_FUNCTIONS, "device": contextlib.nullcontext})
    module._initialized = True  # type: ignore[attr-defined] # what recomputes a forward pass asks before it keeps states
    module.default_generators = (generators.DEFAULT_GENERATOR,)  # type: ignore[attr-defined]
    return module


def fill_cuda() -> None:
    """Let `torch.cuda` speak of the device."""
    _fill(torch.cuda, DEVICE_FUNCTIONS)
    for module in (torch.cuda.random, torch.cuda.memory, torch.cuda.streams):
        _fill(module, {name: one for name, one in DEVICE_FUNCTIONS.items() if name in vars(module)})
    torch.cuda.default_generators = (generators.DEFAULT_GENERATOR,)
    torch.cuda._initialized = True
    torch.backends.cuda.is_built = lambda: True
    if torch.distributed.is_available():  # DDP would read a clock of CUDA that is not built
        torch.distributed.Logger.set_runtime_stats_and_log = lambda self: None


def replace_functions() -> None:
    """Let what is the same for every kind of device speak of this one."""
    _fill(torch.accelerator, ACCELERATOR_FUNCTIONS)
    _fill(torch.accelerator.memory, MEMORY_FUNCTIONS)
    for name, kind in {"Generator": generators.Generator, "Stream": queue.Stream, "Event": queue.Event}.items():
        setattr(torch, name, kind)
    torch.Tensor.pin_memory = lambda self, device=None: PINNED.copy(self)
    torch.Tensor.is_pinned = lambda self, device=None: PINNED.has(self)
    _device_constructors()  # `with torch.device(...)` remembers the functions that it acts on: those of C++
    for name in FACTORIES:
        setattr(torch, name, _pin_results(getattr(torch, name)))
    _replace_storage_copies()
    os.register_at_fork(after_in_child=_forbid)


def _fill(module: ModuleType, functions: dict[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        setattr(module, name, function)


def _forbid() -> None:
    DEVICE.is_forked = True


def _pin_results(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """C++ would ask an allocator that is not there for pinned memory."""

    @wraps(make)
    def make_pinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return PINNED.add(make(*args, **kwargs)) if pin_memory else make(*args, **kwargs)

    return make_pinned


def _replace_storage_copies() -> None:
    """C++ has no memory of the device for the copies of storages that `copy.deepcopy` and `torch.load` ask for."""
    base = torch.storage._StorageBase
    clone_host, move_host = base.clone, base.to

    def adopt_bytes(storage: Any) -> Any:
        return MEMORY.adopt(torch.empty(0, dtype=torch.uint8).set_(storage.clone())).untyped_storage()

    def clone(self: Any) -> Any:
        if self.device.type != DEVICE.type:
            return clone_host(self)
        buffer = MEMORY.buffers.get(self.data_ptr())
        return adopt_bytes(buffer.host if buffer else torch.UntypedStorage(0))

    def to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
        if self.device.type == "cpu" and torch.device(device).type == DEVICE.type:
            return adopt_bytes(self)
        return move_host(self, device=device, non_blocking=non_blocking)

    base.clone, base.to = clone, to  # type: ignore[method-assign]
