"""A watch over processes that train together: tells which of them does not come, before a wait for it fails.

A thread of each process writes down, in the store of the process group, at which step and in which line of code the
process is. If a process stays in one line for half of the timeout of collectives, its thread compares what the others
wrote. One that writes nothing any more was stopped or cut off.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

from ..core.notices import logger
from ..core.world import World

_CHECKS = 20  # in the time after which a collective fails
_MAX_SECONDS_BETWEEN_CHECKS = 10.0
_MISSED = 3  # checks in which a process has written nothing
_REPLY_SECONDS = 5.0
_LISTED = 8  # processes in one place
_LIBRARIES = (str(Path(torch.__file__).parent), sysconfig.get_path("stdlib"))
_numbers = itertools.count()  # of watches: all processes have as many


@contextmanager
def watch_processes(world: World, find_step: Callable[[], int], timeout_seconds: float) -> Iterator[None]:
    """Watch the other processes, inside the block."""
    number = next(_numbers)
    try:
        store = dist.distributed_c10d._get_default_store().clone()  # pyright: ignore[reportAttributeAccessIssue]
    except (RuntimeError, NotImplementedError, AttributeError):  # a store for one user, or an older torch
        yield
        return
    store.set_timeout(timedelta(seconds=_REPLY_SECONDS))
    watch = ProcessWatch(
        dist.PrefixStore(f"ostinato/watch/{number}", store), world, find_step, timeout_seconds, threading.get_ident()
    )
    watch.start()
    try:
        yield
    finally:
        watch.end()


@dataclass(frozen=True)
class Standing:
    """Where a process is."""

    check: int  # which of its checks this is
    step: int
    line: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.line}"


class ProcessWatch:
    """The thread of one process."""

    def __init__(
        self, store: dist.Store, world: World, find_step: Callable[[], int], timeout_seconds: float, thread: int
    ) -> None:
        self._store, self._world, self._find_step = store, world, find_step
        self._timeout, self._watched = timeout_seconds, thread
        self._seconds = min(timeout_seconds / _CHECKS, _MAX_SECONDS_BETWEEN_CHECKS)
        self._stack: tuple[tuple[int, int], ...] = ()
        self._moved_at = time.monotonic()
        self._seen: dict[int, tuple[Standing, int]] = {}  # of each process, and the check in which it was new
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ostinato: watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(_REPLY_SECONDS)

    def _run(self) -> None:
        own = Standing(0, 0, "")
        try:
            for number in itertools.count():
                frame = sys._current_frames().get(self._watched)
                own = Standing(number, self._find_step(), _find_line(frame))
                if self._check(own, _read_stack(frame)) or self._ended.wait(self._seconds):
                    return
        except (dist.DistError, RuntimeError) as error:
            if not self._ended.is_set():
                self._report_store(own, error)

    def _check(self, own: Standing, stack: tuple[tuple[int, int], ...]) -> bool:
        """Write where this process is; return whether others were reported, as it has stood there for long."""
        if stack != self._stack:
            self._stack, self._moved_at = stack, time.monotonic()
        stood = time.monotonic() - self._moved_at
        self._store.set(str(self._world.rank), json.dumps([own.check, own.step, own.line]))
        if stood < self._timeout / 4:
            self._seen.clear()
            return False
        for rank, standing in self._read_others():
            if rank not in self._seen or self._seen[rank][0].check != standing.check:
                self._seen[rank] = standing, own.check
        if stood < self._timeout / 2:
            return False
        self._report(own, stood)
        return True

    def _read_others(self) -> Iterator[tuple[int, Standing]]:
        for rank in range(self._world.size):
            if rank != self._world.rank and self._store.check([str(rank)]):
                yield rank, Standing(*json.loads(self._store.get(str(rank))))

    def _report(self, own: Standing, stood: float) -> None:
        """Tell where the processes are, unless all are in one place: one of them does it."""
        places: dict[str, list[str]] = {}
        for rank in range(self._world.size):
            places.setdefault(self._describe(rank, own), []).append(str(rank))
        if len(places) == 1 or self._store.add("told", 1) > 1:
            return
        lines = [
            f"training has stood still for {stood:.0f} s; waits for other processes fail after {self._timeout:g} s"
        ]
        for place, ranks in places.items():
            shown = f"process{'es' if len(ranks) > 1 else ''} {', '.join(ranks)}"
            lines.append(f"{shown if len(ranks) <= _LISTED else f'{len(ranks)} processes'}: {place}")
        logger.error("\n  ".join(lines))

    def _describe(self, rank: int, own: Standing) -> str:
        """Return where a process is."""
        if rank == self._world.rank:
            return str(own)
        if rank not in self._seen:
            return "does not answer; it has not begun to train"
        standing, since = self._seen[rank]
        return f"does not answer; it was last at {standing}" if own.check - since >= _MISSED else str(standing)

    def _report_store(self, own: Standing, error: Exception) -> None:
        """Tell that the store itself does not answer, which the first process may hold."""
        holder = "the launcher" if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else "process 0"
        logger.error(f"process {self._world.rank}, at {own}: {holder} does not answer ({type(error).__name__})")


def _read_stack(frame: FrameType | None) -> tuple[tuple[int, int], ...]:
    """Return what changes when a thread goes on: the instruction of each frame."""
    found = []
    while frame is not None:
        found.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def _find_line(frame: FrameType | None) -> str:
    """Return the innermost line that belongs neither to torch nor to Python's own library."""
    while frame is not None and frame.f_back is not None and _is_of_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "ended"
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


def _is_of_library(file: str) -> bool:
    is_python = file.startswith(_LIBRARIES[1]) and "site-packages" not in file
    return is_python or file.startswith((_LIBRARIES[0], "<"))
