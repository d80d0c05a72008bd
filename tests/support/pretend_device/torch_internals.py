"""The inside of torch that has to be touched: tensors of a device that is missing, and what C++ asks about it.

A CPU-only torch knows the dispatch keys of every device; only nobody makes tensors that carry them. One such tensor of
each dtype is enough (a template): views of it have its keys, and a view can be given any other storage. The storages
have addresses that nobody may read: the numbers are elsewhere, see `device_memory`.

For CUDA, the template comes through DLPack: a capsule of a host tensor, in which the device is overwritten. C++ asks
an object of hooks whether there is any CUDA: its table of virtual functions is replaced by one that says yes, in
the order of ATen/detail/AcceleratorHooksInterface.h in torch 2.13. For PrivateUse1, torch has functions to
register hooks and guards written in Python; its hooks lack pinned memory, and get the same table.
"""

from __future__ import annotations

import atexit
import ctypes
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.support.pretend_device.device_settings import DEVICE

LIBRARIES = Path(torch.__file__).parent / "lib"
META_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)  # its kernels look at shapes only
HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
KEPT: list[Any] = []  # what C++ refers to has to live as long as the process
DLPACK_CUDA = 2
CUDA_DEVICE_TYPE = 1  # c10::DeviceType::CUDA

# Places in the table of virtual functions, after two destructors.
IS_BUILT, IS_AVAILABLE, HAS_CONTEXT, INIT, DEVICE_COUNT = 2, 3, 4, 5, 6
SET_DEVICE, GET_DEVICE, EXCHANGE_DEVICE, MAYBE_EXCHANGE_DEVICE, IS_PINNED, PINNED_ALLOCATOR = 7, 8, 9, 10, 11, 12
TABLE_LENGTH = 90  # longer than the table


def make_tensor(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the device over `storage`, with the dtype, shape, strides and offset of `like`."""
    blank = torch.ops.aten.as_strided.default.redispatch(META_KEYS, _make_template(like.dtype), [0], [1], 0)
    return seat_tensor(blank, storage, like)


def seat_tensor(tensor: torch.Tensor, storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Let a tensor of the device use another storage, and the shape, strides and offset of `like`."""
    seat = torch.ops.aten.set_.source_Storage_storage_offset
    return seat.redispatch(HOST_KEYS, tensor, storage, like.storage_offset(), like.size(), like.stride())


def make_view(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a view of a tensor of the device, with the dtype, shape, strides and offset of `like`."""
    if like.dtype != base.dtype:
        return make_tensor(base.untyped_storage(), like)
    return torch.ops.aten.as_strided.default.redispatch(
        META_KEYS, base, like.size(), like.stride(), like.storage_offset()
    )


@cache
def _make_template(dtype: torch.dtype) -> torch.Tensor:
    if DEVICE.key == "PrivateUse1":
        return torch._C._acc.create_empty_tensor([1], dtype)
    capsule = torch.empty(1, dtype=dtype).__dlpack__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    after_data = get_pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
    ctypes.c_int32.from_address(after_data).value = DLPACK_CUDA
    return torch._C._from_dlpack(capsule)


# --------------------------------------------------------------------------------------------------------- PrivateUse1


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """What C++ asks about a backend that is written in Python."""

    def is_built(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def has_primary_context(self, device_index: int) -> bool:
        return True


class Guard(torch._C._acc.DeviceGuard):
    """What C++ uses to change devices: there is one."""

    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.PrivateUse1


def announce_backend(name: str, module: ModuleType) -> None:
    """Rename PrivateUse1, and let torch know its device."""
    KEPT.extend([Hooks(), Guard()])
    _setup_privateuseone_for_python_backend(name, backend_module=module, hook=KEPT[0], device_guard=KEPT[1])
    _replace_hooks("_ZN2at6detail19getPrivateUse1HooksEv")


# ---------------------------------------------------------------------------------------------------------------- CUDA


def announce_cuda() -> None:
    """Let the C++ of torch know a CUDA device."""
    _install_guard()
    _replace_hooks("_ZN2at6detail12getCUDAHooksEv")
    if (found := torch._C._accelerator_getAccelerator()) is None or found.type != "cuda":
        raise RuntimeError("this torch does not take the pretended CUDA device for its accelerator")


def _install_guard() -> None:
    """Make torch use its guard that does nothing: it does so where the one of CUDA counts no devices."""
    zero = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda this: 0)
    table = (ctypes.c_void_p * TABLE_LENGTH)(*[_address(zero)] * TABLE_LENGTH)
    guard = ctypes.c_void_p(ctypes.addressof(table))
    KEPT.extend([zero, table, guard])
    libc10 = ctypes.CDLL(str(LIBRARIES / "libc10.so"))
    register = libc10._ZN3c104impl24DeviceGuardImplRegistrarC1ENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE
    register.argtypes, register.restype = [ctypes.c_void_p, ctypes.c_int8, ctypes.c_void_p], None
    register(ctypes.create_string_buffer(8), CUDA_DEVICE_TYPE, ctypes.addressof(guard))
    torch._C._ensureCUDADeviceGuardSet()


def _replace_hooks(getter: str) -> None:
    """Give the hooks that a function of C++ returns a table of virtual functions that know of one device."""
    answer = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)
    yes, zero = answer(lambda this: 1), answer(lambda this: 0)
    libc10 = ctypes.CDLL(str(LIBRARIES / "libc10.so"))
    host_allocator = ctypes.cast(libc10._ZN3c1015GetCPUAllocatorEv, ctypes.c_void_p).value
    get_hooks = ctypes.CDLL(str(LIBRARIES / "libtorch_cpu.so"))[getter]
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.cast(get_hooks(), ctypes.POINTER(ctypes.c_void_p))
    original = hooks[0]
    functions = ctypes.cast(original, ctypes.POINTER(ctypes.c_void_p))[:TABLE_LENGTH]
    for place in (IS_BUILT, IS_AVAILABLE, HAS_CONTEXT, INIT, DEVICE_COUNT, IS_PINNED):
        functions[place] = _address(yes)
    for place in (SET_DEVICE, GET_DEVICE, EXCHANGE_DEVICE, MAYBE_EXCHANGE_DEVICE):
        functions[place] = _address(zero)
    functions[PINNED_ALLOCATOR] = host_allocator  # what C++ itself pins (DDP) is plain memory, taken for pinned
    table = (ctypes.c_void_p * TABLE_LENGTH)(*functions)
    KEPT.extend([yes, zero, table])
    hooks[0] = ctypes.addressof(table)
    atexit.register(hooks.__setitem__, 0, original)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
