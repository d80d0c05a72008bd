"""The lengths of rows: read on request, in the cheapest way available, and remembered."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ..core.errors import DataError
from ..core.notices import note_once
from ..core.random import RandomState
from .columns import has_transform, quote_names
from .dataset_errors import RowNames, raise_read_error
from .row_types import BadRow
from .sizes import require_length

Numbers: TypeAlias = npt.NDArray[np.int64]
ReadLengths: TypeAlias = Callable[[Numbers], Any]  # ascending row numbers -> their lengths

MAX_CACHED_ROWS = 50_000_000  # four bytes each
ROWS_AT_ONCE = 256  # whole rows held in memory at a time
ROWS_PER_SLICE = 65_536  # rows of a column that are read at once
MAX_FULL_COLUMN = 10_000_000  # a column of so many rows takes well under a second to read
PROBED_ROWS = 1024

_UNKNOWN = -1


class RowLengths:
    """The lengths of any rows, by their numbers; every row is read once.

    Lengths come from the column `length_column` where there is one, else they are those of the column `input_name`.
    For a `datasets.Dataset` only that column is read, and none of its values. For anything else whole rows are read,
    without a change to the random streams. A data set with a `set_epoch` is read again every time: its rows may differ
    in another epoch.

    >>> lengths = RowLengths([{"input_ids": [1, 2, 3]}, {"input_ids": [1]}])
    >>> lengths([1, 0])
    [1, 3]
    """

    def __init__(
        self,
        dataset: Any,
        input_name: str = "input_ids",
        length_column: str | None = None,
        *,
        source: str = "training set",
    ) -> None:
        self.num_rows = require_length(dataset, description=source, needed_for="sorting rows by length")
        self._read = _choose_reader(dataset, input_name, length_column, source)
        keeps = self.num_rows <= MAX_CACHED_ROWS and not callable(getattr(dataset, "set_epoch", None))
        self._known = np.full(self.num_rows, _UNKNOWN, dtype=np.int32) if keeps else None

    @classmethod
    def of(cls, lengths: Iterable[int] | npt.NDArray[Any] | torch.Tensor) -> RowLengths:
        """Return a `RowLengths` of lengths that are already known, one per row.

        >>> RowLengths.of([3, 1, 2])([2, 0])
        [2, 3]
        """
        if not isinstance(lengths, (np.ndarray, torch.Tensor)):
            lengths = list(lengths)
        known = _check_counts(lengths, range(len(lengths)), "length", "data set")
        found = cls(known)
        found._known = known.astype(np.int32)
        return found

    def __len__(self) -> int:
        return self.num_rows

    @property
    def is_cached(self) -> bool:
        """Whether lengths that have been read are remembered."""
        return self._known is not None

    def __call__(self, indices: Iterable[int]) -> list[int]:
        return self.read_array(np.fromiter(indices, dtype=np.int64)).tolist()

    def read_array(self, indices: Numbers) -> Numbers:
        """Return the lengths for an array of row numbers, as an array."""
        known = self._known
        if known is None:
            rows, places = np.unique(indices, return_inverse=True)
            return np.asarray(self._read(rows), dtype=np.int64)[places]
        missing = np.unique(indices[known[indices] == _UNKNOWN])
        if len(missing):
            self._read_missing(missing)
        return known[indices].astype(np.int64)

    def read_all(self) -> Numbers:
        """Return the lengths of all rows, in the order of the data set."""
        known = self._known is not None and bool((self._known != _UNKNOWN).all())
        if isinstance(self._read, _RowReader) and not known:
            self._read.report(f"all {self.num_rows} rows of the {self._read.source} are read")
        parts = [self.read_array(np.arange(start, end)) for start, end in _split_range(self.num_rows, ROWS_PER_SLICE)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def read_list(self) -> list[int]:
        """Return the lengths of all rows as plain integers: elements of arrays are slow to compare one by one."""
        return self.read_all().tolist()

    def _read_missing(self, rows: Numbers) -> None:
        assert self._known is not None
        if isinstance(self._read, _ColumnReader) and self._read.is_fast():
            rows = np.arange(self.num_rows)
        self._known[rows] = self._read(rows)


def _choose_reader(dataset: Any, input_name: str, length_column: str | None, source: str) -> ReadLengths:
    """Return the cheapest reader of the lengths."""
    names = getattr(dataset, "column_names", None) or ()
    selectable = callable(getattr(dataset, "select_columns", None)) and callable(getattr(dataset, "with_format", None))
    if selectable and length_column is not None and length_column in names:
        return _ColumnReader(dataset, length_column, source, holds_lengths=True)
    if selectable and input_name in names and not has_transform(dataset):
        column = _ColumnReader(dataset, input_name, source, holds_lengths=False)
        if column.has_lengths():
            return column
        dataset = dataset.select_columns([input_name])
    return _RowReader(dataset, input_name, length_column, source)


# One column of a table -----------------------------------------------------------------------------------------------


class _ColumnReader:
    """Read lengths from one column of a `datasets.Dataset`, the rest of which stays on disk."""

    def __init__(self, dataset: Any, name: str, source: str, *, holds_lengths: bool) -> None:
        self.table = dataset.select_columns([name]).with_format("arrow")
        self.num_rows, self.name, self.source, self.holds_lengths = len(dataset), name, source, holds_lengths
        self._is_fast: bool | None = None

    def has_lengths(self) -> bool:
        """Return whether it is a column of lists, whose lengths are stored beside their values."""
        pieces = self.table[0 : min(1, self.num_rows)][self.name].chunks
        return bool(pieces) and callable(getattr(pieces[0], "value_lengths", None))

    def is_fast(self) -> bool:
        """Return whether reading all of it is faster than picking some rows: it is on disk in one piece, in order.

        Rows of a data set that was shuffled or filtered are picked one by one, even where their numbers are
        consecutive: each is then a piece of its own.
        """
        quick = self._is_fast
        if quick is None:
            pieces = self.table[0 : min(PROBED_ROWS, self.num_rows)][self.name].num_chunks
            quick = self._is_fast = self.num_rows <= MAX_FULL_COLUMN and pieces <= PROBED_ROWS // 16
        return quick

    def __call__(self, rows: Numbers) -> Numbers:
        parts = [self._read_slice(rows[start:end]) for start, end in _split_range(len(rows), ROWS_PER_SLICE)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _read_slice(self, rows: Numbers) -> Numbers:
        first, last = int(rows[0]), int(rows[-1])
        in_order = last - first + 1 == len(rows)
        column = (self.table[first : last + 1] if in_order else self.table[rows.tolist()])[self.name]
        if column.num_chunks * 16 > len(rows):  # each picked row is a piece, and pieces cost more than copies
            column = column.combine_chunks()
        parts, start = [], 0
        for piece in getattr(column, "chunks", [column]):
            parts.append(self._read_chunk(piece, rows[start : start + len(piece)]))
            start += len(piece)
        return np.concatenate(parts)

    def _read_chunk(self, piece: Any, rows: Numbers) -> Numbers:
        if not self.holds_lengths:
            piece = piece.value_lengths()
        if piece.null_count == 0:
            return _check_counts(piece.to_numpy(zero_copy_only=False), rows, self.name, self.source)
        row = int(rows[piece.to_pylist().index(None)])
        raise _build_no_length_error(
            row, self.name, None, self.source, "a number of tokens" if self.holds_lengths else "a sequence"
        )


# Rows ----------------------------------------------------------------------------------------------------------------


class _RowReader:
    """Read lengths from whole rows, which are computed or loaded for it."""

    def __init__(self, dataset: Any, input_name: str, length_column: str | None, source: str) -> None:
        self.dataset, self.input_name, self.length_column, self.source = dataset, input_name, length_column, source

    def report(self, what: str) -> None:
        """Report that rows are read, which may take long; rows that are in memory already need no report."""
        if isinstance(self.dataset, (list, tuple)):
            return
        column = f"; a column {self.length_column!r} would make this unnecessary" if self.length_column else ""
        note_once(f"{what} to find the length of {self.input_name!r}{column}", key="rows are read for their lengths")

    def __call__(self, rows: Numbers) -> Numbers:
        self.report(f"the rows of the {self.source} are read one more time, shortly before training needs them,")
        streams = RandomState.capture()
        try:
            return np.array([self._measure_row(number, row) for number, row in self._read_rows(rows)], dtype=np.int64)
        finally:
            streams.restore()

    def _read_rows(self, numbers: Numbers) -> Iterator[tuple[int, Any]]:
        many: Callable[[list[int]], Sequence[Any]] | None = getattr(self.dataset, "__getitems__", None)
        for start, end in _split_range(len(numbers), ROWS_AT_ONCE):
            some = numbers[start:end].tolist()
            if many is None:
                yield from ((number, self._read_row(number)) for number in some)
                continue
            try:
                found = many(some)
            except Exception as error:
                raise_read_error(error, RowNames(self.source, some), self.dataset)
            yield from zip(some, found, strict=True)

    def _read_row(self, number: int) -> Any:
        try:
            return self.dataset[number]
        except Exception as error:
            raise_read_error(error, RowNames(self.source, [number]), self.dataset)

    def _measure_row(self, number: int, row: Any) -> int:
        if isinstance(row, BadRow):  # it is left out later
            return 0
        return find_row_length(row, number, self.input_name, self.length_column, self.source)


def find_row_length(row: Any, number: int, input_name: str, length_column: str | None, source: str) -> int:
    """Return the length that a row states, or the length of its input."""
    if length_column is not None and isinstance(row, Mapping) and length_column in row:
        return _check_count(row[length_column], number, length_column, source)
    try:
        value = row[input_name]
    except (KeyError, TypeError, IndexError) as error:
        raise _build_no_column_error(row, number, input_name, source) from error
    return _measure(value, number, input_name, source)


def _build_no_column_error(row: Any, number: int, input_name: str, source: str) -> DataError:
    names = [str(name) for name in row] if isinstance(row, Mapping) else []
    meant = difflib.get_close_matches(input_name, names, n=1)
    return DataError(
        what=f"row {number} of the {source} has no {input_name!r}, whose length decides the order",
        why=f"it has {quote_names(names)}" if names else f"it is a {type(row).__name__}, not a dict",
        fix=f"rename {meant[0]!r} to {input_name!r}" if meant else _ADVICE,
    )


# Numbers -------------------------------------------------------------------------------------------------------------

_ADVICE = "add a column of lengths and name it in length_column_name, or use train_sampling_strategy='random'"


def _measure(value: Any, row: int, name: str, source: str) -> int:
    try:
        return len(value)
    except TypeError as error:
        raise _build_no_length_error(row, name, value, source, "a sequence") from error


def _check_count(value: Any, row: int, name: str, source: str) -> int:
    try:
        count = operator.index(value)
    except TypeError as error:
        raise _build_no_length_error(row, name, value, source, "a number of tokens") from error
    if count < 0:
        raise _build_no_length_error(row, name, value, source, "a number of tokens")
    return count


def _check_counts(values: Any, rows: Sequence[int] | Numbers, name: str, source: str) -> Numbers:
    """Return a column of lengths, after a check that all are whole numbers from 0 on."""
    if isinstance(values, torch.Tensor):
        values = values.cpu().numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and (len(values) == 0 or values.min() >= 0):
        return values.astype(np.int64)
    pairs = zip(rows, values, strict=True)
    return np.array([_check_count(value, int(row), name, source) for row, value in pairs], dtype=np.int64)


def _build_no_length_error(row: int, name: str, value: Any, source: str, wanted: str) -> DataError:
    shown = repr(value)
    return DataError(
        what=f"row {row} of the {source} has no length to sort by",
        why=f"its {name!r} is {shown if len(shown) <= 60 else shown[:57] + '...'}, not {wanted}",
        fix=_ADVICE,
    )


def _split_range(count: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, count)) for start in range(0, count, size))
