"""Progress of reading rows that are dropped: shown by a callback, or else reported in a line from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from ..core.notices import note

SILENT = 1.0  # seconds without a report
BETWEEN_LINES = 10.0
BETWEEN_LOOKS = 0.1

# (done, total, unit) -> whether it is shown; (None, ...) at the end.
Show: TypeAlias = Callable[[int | None, int, str], bool]


class Skipping:
    """A count of rows, or batches, that are read and dropped.

    >>> with Skipping(total=2, unit="rows") as skipping:
    ...     skipping.advance(2)
    """

    def __init__(self, total: int, unit: str, show: Show | None = None) -> None:
        self.total, self.unit, self.show = total, unit, show
        self.done = 0
        self._shown = False

    def __enter__(self) -> Skipping:
        self._begun = time.monotonic()
        self._look_at = self._begun + SILENT
        self._line_at = self._begun + BETWEEN_LINES
        return self

    def advance(self, count: int) -> None:
        """Count more dropped rows or batches."""
        self.done += count
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + BETWEEN_LOOKS
        self._shown = self.show is not None and self.show(self.done, self.total, self.unit)
        if now >= self._line_at and not self._shown:
            self._line_at = now + BETWEEN_LINES
            note(self._line(now - self._begun))

    def _line(self, seconds: float) -> str:
        rate = self.done / seconds
        left = max(self.total - self.done, 0) / rate
        return (
            f"{self.done} of {self.total} {self.unit} are dropped, {rate:,.0f} a second; the others take about "
            f"{left:,.0f} s"
        )

    def __exit__(self, *failure: object) -> None:
        if self._shown and self.show is not None:
            self.show(None, self.total, self.unit)
