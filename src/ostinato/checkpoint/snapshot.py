"""Snapshots of the large files of a checkpoint, which are written later.

A snapshot is given the tensors of each `.safetensors` file, as `tensors.write_tensors` is. It copies them into memory
that is kept from save to save, and the next training step may change the originals: a device copies them before it
comes to that step, and the host waits for it once. If training does not continue meanwhile (or the copy would
not fit into memory), it writes them immediately.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch

from ..core.host_copy import Arrival
from ..core.notices import note_once
from . import io
from .disk import Sealed, disk
from .space import format_size
from .tensor_file import PIECE, TensorFile, allocate, split_in_pieces

_RESERVED_SHARE = 0.1  # share of the free memory that is left to other programs


class SnapshotMemory:
    """Memory for the files of a checkpoint, allocated once and used by every save.

    The first access to new memory takes several times as long as a copy into existing memory: call `reserve`, from
    another thread, before the first save.
    """

    def __init__(self) -> None:
        self.is_pinned = False  # so that a device fills it while the host goes on
        self._blocks: list[torch.Tensor] = []  # bytes
        self._taken: list[int] = []  # of each block, by the snapshot that is being taken

    @property
    def size(self) -> int:
        """The allocated bytes."""
        return sum(map(len, self._blocks))

    def reserve(self, size: int) -> None:
        """Allocate so much memory in advance, if it fits beside what is in use."""
        if self._blocks or not _has_room(size):
            return
        self._add(size)
        for block in self._blocks:
            for begin in range(0, len(block), PIECE):  # torch lets other threads run meanwhile
                block[begin : begin + PIECE].zero_()

    def begin(self) -> None:
        """Start a new snapshot: everything that the last one held is on the disk."""
        self._taken = [0] * len(self._blocks)

    def take(self, size: int) -> torch.Tensor | None:
        """Return memory for a file, at a page boundary; None if it would not fit beside what is in use."""
        size += -size % mmap.PAGESIZE
        room = [number for number, block in enumerate(self._blocks) if len(block) - self._taken[number] >= size]
        if not room:
            if not _has_room(size) or not self._add(size):
                return None
            room = [len(self._blocks) - 1]
        begin = self._taken[room[0]]
        self._taken[room[0]] += size
        return self._blocks[room[0]][begin : begin + size]

    def clear(self) -> None:
        """Release the memory."""
        self._blocks, self._taken = [], []

    def _add(self, size: int) -> bool:
        size += -size % mmap.PAGESIZE
        try:
            block = _allocate_pinned(size) if self.is_pinned else None
            self._blocks.append(torch.frombuffer(allocate(size), dtype=torch.uint8) if block is None else block)
        except (OSError, MemoryError):
            return False
        self._taken.append(0)
        return True


def _allocate_pinned(size: int) -> torch.Tensor | None:
    """Return pinned memory; None if there is none, or not enough room for the power of two that torch takes."""
    if not _has_room(1 << (size - 1).bit_length()):
        return None
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return None


def _has_room(size: int) -> bool:
    free = find_free_memory()
    return free is None or size <= free * (1 - _RESERVED_SHARE)


class Snapshot:
    """The tensor files of one checkpoint. Call it with a path and tensors; later, `write` what it has kept.

    >>> snapshot = Snapshot(SnapshotMemory())  # doctest: +SKIP
    >>> snapshot(Path("out/.checkpoint-20.partial/model.safetensors"), model.state_dict())  # doctest: +SKIP
    >>> snapshot.write()  # doctest: +SKIP
    """

    def __init__(self, memory: SnapshotMemory | None) -> None:
        self._memory = memory  # None: everything is written immediately
        self._kept: dict[Path, memoryview] = {}
        self._arrivals: list[Arrival] = []  # of what devices copy
        self.sealed: dict[Path, Sealed] = {}
        self.size = 0
        self.written = 0  # bytes of it that are on the disk
        if memory is not None:
            memory.begin()

    def __call__(
        self, path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Add a file: keep a copy of it, or write it."""
        path = Path(path)
        file = TensorFile.of(tensors, metadata)
        self.size += file.size
        standing = self._memory.take(file.size) if self._memory is not None else None
        if standing is not None:
            with torch.no_grad():
                self._kept[path] = file.copy_into(standing)
            devices = {tensor.device for _, tensor in file.places if not tensor.is_cpu}
            self._arrivals += map(Arrival, devices)
            return
        if self._memory is not None:
            note_once(
                f"{path.name} is written while training waits: a copy of it needs {format_size(file.size)} of memory, "
                "which is not available",
                key="no memory for a snapshot",
            )
        bounce = allocate(min(PIECE, file.size))
        try:
            self.sealed[path] = disk().write(path, file.pages(bounce), direct=True)
        except OSError as error:
            raise io.build_write_error(path, error) from error

    def receive(self) -> None:
        """Wait, once for all files, until devices have copied what was kept.

        They cannot begin the next step before, and it may be one that ends them: this one would be lost with it.
        """
        while self._arrivals:
            self._arrivals.pop().wait()

    def write(self) -> None:
        """Write to the disk what was kept."""
        self.receive()
        for path, content in self._kept.items():
            try:
                self.sealed[path] = disk().write(path, self._count_written(split_in_pieces(content)), direct=True)
            except OSError as error:
                raise io.build_write_error(path, error) from error
        self._kept.clear()  # the memory is free for the next snapshot

    def _count_written(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        for piece in pieces:
            yield piece
            self.written += len(piece)


def find_free_memory() -> int | None:
    """Return the bytes that can be allocated without evicting any, here and in the control group; None if unknown."""
    known = [_read_available(), _read_group_rest()]
    return min((number for number in known if number is not None), default=None)


def _read_available() -> int | None:
    with suppress(OSError, ValueError, StopIteration, IndexError):
        with open("/proc/meminfo", "rb") as file:
            line = next(line for line in file if line.startswith(b"MemAvailable:"))
        return int(line.split()[1]) * 1024
    return None


def _read_group_rest(root: str = "/sys/fs/cgroup") -> int | None:
    """Return what a container may still allocate. Its page cache counts as used there, and is released on demand."""
    with suppress(OSError, ValueError, StopIteration, IndexError):
        with open("/proc/self/cgroup", encoding="ascii") as file:
            inner = next(line.rstrip("\n")[3:] for line in file if line.startswith("0::"))
        directory = next(d for d in (f"{root}{inner}", root) if os.path.exists(f"{d}/memory.max"))
        limit = Path(directory, "memory.max").read_text(encoding="ascii").strip()
        if limit == "max":
            return None
        used = int(Path(directory, "memory.current").read_text(encoding="ascii"))
        numbers = dict(line.split() for line in Path(directory, "memory.stat").read_text("ascii").splitlines())
        return int(limit) - used + int(numbers.get("file", 0)) - int(numbers.get("shmem", 0))
    return None
