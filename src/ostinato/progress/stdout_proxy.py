"""What others print while something is live on the terminal: it goes above it, after the lines that came before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

LONGEST_LINE = 10_000  # that waits for its end


class Above:
    """Stands in for a standard stream, and hands whole lines to `show`.

    An unfinished line is shown when it is flushed, as a question that waits for an answer should be. One that returns
    to its beginning is somebody's own bar: only how it ends is shown, since two of them cannot move at once.
    """

    def __init__(self, stream: TextIO, show: Callable[[str], None]) -> None:
        self.stream, self._show = stream, show
        self._unfinished = ""
        self._process = os.getpid()
        self._is_over = False

    def write(self, text: str) -> int:
        if self._is_over or os.getpid() != self._process:  # a fork knows nothing of what is live now
            return self.stream.write(text)
        whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
        if newline:
            self._show("\n".join([as_it_ends(line) for line in whole.split("\n")]))
        if "\r" in self._unfinished:  # what was written over is of no use to anybody
            returned = "\r" if self._unfinished.endswith("\r") else ""
            self._unfinished = f"\r{as_it_ends(self._unfinished)}{returned}"
        if len(self._unfinished) > LONGEST_LINE:
            self.flush()
        return len(text)

    def flush(self) -> None:
        is_ours = not self._is_over and os.getpid() == self._process
        if is_ours and self._unfinished and "\r" not in self._unfinished:
            text, self._unfinished = self._unfinished, ""
            self._show(text)
        self.stream.flush()

    def end(self) -> None:
        """Nothing is live any more: who still holds this writes to the stream itself."""
        self._is_over = True
        text, self._unfinished = as_it_ends(self._unfinished), ""
        if text.strip():
            self.stream.write(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        """Encoding, file number and whatever else somebody asks for are the stream's own."""
        return getattr(self.stream, name)


class Redirected:
    """Standard output, and standard error where it is a terminal as well, until `end`."""

    def __init__(self, show: Callable[[str], None], *, error: bool) -> None:
        self._names = ("stdout", "stderr") if error else ("stdout",)
        self._above = {name: Above(getattr(sys, name), show) for name in self._names}
        for name, stream in self._above.items():
            setattr(sys, name, stream)

    def end(self) -> None:
        for name, above in self._above.items():
            if getattr(sys, name) is above:  # nobody has put another in its place
                setattr(sys, name, above.stream)
            above.end()


def as_it_ends(line: str) -> str:
    """A line that was written over itself, as it was left.

    >>> as_it_ends("\\r 50%|#####     |\\r100%|##########|")
    '100%|##########|'
    """
    return line.removesuffix("\r").rpartition("\r")[2]
