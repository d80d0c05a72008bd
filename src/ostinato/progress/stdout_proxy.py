"""Print what other code writes to standard output above the live display."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

MAX_UNFINISHED_LINE = 10_000  # characters; a longer one is shown


class StreamProxy:
    """Replaces a standard stream, and passes whole lines to `show`.

    An unfinished line is shown when it is flushed, as a prompt should be. A line that returns to its beginning is
    another progress bar: only its last state is shown, since two bars cannot move at once.
    """

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self.stream, self._show = stream, show
        self._unfinished = ""
        self._process = os.getpid()
        self._is_over = False

    def write(self, text: str) -> int:
        if self._is_over or os.getpid() != self._process:  # a forked child has no live display
            return self.stream.write(text)
        whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
        if newline:
            self._show("\n".join([keep_last_overwrite(line) for line in whole.split("\n")]))
        if "\r" in self._unfinished:  # drop what was written over
            returned = "\r" if self._unfinished.endswith("\r") else ""
            self._unfinished = f"\r{keep_last_overwrite(self._unfinished)}{returned}"
        if len(self._unfinished) > MAX_UNFINISHED_LINE:
            self.flush()
        return len(text)

    def flush(self) -> None:
        is_ours = not self._is_over and os.getpid() == self._process
        if is_ours and self._unfinished and "\r" not in self._unfinished:
            text, self._unfinished = self._unfinished, ""
            self._show(text)
        self.stream.flush()

    def end(self) -> None:
        """Pass everything to the stream itself from now on."""
        self._is_over = True
        text, self._unfinished = keep_last_overwrite(self._unfinished), ""
        if text.strip():
            self.stream.write(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self.stream, name)


class RedirectedStreams:
    """Redirects standard output, and standard error where it is a terminal as well, until `end`."""

    def __init__(self, show: Callable[[str], None], *, error: bool) -> None:
        self._names = ("stdout", "stderr") if error else ("stdout",)
        self._above = {name: StreamProxy(getattr(sys, name), show) for name in self._names}
        for name, stream in self._above.items():
            setattr(sys, name, stream)

    def end(self) -> None:
        for name, above in self._above.items():
            if getattr(sys, name) is above:  # not replaced meanwhile
                setattr(sys, name, above.stream)
            above.end()


def keep_last_overwrite(line: str) -> str:
    """Return a line that was written over itself as it was left.

    >>> keep_last_overwrite("\\r 50%|#####     |\\r100%|##########|")
    '100%|##########|'
    """
    return line.removesuffix("\r").rpartition("\r")[2]
