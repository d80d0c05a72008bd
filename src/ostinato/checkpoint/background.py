"""Saves in the background: one at a time, in a thread that ends with it.

The thread writes files and does nothing else. What follows from a save (the state of the run, deletions, messages) is
done in the thread that trains, at the next step boundary after the save has ended, so none of it changes in between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from ..core.errors import CheckpointError
from .snapshot import SnapshotMemory

_NICENESS = 5  # where cores are few, training has priority
_QUIET_SECONDS = 0.2  # seconds of waiting that need no message
_SECONDS_BETWEEN_UPDATES = 0.1

# What is being written (None: nothing any more), and how many of how many bytes of it are on the disk, where that is
# known. Called while training waits for it.
ShowSaving: TypeAlias = Callable[[str | None, int, int], None]


class Saves:
    """The saves of one run: the one being written, and the outcome of the last one."""

    def __init__(self, show: ShowSaving | None = None) -> None:
        self.show = show
        self.make_room: Callable[[], None] = lambda: None  # called before a checkpoint is written
        self.landed = False  # a save has ended, and what follows from it is not done yet
        self.allows_background = False  # the loop allows it, and checks for the end of the save later
        self.failure: CheckpointError | None = None  # of the last save, if the disk refused it
        self.failed_step: int | None = None
        self.checkpoint: Path | None = None  # the newest: on the disk, or being written
        self.lost_best: CheckpointError | None = None  # the best model so far, if the disk refused it
        self.has_reported_wait = False
        # Of several processes the first writes. How that ended is told to the others when all of them come here.
        self.share: Callable[[], None] | None = None
        self.failure_to_share: Exception | None = None
        self.memory = SnapshotMemory()
        self._name = ""
        self._progress: Callable[[], tuple[int, int]] = _report_unknown
        self._thread: threading.Thread | None = None
        self._forgotten: threading.Thread | None = None
        self._error: BaseException | None = None
        self._then: Callable[[BaseException | None], None] = _ignore_result

    @contextmanager
    def allow_background(self) -> Iterator[None]:
        """Allow a save to run in the background, inside the block."""
        self.allows_background = True
        try:
            yield
        finally:
            self.allows_background = False

    def start(
        self,
        write: Callable[[], None],
        then: Callable[[BaseException | None], None],
        name: str,
        progress: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        """Write in the background; `settle` calls `then`, with the error if there was one.

        `progress` returns how many of how many bytes are written.
        """
        self.wait()
        self._then, self._name, self._progress = then, name, progress or _report_unknown
        self._thread = threading.Thread(target=self._run, args=(write,), name=f"ostinato: {name}", daemon=True)
        self._thread.start()

    def prepare(self, start: Callable[[], None]) -> None:
        """Call `start` at the first step boundary: the memory that training needs is known only after a step."""
        self._then, self.landed = (lambda error: start()), True

    def settle(self) -> None:
        """Do what follows from the save that has ended; wait for it if it has not. May raise the error of the save."""
        if self._thread is None and not self.landed:
            return
        if self._thread is not None:
            self._join(self._thread)
        then, error = self._then, self._error
        self._thread, self._then, self._error, self.landed = None, _ignore_result, None, False
        then(error)

    def _join(self, thread: threading.Thread) -> None:
        """Wait for a save, and show its progress if it takes a while."""
        if self.show is not None:
            thread.join(_QUIET_SECONDS)
            if thread.is_alive():
                with self.show_save(self._name) as show:
                    while thread.is_alive():
                        show(self._name, *self._progress())
                        thread.join(_SECONDS_BETWEEN_UPDATES)
        thread.join()

    @contextmanager
    def show_save(self, name: str) -> Iterator[ShowSaving]:
        """Show what is being written, inside the block, while training waits for it."""
        show = self.show or _ignore_progress
        show(name, 0, 0)
        try:
            yield show
        finally:
            show(None, 0, 0)

    def wait(self) -> float:
        """Wait until nothing is being written; return how many seconds that took."""
        started = time.monotonic()
        while self._thread is not None:  # what follows from a save may start another one in the background
            self.settle()
        return time.monotonic() - started

    def agree(self) -> None:
        """Tell all processes how the last save ended. Each of them has waited for its own; may raise its error."""
        share, self.share = self.share, None
        if share is not None:
            share()

    def forget(self) -> None:
        """Stop waiting for the save; what is half written will never be taken for a checkpoint."""
        self._forgotten = self._thread
        self._thread, self._then, self._error, self.landed = None, _ignore_result, None, False

    @property
    def is_forgotten(self) -> bool:
        """Whether the save being written must not appear any more."""
        return self._forgotten is not None

    def wait_for_forgotten(self) -> None:
        """Wait until nothing writes into the directory, before it is used again."""
        if self._forgotten is not None:
            self._forgotten.join()

    def build_unsaved_error(self, *, wants_best: bool) -> CheckpointError | None:
        """Return an error if a finished run's last save (or best model, if it is wanted) is not on the disk."""
        refusal = self.failure or (self.lost_best if wants_best else None)
        if refusal is None:
            return None
        return CheckpointError(
            what=f"training is done, but {refusal.what}",
            why=refusal.why,
            fix=f"{refusal.fix}; the trained model is still in memory: trainer.save_model('another directory')",
        )

    def _run(self, write: Callable[[], None]) -> None:
        _lower_priority()
        try:
            write()
        except BaseException as error:  # raised again in the thread that trains
            self._error = error
        self.landed = True


def _report_unknown() -> tuple[int, int]:
    return 0, 0


def _ignore_progress(name: str | None, done: int, total: int) -> None:
    pass


def _ignore_result(error: BaseException | None) -> None:
    pass


def _lower_priority() -> None:
    """Lower the priority of this thread. Only Linux has a niceness per thread; elsewhere it is that of the process."""
    if "setpriority" in vars(os) and os.path.isdir("/proc/self/task"):
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
