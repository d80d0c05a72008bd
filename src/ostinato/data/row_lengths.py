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
from .columns import in_words, transforms_rows
from .dataset_errors import RowNames, raise_read_error
from .row_types import BadRow
from .sizes import length_of

Numbers: TypeAlias = npt.NDArray[np.int64]
Read: TypeAlias = Callable[[Numbers], Any]  # ascending row numbers -> their lengths

KEPT_ROWS = 50_000_000  # four bytes each
ROWS_AT_ONCE = 256  # whole rows held in memory at a time
SLICE = 65_536  # rows of a column that are read at once
COLUMN_IN_ONE_PIECE = 10_000_000  # a column of so many rows takes well under a second to read
PROBE = 1024

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
        self.num_rows = length_of(dataset, description=source, needed_for="sorting rows by length")
        self._read = _reader(dataset, input_name, length_column, source)
        keeps = self.num_rows <= KEPT_ROWS and not callable(getattr(dataset, "set_epoch", None))
        self._known = np.full(self.num_rows, _UNKNOWN, dtype=np.int32) if keeps else None

    @classmethod
    def of(cls, lengths: Iterable[int] | npt.NDArray[Any] | torch.Tensor) -> RowLengths:
        """Return a `RowLengths` of lengths that are already known, one per row.

        >>> RowLengths.of([3, 1, 2])([2, 0])
        [2, 3]
        """
        if not isinstance(lengths, (np.ndarray, torch.Tensor)):
            lengths = list(lengths)
        known = _counts(lengths, range(len(lengths)), "length", "data set")
        found = cls(known)
        found._known = known.astype(np.int32)
        return found

    def __len__(self) -> int:
        return self.num_rows

    @property
    def keeps(self) -> bool:
        """Whether lengths that have been read are remembered."""
        return self._known is not None

    def __call__(self, indices: Iterable[int]) -> list[int]:
        return self.array(np.fromiter(indices, dtype=np.int64)).tolist()

    def array(self, indices: Numbers) -> Numbers:
        """Return the lengths for an array of row numbers, as an array."""
        known = self._known
        if known is None:
            rows, places = np.unique(indices, return_inverse=True)
            return np.asarray(self._read(rows), dtype=np.int64)[places]
        missing = np.unique(indices[known[indices] == _UNKNOWN])
        if len(missing):
            self._learn(missing)
        return known[indices].astype(np.int64)

    def all(self) -> Numbers:
        """Return the lengths of all rows, in the order of the data set."""
        known = self._known is not None and bool((self._known != _UNKNOWN).all())
        if isinstance(self._read, _WholeRows) and not known:
            self._read.tell(f"all {self.num_rows} rows of the {self._read.source} are read")
        parts = [self.array(np.arange(start, end)) for start, end in _slices(self.num_rows, SLICE)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def as_list(self) -> list[int]:
        """Return the lengths of all rows as plain integers: elements of arrays are slow to compare one by one."""
        return self.all().tolist()

    def _learn(self, rows: Numbers) -> None:
        assert self._known is not None
        if isinstance(self._read, _Column) and self._read.is_quick():
            rows = np.arange(self.num_rows)
        self._known[rows] = self._read(rows)


def _reader(dataset: Any, input_name: str, length_column: str | None, source: str) -> Read:
    """Return the cheapest reader of the lengths."""
    names = getattr(dataset, "column_names", None) or ()
    selectable = callable(getattr(dataset, "select_columns", None)) and callable(getattr(dataset, "with_format", None))
    if selectable and length_column is not None and length_column in names:
        return _Column(dataset, length_column, source, holds_lengths=True)
    if selectable and input_name in names and not transforms_rows(dataset):
        column = _Column(dataset, input_name, source, holds_lengths=False)
        if column.knows_lengths():
            return column
        dataset = dataset.select_columns([input_name])
    return _WholeRows(dataset, input_name, length_column, source)


# One column of a table -----------------------------------------------------------------------------------------------


class _Column:
    """Read lengths from one column of a `datasets.Dataset`, the rest of which stays on disk."""

    def __init__(self, dataset: Any, name: str, source: str, *, holds_lengths: bool) -> None:
        self.table = dataset.select_columns([name]).with_format("arrow")
        self.num_rows, self.name, self.source, self.holds_lengths = len(dataset), name, source, holds_lengths
        self._is_quick: bool | None = None

    def knows_lengths(self) -> bool:
        """Return whether it is a column of lists, whose lengths are stored beside their values."""
        pieces = self.table[0 : min(1, self.num_rows)][self.name].chunks
        return bool(pieces) and callable(getattr(pieces[0], "value_lengths", None))

    def is_quick(self) -> bool:
        """Return whether reading all of it is faster than picking some rows: it is on disk in one piece, in order.

        Rows of a data set that was shuffled or filtered are picked one by one, even where their numbers are
        consecutive: each is then a piece of its own.
        """
        quick = self._is_quick
        if quick is None:
            pieces = self.table[0 : min(PROBE, self.num_rows)][self.name].num_chunks
            quick = self._is_quick = self.num_rows <= COLUMN_IN_ONE_PIECE and pieces <= PROBE // 16
        return quick

    def __call__(self, rows: Numbers) -> Numbers:
        parts = [self._lengths(rows[start:end]) for start, end in _slices(len(rows), SLICE)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _lengths(self, rows: Numbers) -> Numbers:
        first, last = int(rows[0]), int(rows[-1])
        in_order = last - first + 1 == len(rows)
        column = (self.table[first : last + 1] if in_order else self.table[rows.tolist()])[self.name]
        if column.num_chunks * 16 > len(rows):  # each picked row is a piece, and pieces cost more than copies
            column = column.combine_chunks()
        parts, start = [], 0
        for piece in getattr(column, "chunks", [column]):
            parts.append(self._of_piece(piece, rows[start : start + len(piece)]))
            start += len(piece)
        return np.concatenate(parts)

    def _of_piece(self, piece: Any, rows: Numbers) -> Numbers:
        if not self.holds_lengths:
            piece = piece.value_lengths()
        if piece.null_count == 0:
            return _counts(piece.to_numpy(zero_copy_only=False), rows, self.name, self.source)
        row = int(rows[piece.to_pylist().index(None)])
        raise _no_length(
            row, self.name, None, self.source, "a number of tokens" if self.holds_lengths else "a sequence"
        )


# Rows ----------------------------------------------------------------------------------------------------------------


class _WholeRows:
    """Read lengths from whole rows, which are computed or loaded for it."""

    def __init__(self, dataset: Any, input_name: str, length_column: str | None, source: str) -> None:
        self.dataset, self.input_name, self.length_column, self.source = dataset, input_name, length_column, source

    def tell(self, what: str) -> None:
        """Report that rows are read, which may take long; rows that are in memory already need no report."""
        if isinstance(self.dataset, (list, tuple)):
            return
        column = f"; a column {self.length_column!r} would make that unnecessary" if self.length_column else ""
        note_once(
            f"{what} to learn the length of their {self.input_name!r}{column}", key="rows are read for their lengths"
        )

    def __call__(self, rows: Numbers) -> Numbers:
        self.tell(f"the rows of the {self.source} are read once more, each shortly before its turn,")
        streams = RandomState.capture()
        try:
            return np.array([self._length(number, row) for number, row in self._rows(rows)], dtype=np.int64)
        finally:
            streams.restore()

    def _rows(self, numbers: Numbers) -> Iterator[tuple[int, Any]]:
        many: Callable[[list[int]], Sequence[Any]] | None = getattr(self.dataset, "__getitems__", None)
        for start, end in _slices(len(numbers), ROWS_AT_ONCE):
            some = numbers[start:end].tolist()
            if many is None:
                yield from ((number, self._row(number)) for number in some)
                continue
            try:
                found = many(some)
            except Exception as error:
                raise_read_error(error, RowNames(self.source, some), self.dataset)
            yield from zip(some, found, strict=True)

    def _row(self, number: int) -> Any:
        try:
            return self.dataset[number]
        except Exception as error:
            raise_read_error(error, RowNames(self.source, [number]), self.dataset)

    def _length(self, number: int, row: Any) -> int:
        if isinstance(row, BadRow):  # it is left out later
            return 0
        return length_of_row(row, number, self.input_name, self.length_column, self.source)


def length_of_row(row: Any, number: int, input_name: str, length_column: str | None, source: str) -> int:
    """Return the length that a row states, or the length of its input."""
    if length_column is not None and isinstance(row, Mapping) and length_column in row:
        return _count(row[length_column], number, length_column, source)
    try:
        value = row[input_name]
    except (KeyError, TypeError, IndexError) as error:
        raise _no_column(row, number, input_name, source) from error
    return _length(value, number, input_name, source)


def _no_column(row: Any, number: int, input_name: str, source: str) -> DataError:
    names = [str(name) for name in row] if isinstance(row, Mapping) else []
    meant = difflib.get_close_matches(input_name, names, n=1)
    return DataError(
        what=f"row {number} of the {source} has no {input_name!r}, whose length it is to be sorted by",
        why=f"it has {in_words(names)}" if names else f"it is a {type(row).__name__}, not a dict",
        fix=f"rename {meant[0]!r} to {input_name!r}" if meant else _FIX,
    )


# Numbers -------------------------------------------------------------------------------------------------------------

_FIX = "add a column of lengths and name it in length_column_name, or use train_sampling_strategy='random'"


def _length(value: Any, row: int, name: str, source: str) -> int:
    try:
        return len(value)
    except TypeError as error:
        raise _no_length(row, name, value, source, "a sequence") from error


def _count(value: Any, row: int, name: str, source: str) -> int:
    try:
        count = operator.index(value)
    except TypeError as error:
        raise _no_length(row, name, value, source, "a number of tokens") from error
    if count < 0:
        raise _no_length(row, name, value, source, "a number of tokens")
    return count


def _counts(values: Any, rows: Sequence[int] | Numbers, name: str, source: str) -> Numbers:
    """Return a column of lengths, after a check that all are whole numbers from 0 on."""
    if isinstance(values, torch.Tensor):
        values = values.cpu().numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and (len(values) == 0 or values.min() >= 0):
        return values.astype(np.int64)
    pairs = zip(rows, values, strict=True)
    return np.array([_count(value, int(row), name, source) for row, value in pairs], dtype=np.int64)


def _no_length(row: int, name: str, value: Any, source: str, wanted: str) -> DataError:
    shown = repr(value)
    return DataError(
        what=f"row {row} of the {source} has no length to be sorted by",
        why=f"its {name!r} is {shown if len(shown) <= 60 else shown[:57] + '...'}, not {wanted}",
        fix=_FIX,
    )


def _slices(count: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, count)) for start in range(0, count, size))
