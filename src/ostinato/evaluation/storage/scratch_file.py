"""Temporary files for data that is too large for memory: without a name, written from front to back, then mapped.

The file is unlinked as it is created, so that nothing is left behind however the process ends; it exists as long as
the arrays on it. Pages that were written or read are released: by the process, which then holds a few megabytes of a
file of any size, and, unless the disk is slow, from the machine's page cache, which has better uses (and whose fresh
pages can cost more time than the disk).
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import OstinatoError

BLOCK = 4 * 2**20  # bytes that are processed at a time

_WINDOW = 16 * BLOCK  # before the end of the file: what the disk may still be writing
_SLOW = 100e6  # bytes per second: below, reading again costs more than keeping
_FAULT = 2**16  # reading a page also loads its neighbours
_advise = getattr(os, "posix_fadvise", None)
_NOT_NEEDED = getattr(mmap, "MADV_DONTNEED", None)


class SpillError(OstinatoError, OSError):
    """A lack of disk space for what an evaluation keeps."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


@dataclass
class Scratch:
    """The number of bytes that may stay in memory, and the directories for the rest."""

    memory: int | None = None
    directories: tuple[str, ...] = ()
    disk_speed: float | None = field(default=None, compare=False)  # of the disk, in bytes per second, once it is known

    def fits(self, size: int) -> bool:
        return self.memory is None or size <= self.memory

    def choose_directory(self, size: int) -> ScratchDirectory:
        """Return the directory for a file of `size` bytes: on a disk with room for it, if there is one."""
        return choose_directory([tempfile.gettempdir(), *self.directories, "/var/tmp"], size)


@dataclass(frozen=True)
class ScratchDirectory:
    """A directory for temporary files."""

    directory: str
    free: int
    in_memory: bool


def choose_directory(directories: Sequence[str], size: int) -> ScratchDirectory:
    """Return the first directory on a disk with room; else the disk with most room; else one in memory.

    >>> choose_directory(["no such directory", "."], 10).directory
    '.'
    """
    usable = [name for name in dict.fromkeys(directories) if os.path.isdir(name) and os.access(name, os.W_OK)]
    places = [ScratchDirectory(name, shutil.disk_usage(name).free, _is_memory(name)) for name in usable]
    if not places:
        raise SpillError(
            what="what the evaluation keeps cannot be moved to a file",
            why=f"none of these directories can be written to: {', '.join(dict.fromkeys(directories))}",
            fix="set TMPDIR to a directory on a disk, or eval_memory_mb=None to keep everything in memory",
        )
    disks = [place for place in places if not place.in_memory]
    with_room = (place for place in disks if place.free > size)
    return next(with_room, max(disks or places, key=lambda place: place.free))


def _is_memory(directory: str) -> bool:
    """Return whether files in a directory are kept in memory."""
    device = os.stat(directory).st_dev
    return os.name == "posix" and f"{os.major(device)}:{os.minor(device)}" in _list_memory_devices()


