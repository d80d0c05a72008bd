"""Memory of the device: host buffers behind addresses that cannot be read, and pinned memory of the host."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tests.support.pretend_device.device_queue import TIMELINE, UnorderedAccess, Use
from tests.support.pretend_device.device_settings import DEVICE
from tests.support.pretend_device.torch_internals import make_tensor, seat_tensor

BLOCK = 512  # allocators of devices hand out multiples of this
FIRST_ADDRESS = 1 << 56  # beyond what any process has: whoever reads there crashes
TOTAL = 80 << 30  # bytes that the device says it has
SWEEP_EVERY = 200  # allocations
DOUBLE = (torch.float64, torch.complex128)


class Buffer:
    """The numbers behind one storage of the device."""

    __slots__ = ("host", "kept_for", "owner", "reference", "size", "use")

    def __init__(self, storage: torch.UntypedStorage, host: torch.UntypedStorage, size: int) -> None:
        self.reference = StorageWeakRef(storage)
        self.host = host
        self.size = size
        self.owner = TIMELINE.current  # the stream whose next allocation may get the same memory
        self.kept_for: set[int] = set()  # streams named by record_stream
        self.use = Use()


class DeviceMemory:
    """All buffers, by address, and how much they take."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.buffers: dict[int, Buffer] = {}
        self.allocated = self.peak = 0
        self.allocations = 0
        self.next_address = FIRST_ADDRESS
        self.mistakes: list[str] = []
        TIMELINE.before_merge.append(
            self.sweep
        )  # before a stream learns more: what it knew when memory was freed counts

    def adopt(self, host: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the device whose numbers are those of a host tensor, which nobody else may use."""
        if not DEVICE.has_float64 and host.dtype in DOUBLE:
            raise TypeError(f"Cannot convert a tensor to {host.dtype}: {DEVICE.type} has no float64. Use float32.")
        with self.lock:
            storage = self._allocate(host.untyped_storage())
            return make_tensor(storage, host)

    def reseat(self, tensor: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        """Let a tensor of the device have the numbers and the shape of a host tensor."""
        return seat_tensor(tensor, self.adopt(host).untyped_storage(), host)

    def find(self, tensor: torch.Tensor) -> Buffer | None:
        return self.buffers.get(tensor.untyped_storage().data_ptr())

    def has(self, host: torch.Tensor) -> bool:
        """Say whether a tensor of the host is a view of the device's numbers: C++ keeps those of collectives."""
        storage = host.untyped_storage()._cdata
        return any(buffer.host._cdata == storage for buffer in list(self.buffers.values()))

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a host tensor that shares the numbers of a tensor of the device."""
        buffer = self.find(tensor)
        if buffer is None:
            if tensor.numel():
                raise RuntimeError(f"nothing was allocated for {tuple(tensor.shape)} {tensor.dtype} on {DEVICE.type}")
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        with torch.no_grad():
            host = torch.empty(0, dtype=tensor.dtype)
            host.set_(buffer.host, tensor.storage_offset(), tensor.size(), tensor.stride())
        host = host.conj() if tensor.is_conj() else host
        return host._neg_view() if tensor.is_neg() else host

    def sweep(self) -> None:
        """Forget what is no longer referred to."""
        with self.lock:
            dead = [address for address, buffer in self.buffers.items() if buffer.reference.expired()]
            for address in dead:
                buffer = self.buffers.pop(address)
                self.allocated -= buffer.size
                self._check_free(buffer)

    def raise_mistakes(self) -> None:
        """Raise what was found when memory was freed, where nobody could be told."""
        mistakes, self.mistakes = self.mistakes, []
        if mistakes:
            raise UnorderedAccess("\n".join(mistakes))

    def read_allocated(self, device: Any = None) -> int:
        self.sweep()
        return self.allocated

    def read_peak(self, device: Any = None) -> int:
        self.sweep()
        self.peak = max(self.peak, self.allocated)
        return self.peak

    def reset_peak(self, device: Any = None) -> None:
        self.sweep()
        self.peak = self.allocated

    def _allocate(self, host: torch.UntypedStorage) -> torch.UntypedStorage:
        size = -(-host.nbytes() // BLOCK) * BLOCK
        self.allocations += 1
        if self.allocations % SWEEP_EVERY == 0 or self.allocated + size > (DEVICE.memory_limit or TOTAL):
            self.sweep()
        if self.allocated + size > (DEVICE.memory_limit or TOTAL):
            raise torch.OutOfMemoryError(
                f"{DEVICE.type} out of memory. Tried to allocate {size} bytes; {self.allocated} bytes of "
                f"{DEVICE.memory_limit or TOTAL} are allocated."
            )
        address, self.next_address = self.next_address, self.next_address + max(size, BLOCK)
        storage = torch._C._construct_storage_from_data_pointer(address, DEVICE.device, host.nbytes())
        self.buffers[address] = Buffer(storage, host, size)
        self.allocated += size
        if self.allocated > self.peak:
            self.sweep()
            self.peak = max(self.peak, self.allocated)
        return storage

    def _check_free(self, buffer: Buffer) -> None:
        """The stream that allocated memory uses it again at once, unless record_stream named another one."""
        if not DEVICE.hostile:
            return
        others = [use for use in (buffer.use.write, *buffer.use.reads.items()) if use[0] not in buffer.kept_for]
        if not all(TIMELINE.is_after(buffer.owner, use) for use in others):
            self.mistakes.append(
                f"memory of stream {buffer.owner} was freed while another may still use it ({buffer.use.line}): "
                "call tensor.record_stream, or let the first stream wait"
            )


class PinnedMemory:
    """Which storages of the host are pinned."""

    def __init__(self) -> None:
        self.storages: dict[int, StorageWeakRef] = {}

    def has(self, tensor: torch.Tensor) -> bool:
        reference = self.storages.get(tensor.untyped_storage()._cdata)
        return reference is not None and not reference.expired()

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Pin what a tensor of the host uses, and return the tensor."""
        if not DEVICE.has_pinned_memory:
            raise NotImplementedError(f"{DEVICE.type} has no allocator of pinned memory")
        self.storages = {key: one for key, one in self.storages.items() if not one.expired()}
        storage = tensor.untyped_storage()
        self.storages[storage._cdata] = StorageWeakRef(storage)
        return tensor

    def copy(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        """Return the tensor in pinned memory: itself, or a copy."""
        if tensor.device.type != "cpu":
            raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
        if self.has(tensor):
            return tensor
        return self.add(torch.empty_like(tensor)).copy_(tensor)


MEMORY = DeviceMemory()
PINNED = PinnedMemory()
