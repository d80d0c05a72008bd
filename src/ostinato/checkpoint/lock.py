"""Lock the directory of a run, so that two runs do not write into it at once.

    with RunLock("out"):
        ...  # a second run in "out" is refused; the error names this process

The lock is a `filelock` on `out/.ostinato-lock.json`, which also names its holder. The operating system frees it when
its process ends. Three cases need more than that:

1. A file system without locks, or one that loses them: the process named in the file is looked up by pid and start
   time, since pids are reused.
2. A holder on another machine, which cannot be looked up: it touches the file while it runs (`refresh`). Untouched
   for ten minutes, it is gone. Otherwise the file is watched for `patience` seconds, and the lock is taken over unless
   the file is touched. A job that was killed and restarted elsewhere waits a minute at most and is not refused.
3. A directory that cannot be locked at all: that is reported, and the run continues.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from pathlib import Path
from types import TracebackType

from filelock import lock_descriptor

from ..core.errors import ConfigError
from ..core.notices import note, note_once, warn
from .file_names import LOCK_NAME
from .lock_holder import Holder, HolderState

REFRESH_INTERVAL = 10.0  # seconds between two touches of the file, at least
STALE_AFTER = 600.0  # seconds without a touch, after which a holder that cannot be looked up is gone
PATIENCE = 60.0  # seconds to watch a file that was touched more recently

_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_MAX_TRIES = 100  # a run that ends removes the file, perhaps just before it is locked here
_POLL_INTERVAL = 0.5  # seconds between two checks of a file that is watched

_locks: dict[str, RunLock] = {}  # of this process, by directory, also where the file system has no locks


class RunLock:
    """A lock that makes a run the only one in a directory. Only the main process of a run takes it.

    Args:
        directory: the directory of the run; created if it does not exist.
        patience: seconds to wait for a sign of life from a holder on another machine.

    >>> with RunLock("out") as lock:  # doctest: +SKIP
    ...     lock.refresh()  # from time to time
    """

    def __init__(self, directory: str | Path, *, patience: float = PATIENCE) -> None:
        self.directory = Path(directory)
        self.path = self.directory / LOCK_NAME
        self._patience = patience
        self._key: str | None = None  # in _locks
        self._descriptor: int | None = None
        self._is_locked = False  # by the operating system
        self._holder: Holder | None = None  # as written to the file
        self._next_refresh = 0.0

    @property
    def held(self) -> bool:
        """Whether this is certainly the only run in the directory; False also where no lock is available."""
        return self._is_locked and self._holder is not None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            ConfigError: another run holds it.
        """
        with contextlib.suppress(OSError):  # creating the lock file fails for the same reason, and reports it
            self.directory.mkdir(parents=True, exist_ok=True)
        key = _identify(self.directory)
        if self._key is not None or _locks.setdefault(key, self) is not self:  # atomic, so threads cannot interleave
            why = "this process is already training there, with this Trainer or another one"
            raise _build_lock_error(self.path, why, is_own_process=True)
        self._key = key
        try:
            self._acquire_file()
        except BaseException:
            self.release()
            raise
        self._next_refresh = time.monotonic() + REFRESH_INTERVAL

    def release(self) -> None:
        """Remove the lock file and unlock it. Do nothing if the lock is not held, or in a forked child."""
        if self._holder is not None and Holder.read(self.path) == self._holder:
            self._remove_file()  # while locked: the next process to lock it sees that it was removed
        self._close_file()
        if self._key is not None:
            _locks.pop(self._key, None)
        self._key = None

    def refresh(self) -> None:
        """Show other machines that this run is alive. Most calls only read the clock."""
        now = time.monotonic()
        if now < self._next_refresh or self._holder is None:
            return
        self._next_refresh = now + REFRESH_INTERVAL
        if (other := Holder.read(self.path)) not in (None, self._holder):
            self._holder = None
            warn(f"another run has started in {self.directory}: {_describe_run(other)}")
            return
        try:
            os.utime(self.path)
        except OSError as error:
            note_once(f"{self.path} cannot be touched ({error}): runs on other machines may consider this one gone")

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _acquire_file(self) -> None:
        """Take the lock, raise if another run has it, or report that the directory cannot be locked."""
        watch = _Watch(self.path, self._patience)
        for _ in range(_MAX_TRIES + int(self._patience / _POLL_INTERVAL)):
            try:
                is_free = self._lock_file()
            except OSError as error:
                self._continue_without_lock(error)
                return
            holder = Holder.read(self.path)
            if not _has_name(self.path, self._descriptor):
                continue  # removed by a run that has just ended
            state = self._find_state(holder, watch) if is_free else "alive"
            if state == "alive":
                raise _build_lock_error(self.path, _describe_run(holder))
            if state == "gone":
                if holder is not None:
                    note(f"{self.directory}: {holder}, which was training there, is gone; its lock is taken over")
                self._write_file()
                return
            self._close_file()
            time.sleep(_POLL_INTERVAL)
        self._continue_without_lock(OSError(errno.EAGAIN, "its lock file appears and disappears"))

    def _find_state(self, holder: Holder | None, watch: _Watch) -> HolderState:
        if holder is None:
            return "gone"
        state = holder.find_state(is_unlocked=self._is_locked)
        return watch.find_state(holder) if state == "unknown" else state

    def _lock_file(self) -> bool:
        """Lock the file; return False if another process has locked it, True also where there are no locks."""
        self._close_file()
        self._descriptor = os.open(self.path, _OPEN_FLAGS, 0o666)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, f"{self.path.name} is not a regular file")
        if os.name == "nt":  # a lock there would keep other processes from reading its holder
            return True
        try:
            self._is_locked = lock_descriptor(self._descriptor, blocking=False)
        except OSError:  # the file system has no locks
            return True
        return self._is_locked

    def _close_file(self) -> None:
        """Close the file, which unlocks it unless another process has it open, too."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._is_locked, self._holder = None, False, None

    def _write_file(self) -> None:
        self._holder = Holder.current()
        try:
            self._holder.write(self.path)
        except OSError as error:
            note_once(f"{self.path} could not be written ({error}): another run cannot see who holds the lock")
        if not self._is_locked:
            note_once(f"{self.directory} is on a file system without locks: a second run there may go unnoticed")

    def _remove_file(self) -> None:
        if os.name == "nt":  # where an open file cannot be removed
            self._close_file()
        try:
            self.path.unlink()
        except OSError as error:
            note_once(f"{self.path} could not be removed ({error}); the next run will see that no process holds it")

    def _continue_without_lock(self, error: OSError) -> None:
        """Report that the directory cannot be locked; raise if a run is known to be in it."""
        self._close_file()
        holder = Holder.read(self.path)
        if holder is not None and holder.find_state(is_unlocked=False) == "alive":
            raise _build_lock_error(self.path, _describe_run(holder)) from error
        note_once(f"{self.directory} cannot be locked ({error}): a second run there would go unnoticed")


class _Watch:
    """Watch the file of a holder that cannot be looked up, for signs of life."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._first: tuple[Holder, int] | None = None  # changes whenever the file is touched
        self._since = 0.0

    def find_state(self, holder: Holder) -> HolderState:
        """Return "alive" if the file was touched since the first call, "gone" if it has waited long enough."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return "unknown"
        seen, now = (holder, status.st_mtime_ns), time.monotonic()
        # Clocks of two machines differ, so only a large age means something.
        if time.time() - status.st_mtime >= STALE_AFTER:
            return "gone"
        if self._first is None:
            self._first, self._since = seen, now
            note(f"{_describe_run(holder)}: watching for up to {self._patience:.0f} s whether it is still alive")
        if seen != self._first:
            return "alive"
        return "unknown" if now - self._since < self._patience else "gone"


def _identify(directory: Path) -> str:
    """Return the same text for every path that leads to a directory."""
    try:
        status = os.stat(directory)
    except OSError:
        return os.path.realpath(directory)
    return f"{status.st_dev}:{status.st_ino}"


def _has_name(path: Path, descriptor: int | None) -> bool:
    """Return whether an open file still has this name."""
    try:
        return descriptor is not None and os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _close_parent_locks() -> None:
    """Close the files of the parent's locks in a forked child, which must neither free nor prolong them."""
    for lock in _locks.values():
        lock._close_file()
        lock._key = None
    _locks.clear()


if os.name == "posix":
    os.register_at_fork(after_in_child=_close_parent_locks)


def _describe_run(holder: Holder | None) -> str:
    return f"{holder} is training there" if holder is not None else "another process has just started to train there"


def _build_lock_error(path: Path, why: str, *, is_own_process: bool = False) -> ConfigError:
    fix = "wait until it ends, or give this run another output_dir"
    return ConfigError(
        what=f"there is another run in {path.parent}",
        why=why,
        fix=fix if is_own_process else f"{fix}; if it is certainly gone, delete {path.name} there",
    )
