"""Progress of reading rows that are dropped: shown by a callback, or else reported in a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from ..core.notices import note

QUIET_SECONDS = 1.0  # seconds without a report
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_UPDATES = 0.1

# (done, total, unit) -> whether it is shown; (None, ...) at the end.
ShowProgress: TypeAlias = Callable[[int | None, int, str], bool]


class SkipProgress:
    """A count of rows, or batches, that are read and dropped.

    >>> with SkipProgress(total=2, unit="rows") as skipping:
    ...     skipping.advance(2)
    """

    def __init__(self, total: int, unit: str, show: ShowProgress | None = None) -> None:
        self.total, self.unit, self.show = total, unit, show
        self.done = 0
        self._shown = False

    def __enter__(self) -> SkipProgress:
        self._started = time.monotonic()
        self._next_update = self._started + QUIET_SECONDS
        self._next_line = self._started + SECONDS_BETWEEN_LINES
        return self

    def advance(self, count: int) -> None:
        """Count more dropped rows or batches."""
        self.done += count
        now = time.monotonic()
        if now < self._next_update:
            return
        self._next_update = now + SECONDS_BETWEEN_UPDATES
        self._shown = self.show is not None and self.show(self.done, self.total, self.unit)
        if now >= self._next_line and not self._shown:
            self._next_line = now + SECONDS_BETWEEN_LINES
            note(self._format_line(now - self._started))

    def _format_line(self, seconds: float) -> str:
        rate = self.done / seconds
        left = max(self.total - self.done, 0) / rate
        return (
            f"{self.done} of {self.total} {self.unit} skipped, {rate:,.0f} per second; about {left:,.0f} s remaining"
        )

    def __exit__(self, *failure: object) -> None:
        if self._shown and self.show is not None:
            self.show(None, self.total, self.unit)