@cache
def _list_memory_devices() -> frozenset[str]:
    """Return the numbers of file systems in memory (Linux lists them; elsewhere temporary files are on disks)."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    kinds = ((line.split(" ", 3)[2], line.partition(" - ")[2].split(" ", 1)[0]) for line in mounts)
    return frozenset(number for number, kind in kinds if kind in ("tmpfs", "ramfs"))


class ScratchFile:
    """A file without a name. First `append`, then `map_memory`, which ends the writing."""

    def __init__(self, scratch: Scratch, expected: int) -> None:
        self.scratch = scratch
        self.size = 0
        self.location = scratch.choose_directory(expected)
        self._file = tempfile.TemporaryFile(dir=self.location.directory, buffering=0)  # noqa: SIM115 (lives as long as we)
        weakref.finalize(self, self._file.close)  # the map, which arrays refer to, has a handle of its own
        self._advised_until = 0  # up to here the system knows that the pages are not needed
        self._map: mmap.mmap | None = None
        self._first = self._last = 0  # addresses
        self._pending: tuple[int, int, int] | None = None  # from, to, bytes: read, and not released yet

    def append(self, array: np.ndarray) -> None:
        """Append the elements of an array."""
        rest = _view_bytes(array)
        while rest:
            try:
                written = os.write(self._file.fileno(), rest)
            except OSError as error:
                raise self._build_error(error, len(rest)) from error
            self.size += written
            rest = rest[written:]
        if self.size - self._advised_until >= 2 * BLOCK:
            self._evict_written()

    def _evict_written(self) -> None:
        """Start to write the end of the file to the disk, and drop from the page cache what has been written."""
        handle, scratch = self._file.fileno(), self.scratch
        if _advise is None:
            return
        if scratch.disk_speed is None:
            started = time.perf_counter()
            os.fdatasync(handle)
            scratch.disk_speed = (self.size - self._advised_until) / max(time.perf_counter() - started, 1e-6)
        if scratch.disk_speed >= _SLOW:
            start = max(0, self._advised_until - _WINDOW)
            _advise(handle, start, self.size - start, os.POSIX_FADV_DONTNEED)
        self._advised_until = self.size

    def _build_error(self, error: OSError, missing: int) -> SpillError:
        refused = SpillError(
            what=f"what the evaluation keeps does not fit under {self.location.directory}",
            why=f"after {format_bytes(self.size)}, {format_bytes(missing)} more could not be written: "
            f"{error.strerror or error}; {format_bytes(shutil.disk_usage(self.location.directory).free)} are free",
            fix="keep less (preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), or "
            "batch_eval_metrics=True), set TMPDIR to a directory with more room, or eval_memory_mb=None to keep "
            "everything in memory",
        )
        refused.errno = error.errno
        return refused

    def map_memory(self) -> mmap.mmap:
        """Return the file as memory. Writes there go to the file; nothing can be appended any more."""
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), self.size)
            self._first = np.frombuffer(self._map, dtype=np.uint8).__array_interface__["data"][0]
            self._last = self._first + self.size
        return self._map

    def holds(self, array: np.ndarray) -> bool:
        """Return whether the elements of an array are in this file."""
        return self._first <= array.__array_interface__["data"][0] < self._last

    def mark_used(self, array: np.ndarray) -> None:
        """Record that elements were read or written; their pages are released before there are many of them."""
        if array.size == 0:
            return
        low, high = _find_bounds(array)
        amount = min(high - low, array.size * _FAULT)
        if self._pending is not None:
            low, high = min(low, self._pending[0]), max(high, self._pending[1])
            amount = min(high - low, amount + self._pending[2])
        self._pending = (low, high, amount) if amount + _FAULT < BLOCK else None
        if self._pending is None:
            self._release_pages(low, high)

    def _release_pages(self, low: int, high: int) -> None:
        if self._map is None or _NOT_NEEDED is None:
            return
        start = max(0, low - self._first) // mmap.PAGESIZE * mmap.PAGESIZE
        end = min(high - self._first, self.size)
        self._map.madvise(_NOT_NEEDED, start, end - start)
        if _advise is not None and self.scratch.disk_speed is not None and self.scratch.disk_speed >= _SLOW:
            start = max(0, start - 2 * BLOCK)  # pages at the boundary of two blocks were in use until now
            _advise(self._file.fileno(), start, end - start, os.POSIX_FADV_DONTNEED)


def _view_bytes(array: np.ndarray) -> memoryview:
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


def _find_bounds(array: np.ndarray) -> tuple[int, int]:
    """Return the first address of an array's elements, and the one after the last."""
    low = high = array.__array_interface__["data"][0]
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return low, high + array.itemsize


def format_bytes(size: float) -> str:
    """Return a number of bytes in readable form.

    >>> format_bytes(2_048_000_000), format_bytes(512)
    ('2.0 GB', '512 bytes')
    """
    for unit, worth in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= worth:
            return f"{size / worth:.1f} {unit}"
    return f"{size:.0f} bytes"
