"""The process that holds the lock of a run's directory, and whether it is alive."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

FORMAT = 1
_MAX_BYTES = 2**16  # read from a lock file

HolderState = Literal["alive", "gone", "unknown"]


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, with what other processes need to find out whether it is alive."""

    pid: int
    host: str
    started: str  # when it took the lock
    process_start: str | None  # when the process began, in the machine's own count
    machine: str | None  # changes when the machine is started again
    namespace: str | None  # in another container the same pid is another process

    @classmethod
    def current(cls) -> Holder:
        """Describe this process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            host=socket.gethostname(),
            started=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            process_start=_read_process_start(pid),
            machine=_read_boot_id(),
            namespace=_read_pid_namespace(),
        )

    @classmethod
    def read(cls, path: Path) -> Holder | None:
        """Read a lock file; return None if it names no process, as after a crash while it was written."""
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                return None
            with path.open("rb") as file:
                content = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            return None
        pid, texts = content.get("pid"), {name: _clean(value) for name, value in content.items()}
        if not isinstance(pid, int) or not 0 < pid < 2**31:
            return None
        return cls(
            pid=pid,
            host=texts.get("host") or "?",
            started=texts.get("started") or "?",
            process_start=texts.get("process_start"),
            machine=texts.get("machine"),
            namespace=texts.get("namespace"),
        )

    def write(self, path: Path) -> None:
        """Write a lock file that names this process."""
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n", encoding="ascii")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.started})"

    def find_state(self, *, is_unlocked: bool) -> HolderState:
        """Find out whether the process is alive.

        Args:
            is_unlocked: the operating system has just let this process lock the holder's file.
        """
        current = Holder.current()
        if self.machine is not None and current.machine is not None:
            is_same_machine = self.machine == current.machine
        else:
            is_same_machine = self.host == current.host
        if not is_same_machine:
            return "unknown"
        if None not in (self.namespace, current.namespace) and self.namespace != current.namespace:
            return "gone" if is_unlocked else "unknown"  # another container: locks are visible, processes are not
        if (self.pid, self.process_start) == (current.pid, current.process_start):
            return "gone"  # this process before an exec; it holds nothing now
        start = _read_process_start(self.pid)
        if start is not None and self.process_start is not None:
            return "alive" if start == self.process_start else "gone"
        if os.name == "nt":  # os.kill(pid, 0) would end the process
            return "unknown"
        # A process with this pid need not be the one that wrote the file.
        return "alive" if (start is not None or _process_exists(self.pid)) and not is_unlocked else "gone"


def _read_process_start(pid: int) -> str | None:
    """Return when a process began; None if it does not exist, is a zombie, or this cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field, the program's name in brackets, may contain anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[19].decode("ascii") if len(fields) > 19 and fields[0] not in (b"Z", b"X") else None


def _process_exists(pid: int) -> bool:
    """Return whether there is such a process, where its start cannot be read; zombies do not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not os.path.exists(f"/proc/{pid}/stat")  # if it can be read, _read_process_start has found a zombie


def _read_boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _read_pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _clean(value: Any) -> str | None:
    """Return text from a file that anyone may have written, safe to print."""
    return "".join(c for c in value if c.isprintable())[:200] if isinstance(value, str) else None
