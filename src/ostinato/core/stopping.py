"""Signals that ask a run to stop: noted at once, obeyed at the next place where nothing is half done.

    with StopSignals() as stop:      # handlers are set, in the main thread only
        ...                          # stop.received is the first signal, or None
    # the handlers of before are back

SIGTERM and SIGUSR1 come from schedulers, SIGINT from Ctrl-C. A second Ctrl-C does not wait: it raises
KeyboardInterrupt where the program is. A signal that is ignored (as nohup does) stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if name in signal.Signals.__members__
)


class StopSignals:
    """Notes signals while it is entered.

    >>> with StopSignals() as stop:
    ...     stop.received is None
    True
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.then: Callable[[], None] | None = None  # called with the first signal
        self._before: dict[int, Any] = {}
        self._owner = os.getpid()

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # None: set by a library that is not Python
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # forked while handlers were set
            self._as_a_child(number)
            return
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number)
            if self.then is not None:
                self.then()

    @staticmethod
    def _as_a_child(number: int) -> None:
        """Ctrl-C reaches the whole group, and the parent sees to its children; others are meant for the child."""
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def leave(self) -> None:
        """Raise what ends the program: KeyboardInterrupt for Ctrl-C, SystemExit with 128 + the signal for the others.

        Call it after the handlers of before are back. One of the user's own is called first, and may do otherwise.
        """
        if self.received is None:
            return
        before = signal.getsignal(self.received)
        theirs = callable(before) and before is not signal.default_int_handler
        if theirs:
            before(self.received, None)  # type: ignore[operator]
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self.received)


class Interrupted(BaseException):
    """An evaluation was broken off because the run has to stop. Never reaches the user.

    Not an Exception: an override of `evaluate` that catches those must not swallow it.
    """
