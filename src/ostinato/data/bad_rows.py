"""Skip rows that cannot be read instead of ending the run (`skip_bad_rows`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.errors import DataError
from ..core.notices import warn
from .batching.split_by_length import SplitBatch
from .row_types import BadRow, PaddingRow, RowKey, find_bad_row

MAX_SHOWN = 20  # row numbers listed in one line
MAX_TRIES = 100  # rows tried in the search for a readable one


class SkippingRows:
    """A data set that returns a `BadRow` for each row that cannot be read, and is otherwise unchanged.

    >>> rows = SkippingRows([{"x": 1}])
    >>> rows[0], rows[7]
    ({'x': 1}, BadRow(index=7, reason='IndexError: list index out of range', source=None))
    """

    def __init__(self, rows: Any, source: str | None = None) -> None:
        self.rows, self.source = rows, source

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.rows[index]
        except Exception as error:  # of any type: the run continues
            return BadRow(int(index), f"{type(error).__name__}: {error}", self.source)

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]] | None:
        """Read many rows at a time, if the data set can; None otherwise."""
        return None if getattr(self.rows, "__getitems__", None) is None else self._read_many

    def _read_many(self, indices: Sequence[int]) -> list[Any]:
        try:
            return self.rows.__getitems__(indices)
        except Exception:  # one of the rows failed: read them one by one
            return [self[index] for index in indices]

    def __getattr__(self, name: str) -> Any:
        if name == "rows":  # during unpickling
            raise AttributeError(name)
        return getattr(self.rows, name)


class ReadableRowFinder:
    """Find a row of a data set that can be read, for a process that has none in a step."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._index = 0

    def __call__(self) -> Any:
        row = None
        for index in range(self._index, min(self._index + MAX_TRIES, len(self.rows))):
            row = self.rows[index]
            if find_bad_row(row) is None:
                self._index = index
                return row
        raise build_unreadable_error("training set", min(MAX_TRIES, len(self.rows)), find_bad_row(row))


class FilteredBatch(SplitBatch):
    """The micro-batches of the rows that could be read, and the rows that could not."""

    skipped: tuple[BadRow, ...] = ()
    sources: Sequence[str] = ()  # of a mixture: the set of each micro-batch
    is_padding_batch = False  # no row could be read, but another process may have rows


class SkippingCollator:
    """Collate the rows that could be read.

    If there are none, the batch is empty. Where processes wait for one another it is a padding batch instead, made of
    a row from `find_readable` or of a given `PaddingRow`.
    """

    splits_batches = True

    def __init__(
        self, data_collator: Callable[[list[Any]], Any], find_readable: Callable[[], Any] | None = None
    ) -> None:
        self.data_collator, self.find_readable = data_collator, find_readable

    def __call__(self, rows: list[Any]) -> FilteredBatch:
        good, is_padding_batch = self.prepare_rows(rows), False
        if not good:
            good = [row.row for row in rows if isinstance(row, PaddingRow)]
            good = [self.find_readable()] if self.find_readable is not None and not good else good
            is_padding_batch = bool(good)
        inside = self.data_collator(good) if good else None
        batch = FilteredBatch([] if inside is None else [inside])
        batch.skipped = tuple(bad for row in rows if (bad := find_bad_row(row)) is not None)
        batch.sources, batch.is_padding_batch = getattr(inside, "sources", ()), is_padding_batch
        return batch

    def prepare_rows(self, rows: list[Any]) -> list[Any]:
        """Return the rows that are collated."""
        return [rows[place] for place in self.select_positions(rows)]

    def select_positions(self, rows: list[Any]) -> list[int]:
        """Return the positions of the rows that are collated."""
        return [
            place for place, row in enumerate(rows) if find_bad_row(row) is None and not isinstance(row, PaddingRow)
        ]


class SkippedRows:
    """All bad rows of a run, each reported once, by the first process."""

    def __init__(self) -> None:
        self.reasons: dict[RowKey, str] = {}

    def add(self, rows: Iterable[BadRow], gather: Callable[[Any], list[Any]] | None = None) -> None:
        """Record rows. `gather` returns those of every process; every process then calls this at the same time."""
        found = [[row.source, row.index, row.reason] for row in rows if row.key not in self.reasons]
        if gather is not None:
            found = [row for rows_of_one in gather(found) for row in rows_of_one]
        for source, index, reason in found:
            row = BadRow(index, reason, source)
            if row.key not in self.reasons:
                self.reasons[row.key] = reason
                self._report(row)

    def _report(self, row: BadRow) -> None:
        if len(self.reasons) <= MAX_SHOWN:
            warn(f"{_name_row(row.key)} is skipped: {row.reason}")
        elif len(self.reasons) == MAX_SHOWN + 1:
            warn(f"more than {MAX_SHOWN} rows are skipped: trainer.skipped_rows lists them all")

    def summarize(self) -> str | None:
        """Return a line for the end of training; None if no row was skipped."""
        if not self.reasons:
            return None
        keys = sorted(self.reasons, key=lambda key: key if isinstance(key, tuple) else ("", key))
        more = f" and {len(keys) - MAX_SHOWN} more" if len(keys) > MAX_SHOWN else ""
        shown = ", ".join(str(key) if isinstance(key, int) else f"{key[0]} {key[1]}" for key in keys[:MAX_SHOWN])
        return f"{len(keys)} rows of the training set were skipped: {shown}{more}"

    def progress(self) -> list[list[Any]]:
        """Return what a resumed run needs."""
        return [[*(key if isinstance(key, tuple) else (None, key)), reason] for key, reason in self.reasons.items()]

    def restore(self, progress: Iterable[Sequence[Any]]) -> None:
        """Continue from a saved run."""
        for source, index, reason in progress:
            self.reasons[BadRow(index, reason, source).key] = reason


def _name_row(key: RowKey) -> str:
    if isinstance(key, tuple):
        return f"row {key[1]} of set {key[0]!r} of the training set"
    return f"row {key} of the training set"


def build_unreadable_error(source: str, count: int, last: Any) -> DataError:
    """Return the error for so many unreadable rows in succession that the cause is not a single row."""
    reason = getattr(last, "reason", None) or (f"{type(last).__name__}: {last}" if last is not None else "")
    return DataError(
        what=f"{count} rows of the {source} in succession could not be read",
        why=f"the last one raised {reason}" if reason else "a batch needs at least one row that can be read",
        fix="check that the files exist; skip_bad_rows=True is for single rows",
    )
