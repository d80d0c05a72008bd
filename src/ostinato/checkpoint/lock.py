"""One run at a time in a directory.

    with RunLock(Path("out")):
        ...  # a second run in "out" is refused, and told the pid of this one

While it is held there is a file, `out/.ostinato-lock.json`, that says who holds it. Whether the holder lives is asked
in this order:

1. The operating system. The file is locked with `fcntl.lockf`. Such a lock is the process's: it goes with the process,
   whatever ends it, and a forked child (a worker of a data loader) neither has it nor keeps it alive, as it would
   with `flock`. On NFS the server knows the locks of all hosts.
2. The process itself. Some file systems keep no locks, and a process that closes any other descriptor of the file
   loses its lock. So the pid in the file is looked up, with the time its process was started, since pids come again.
3. Signs of life. The process of another machine cannot be looked up. A holder touches its file as it goes on (`beat`).
   Not touched for ten minutes: it is gone. Otherwise the file is watched for `patience` seconds; if it is touched,
   the holder lives; if not, it is gone. So a job that was killed and comes back on another machine waits for at most
   a minute, and is not refused.

The lock of a holder that is gone is taken over, which is said. Where no lock can be had (a directory that may not be
written to, a file system without locks), that is said too, and the run goes on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ..core.errors import ConfigError
from ..core.notices import note, note_once, warn
from .file_names import LOCK_NAME

try:
    import fcntl
except ImportError:  # Windows: signs of life decide
    fcntl = None

FORMAT = 1
BEAT = 10.0  # seconds between two signs of life, at least
SILENT = 600.0  # seconds without one, after which a holder that cannot be looked at is gone
PATIENCE = 60.0  # seconds to watch a younger one

_LARGEST = 2**16  # bytes of a lock file
_FLAGS = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_TAKEN = (errno.EACCES, errno.EAGAIN)
_TRIES = 100  # the file may be removed between opening and locking it; not again and again
_LOOK = 0.5  # seconds between two looks at a lock that is watched

# Locks of the operating system do not keep a process from itself. The pid: a forked child starts without any.
_held_here: dict[tuple[int, str], object] = {}

Verdict = Literal["lives", "gone", "unknown"]


class RunLock:
    """The right to be the only run in a directory. Only the main process of a run takes it.

    >>> with RunLock("out") as lock:
    ...     lock.beat()  # now and then; costs next to nothing
    """

    def __init__(self, directory: str | Path, *, patience: float = PATIENCE) -> None:
        self.directory = Path(directory)
        self.path = self.directory / LOCK_NAME
        self._patience = patience
        self._descriptor: int | None = None
        self._locks = False  # whether the operating system keeps our lock
        self._key: tuple[int, str] | None = None
        self._next_beat = 0.0

    @property
    def held(self) -> bool:
        """Whether the directory is ours alone for sure; False also where no lock could be had."""
        return self._descriptor is not None and self._locks and self._is_ours()

    def acquire(self) -> None:
        """Take the lock; raise `ConfigError` if another run has it."""
        with contextlib.suppress(OSError):  # opening the file will say why not
            self.directory.mkdir(parents=True, exist_ok=True)
        key, token = (os.getpid(), _identity(self.directory)), object()
        if _held_here.setdefault(key, token) is not token:  # one operation: threads cannot come in between
            why = "this process is already training there, with this Trainer or another one"
            raise _refusal(self.path, why, here=True)
        self._key = key
        try:
            self._take()
        except BaseException:
            self.release()
            raise
        self._next_beat = time.monotonic() + BEAT

    def release(self) -> None:
        """Give the lock back and remove its file. Does nothing if it is not held, or in a forked child."""
        if self._descriptor is not None:
            if self._is_ours() and _is_at(self.path, self._descriptor):
                _remove(self.path, self._descriptor)
            else:
                os.close(self._descriptor)
        if self._key is not None:
            _held_here.pop(self._key, None)
        self._descriptor = self._key = None

    def beat(self) -> None:
        """Give a sign of life. Call it as often as you like: most calls only look at the clock."""
        now = time.monotonic()
        if now < self._next_beat or self._descriptor is None or not self._is_ours():
            return
        self._next_beat = now + BEAT
        try:
            os.utime(self._descriptor if os.utime in os.supports_fd else self.path)
            # Reading the file anywhere in this process has dropped the lock (see 2 above): have it again.
            if self._locks and _lock(self._descriptor) is False:
                self._locks = False
                warn(f"another run has begun in {self.directory}: {_training(Holder.read(self._descriptor))}")
        except OSError as error:
            note_once(f"{self.path} cannot be touched ({error}): runs on other machines may take this one for gone")

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _is_ours(self) -> bool:
        """Not in a forked child, which has our memory but not our lock."""
        return self._key is not None and self._key[0] == os.getpid()

    def _take(self) -> None:
        watched: _Watch | None = None
        for _ in range(_TRIES + int(self._patience / _LOOK)):
            try:
                unclear = self._try(watched)
            except OSError as error:
                self._go_on_without(error)
                return
            if self._descriptor is not None:
                return
            if unclear is not None:
                watched = watched or unclear
                time.sleep(_LOOK)
        self._go_on_without(OSError(errno.EAGAIN, "its file comes and goes"))

    def _try(self, watched: _Watch | None) -> _Watch | None:
        descriptor = _open(self.path)
        try:
            return self._decide(descriptor, watched)
        finally:
            if self._descriptor is None:
                os.close(descriptor)

    def _decide(self, descriptor: int, watched: _Watch | None) -> _Watch | None:
        """Make the lock ours, or raise, or return what has to be watched; None: look again at once."""
        locks = _lock(descriptor)
        if not _is_at(self.path, descriptor):  # removed by its holder just now
            return None
        holder = Holder.read(descriptor)
        if locks is False:
            raise _refusal(self.path, _training(holder))
        verdict = "gone" if holder is None else holder.verdict(locked=locks is True)
        if verdict == "lives":
            raise _refusal(self.path, _training(holder))
        if verdict == "unknown":
            assert holder is not None
            now = _Watch.look(descriptor, holder)
            if watched is not None and watched.mark != now.mark:
                raise _refusal(self.path, _training(holder))
            start = watched or now
            if now.age < SILENT and now.at - start.at < self._patience:
                if watched is None:
                    note(f"{_training(holder)}: looking for up to {self._patience:.0f} s whether it still does")
                return now
        if holder is not None:
            note(f"{self.directory}: {holder}, which was training there, is gone; its lock is taken over")
        self._write(descriptor, locks=locks is True)
        return None

    def _write(self, descriptor: int, *, locks: bool) -> None:
        self._descriptor, self._locks = descriptor, locks
        try:
            content = json.dumps({"format": FORMAT, **asdict(Holder.here())}, indent=1).encode("ascii") + b"\n"
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, content)
            os.fsync(descriptor)
        except OSError as error:
            note_once(f"{self.path} could not be written ({error}): another run will not be told who is here")
        if not locks:
            note_once(f"{self.directory} is on a file system without locks: a second run there may go unnoticed")

    def _go_on_without(self, error: OSError) -> None:
        """A lock that cannot be had is no reason not to train, unless it can be seen that somebody has it."""
        holder = _look(self.path)
        if holder is not None and holder.verdict(locked=False) == "lives":
            raise _refusal(self.path, _training(holder)) from error
        note_once(f"{self.directory} cannot be locked ({error}): a second run there would go unnoticed")


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, as far as others can find out whether it lives."""

    pid: int
    host: str
    started: str  # when it took the lock
    process_start: str | None  # when the process began, in the machine's own count
    machine: str | None  # changes when the machine is started again
    namespace: str | None  # in another container the same pid is another process

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            host=socket.gethostname(),
            started=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            process_start=_process_start(pid),
            machine=_machine(),
            namespace=_namespace(),
        )

    @classmethod
    def read(cls, descriptor: int) -> Holder | None:
        """What a lock file says; None if it says nothing, as after a crash right after it was made."""
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            content = json.loads(os.read(descriptor, _LARGEST))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            return None
        pid, shown = content.get("pid"), {name: _short(value) for name, value in content.items()}
        if not isinstance(pid, int) or not 0 < pid < 2**31:
            return None
        return cls(
            pid=pid,
            host=shown.get("host") or "?",
            started=shown.get("started") or "?",
            process_start=shown.get("process_start"),
            machine=shown.get("machine"),
            namespace=shown.get("namespace"),
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.started})"

    def verdict(self, *, locked: bool) -> Verdict:
        """Whether it lives. `locked`: the operating system gave us the lock of its file."""
        here = Holder.here()
        if self.machine is not None and here.machine is not None:
            is_near = self.machine == here.machine
        else:
            is_near = self.host == here.host
        if not is_near:
            return "unknown"
        if None not in (self.namespace, here.namespace) and self.namespace != here.namespace:
            return "gone" if locked else "unknown"  # another container: its processes cannot be seen, its locks can
        if (self.pid, self.process_start) == (here.pid, here.process_start):
            return "gone"  # ourselves, who hold nothing
        start = _process_start(self.pid)
        if start is not None and self.process_start is not None:
            return "lives" if start == self.process_start else "gone"
        if os.name == "nt":  # where asking for a process would be killing it
            return "unknown"
        # There may be such a process, but it need not be the same one any more.
        return "lives" if (start is not None or _exists(self.pid)) and not locked else "gone"


