"""Signals that ask a run to stop: recorded at once, handled at the next point where nothing is half done.

    with StopSignals() as stop:      # handlers are set, in the main thread only
        ...                          # stop.received is the first signal, or None
    # the previous handlers are restored

`ask_to_stop("the time is up")` is the same from inside the program: the run saves and `train` returns.

SIGTERM and SIGUSR1 come from schedulers, SIGINT from Ctrl-C. A second Ctrl-C does not wait: it raises
KeyboardInterrupt at the current point. A signal that is ignored (as nohup does) stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection
from types import FrameType, TracebackType
from typing import Any

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT") if name in signal.Signals.__members__
)


_active: list[StopSignals] = []  # the current run is the last


def ask_to_stop(why: str) -> bool:
    """Ask the current run to finish its step, save and return; return False if there is none.

    >>> ask_to_stop("the time is up")
    False
    """
    return bool(_active) and _active[-1].ask(why)


def is_stopping() -> bool:
    """Return whether the current run was asked to stop, by a signal or from inside the program."""
    return bool(_active) and _active[-1].is_asked


class StopSignals:
    """Record signals inside the block.

    Args:
        return_on: Signals after which the run returns, as `ask_to_stop` makes it, instead of ending the program.

    >>> with StopSignals() as stop:
    ...     stop.received is None
    True
    """

    def __init__(self, return_on: Collection[signal.Signals] = ()) -> None:
        self.return_on = return_on
        self.received: signal.Signals | None = None
        self.why: str | None = None  # asked from inside the program, without a signal
        self.on_stop: Callable[[], None] | None = None  # called at the first signal
        self._before: dict[int, Any] = {}
        self._owner = os.getpid()

    @property
    def is_asked(self) -> bool:
        return self.received is not None or self.why is not None

    def ask(self, why: str) -> bool:
        """Ask from inside the program; a later signal still ends the program."""
        if not self.is_asked:
            self.why = why
            if self.on_stop is not None:
                self.on_stop()
        return True

    def __enter__(self) -> StopSignals:
        _active.append(self)
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # None: set by a library that is not Python
                    self._before[number] = signal.signal(number, self._handle_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        _active.remove(self)
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # forked while handlers were set
            self._handle_in_child(number)
            return
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number in self.return_on:
            self.ask(signal.Signals(number).name)
        elif self.received is None:
            self.received = signal.Signals(number)
            if self.on_stop is not None:
                self.on_stop()

    @staticmethod
    def _handle_in_child(number: int) -> None:
        """Handle a signal in a forked child.

        Ctrl-C reaches the whole group, and the parent handles its children; other signals are meant for the child.
        """
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def end_program(self) -> None:
        """End the program by raising KeyboardInterrupt for Ctrl-C, or SystemExit with 128 + the signal for the others.

        Call it after the previous handlers are restored. A user's handler is called first, and may do otherwise.
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
    """The interruption of an evaluation because the run has to stop. Never reaches the user.

    Not an Exception: an override of `evaluate` that catches those must not swallow it.
    """
