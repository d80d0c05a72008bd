"""Rows that cannot be read, left out instead of ending the run: `skip_bad_rows`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.notices import warn
from .cutting import SplitBatch

SHOWN = 20  # numbers that a line lists


class BadRow(NamedTuple):
    """In place of a row that could not be read."""

    index: int
    reason: str


class SkippingRows:
    """A data set whose bad rows come as `BadRow`; everything else about it is as it was.

    >>> rows = SkippingRows([{"x": 1}])
    >>> rows[0], rows[7]
    ({'x': 1}, BadRow(index=7, reason='IndexError: list index out of range'))
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.rows[index]
        except Exception as error:  # whatever it is, the run is to go on
            return BadRow(index, f"{type(error).__name__}: {error}")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        many = getattr(self.rows, "__getitems__", None)
        if many is not None:
            try:
                return many(indices)
            except Exception:  # one of them: find out which
                pass
        return [self[index] for index in indices]

    def __getattr__(self, name: str) -> Any:
        if name == "rows":  # being unpickled
            raise AttributeError(name)
        return getattr(self.rows, name)


class GoodBatch(SplitBatch):
    """The micro-batches of the rows that could be read, and those that could not."""

    skipped: tuple[BadRow, ...] = ()


class SkippingCollator:
    """Collates the rows that could be read; none, if there are none."""

    cuts = True

    def __init__(self, data_collator: Callable[[list[Any]], Any]) -> None:
        self.data_collator = data_collator

    def __call__(self, rows: list[Any]) -> GoodBatch:
        good = self.seen(rows)
        batch = GoodBatch([self.data_collator(good)] if good else [])
        batch.skipped = tuple(row for row in rows if isinstance(row, BadRow))
        return batch

    def seen(self, rows: list[Any]) -> list[Any]:
        """The rows that are collated."""
        return [row for row in rows if not isinstance(row, BadRow)]


class SkippedRows:
    """All bad rows of a run, each said once, in the process that trains."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, rows: tuple[BadRow, ...]) -> None:
        for row in rows:
            if row.index not in self.reasons:
                self.reasons[row.index] = row.reason
                warn(f"row {row.index} of the training set is skipped: {row.reason}")

    def summary(self) -> str | None:
        """A line for the end of training; None if there is nothing to tell."""
        if not self.reasons:
            return None
        numbers = sorted(self.reasons)
        more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
        return f"{len(numbers)} rows of the training set were skipped: {', '.join(map(str, numbers[:SHOWN]))}{more}"