@dataclass(frozen=True)
class _Watch:
    """A look at a lock whose holder cannot be looked at."""

    mark: tuple[Any, ...]  # changes with every sign of life
    age: float  # seconds since the last one; clocks of two machines may differ, so a small one says nothing
    at: float

    @classmethod
    def look(cls, descriptor: int, holder: Holder) -> _Watch:
        status = os.fstat(descriptor)
        return cls((holder, status.st_mtime_ns, status.st_ino), time.time() - status.st_mtime, time.monotonic())


def _identity(directory: Path) -> str:
    """The same for every path that leads to a directory."""
    try:
        status = os.stat(directory)
    except OSError:
        return os.path.realpath(directory)
    return f"{status.st_dev}:{status.st_ino}"


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
    return descriptor


def _look(path: Path) -> Holder | None:
    """Who holds a lock whose file may be read but not written to."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:
        return None
    try:
        return Holder.read(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock a file: True, False if another process has it, None if there are no locks here."""
    if fcntl is None:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _TAKEN else None
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one that has this name."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except OSError:
        return False


def _remove(path: Path, descriptor: int) -> None:
    """Remove the file while it is locked: whoever waits for the lock then sees that it has no name any more."""
    if os.name == "nt":  # where an open file cannot be removed
        os.close(descriptor)
    try:
        path.unlink()
    except OSError as error:
        note_once(f"{path} could not be removed ({error}); the next run will see that nobody holds it")
    if os.name != "nt":
        os.close(descriptor)


def _process_start(pid: int) -> str | None:
    """When a process began; None if there is none (or it only waits to be buried), or nobody can say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program comes second, in brackets, and may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[19].decode("ascii") if len(fields) > 19 and fields[0] not in (b"Z", b"X") else None


def _exists(pid: int) -> bool:
    """Whether there is such a process, where its start cannot be read; zombies are none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not os.path.exists(f"/proc/{pid}/stat")  # it can be read, and it says zombie: see _process_start


def _machine() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _short(value: Any) -> str | None:
    """Text of a file that anybody may have written, fit for a message."""
    return "".join(c for c in value if c.isprintable())[:200] if isinstance(value, str) else None


def _training(holder: Holder | None) -> str:
    return f"{holder} is training there" if holder is not None else "another process has just begun to train there"


def _refusal(path: Path, why: str, *, here: bool = False) -> ConfigError:
    fix = "wait until it ends, or give this run another output_dir"
    return ConfigError(
        what=f"there is another run in {path.parent}",
        why=why,
        fix=fix if here else f"{fix}; if it is surely gone, delete {path.name} there",
    )
