"""The operations that decide what is left of a save after a crash, in one place.

Everything that has to survive a power cut goes through `disk()`: files are flushed to the disk, directories get and
lose their names. To observe these operations, slow them down or make them fail, replace it with another `Disk`
(`using`).
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows, which has no direct writes of this kind either
    fcntl = None

_CHUNK = 2**20
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECT = getattr(os, "O_DIRECT", 0) if fcntl is not None else 0
_BLOCK = max(mmap.PAGESIZE, 4096)  # addresses, offsets and lengths of direct writes are multiples of it

# The errors of a disk that cannot take a file. Any other error is a mistake elsewhere.
_DISK_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EACCES", "EPERM", "ESTALE", "ETIMEDOUT", "EREMOTEIO", "ENODEV",
        "ENXIO", "EBUSY", "EMFILE", "ENFILE", "EHOSTDOWN", "EHOSTUNREACH", "ENOTCONN", "ECONNRESET", "ENOMEDIUM",
    )
    if name in vars(errno)
)  # fmt: skip


class DiskError(CheckpointError):
    """A checkpoint that the disk refused: no space, an I/O error, no permission to write."""


def is_disk_failure(error: BaseException | None) -> bool:
    """Return whether a save failed because of the disk, so that the next one may succeed.

    >>> is_disk_failure(OSError(errno.ENOSPC, "No space left on device"))
    True
    """
    if isinstance(error, DiskError):
        return error.errno is None or error.errno in _DISK_ERRNOS
    if isinstance(error, CheckpointError):
        return False
    if isinstance(error, OSError):
        return error.errno in _DISK_ERRNOS
    # safetensors, where a model writes its weights itself, reports it only in the message.
    return type(error).__name__ == "SafetensorError" and "(os error" in str(error)


@dataclass(frozen=True)
class Sealed:
    """A file that is on the disk: what the manifest says of it, and a mark that shows whether it was changed since."""

    size: int
    sha256: str
    mark: tuple[int, ...]

    def is_unchanged(self, path: Path) -> bool:
        return _read_mark(os.lstat(path)) == self.mark


class Disk:
    """Files and names that survive a power cut once a method has returned."""

    def write(self, path: Path, content: Iterable[bytes | memoryview], *, direct: bool = False) -> Sealed:
        """Write a new file and flush it to the disk, hashing on the way.

        `direct` bypasses the page cache, which takes most of the time of writing a large file: the pieces of
        `content` then begin at page boundaries and are, except for the last, whole pages long.
        """
        digest, size = hashlib.sha256(), 0
        descriptor, direct = _create(path, direct=direct)
        try:
            for piece in content:
                piece = memoryview(piece).cast("B")
                digest.update(piece)
                size += len(piece)
                direct = _write_all(descriptor, piece, direct=direct)
            os.fsync(descriptor)
            return Sealed(size, digest.hexdigest(), _read_mark(os.fstat(descriptor)))
        finally:
            os.close(descriptor)

    def seal(self, path: Path, descriptor: int) -> Sealed:
        """Flush a file that was written elsewhere to the disk, and read it for its hash."""
        os.fsync(descriptor)
        status = os.fstat(descriptor)
        return Sealed(status.st_size, hash_rest(descriptor), _read_mark(status))

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True)

    def sync_directory(self, path: Path) -> None:
        """Flush the entries of a directory (names, renames) to the disk."""
        if os.name == "nt":  # directories cannot be opened there
            return
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        """Delete the path if it exists; of a link, delete the link."""
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)


_disk = Disk()


def disk() -> Disk:
    """Return the disk that checkpoints are written to."""
    return _disk


@contextmanager
def using(other: Disk) -> Iterator[None]:
    """Replace the disk, for all threads.

    >>> with using(Disk()):  # doctest: +SKIP
    ...     trainer.train()
    """
    global _disk
    before, _disk = _disk, other
    try:
        yield
    finally:
        _disk = before


def hash_rest(descriptor: int) -> str:
    """Return the hash of what is left to read."""
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, _CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _read_mark(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _create(path: Path, *, direct: bool) -> tuple[int, bool]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
    if direct and _DIRECT:
        try:
            return os.open(path, flags | _DIRECT, 0o666), True
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            path.unlink(missing_ok=True)  # some file systems refuse only after they have created the file
    return os.open(path, flags, 0o666), False


def _write_all(descriptor: int, piece: memoryview, *, direct: bool) -> bool:
    """Write all of a piece; return whether what follows may still be written directly."""
    while len(piece):
        if direct and len(piece) < _BLOCK:  # the end of the file
            direct = _use_page_cache(descriptor)
        whole = len(piece) - len(piece) % _BLOCK if direct else len(piece)
        try:
            written = os.write(descriptor, piece[:whole])
        except OSError as error:
            if not direct or error.errno != errno.EINVAL:
                raise
            direct = _use_page_cache(descriptor)  # the file system requires an alignment other than that of pages
            continue
        if direct and written % _BLOCK:
            direct = _use_page_cache(descriptor)
        piece = piece[written:]
    return direct


def _use_page_cache(descriptor: int) -> bool:
    assert fcntl is not None
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_DIRECT)
    return False
