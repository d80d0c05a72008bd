"""Split a batch by length into micro-batches with little padding: `split_by_length`.

The rows of an optimizer step stay the same, and so does its gradient; but one long row no longer makes all others in
its batch as long. It requires nothing of the model.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

# The cost of a micro-batch besides its tokens, in tokens. One forward and backward of BERT on one CPU thread, fitted
# as a + b * tokens, gives a / b = 94 (hidden size 128, 2 layers), 86 (128, 4), 50 (256, 4), 40 (312, 4), 42 (512, 4).
# It need not be exact: with 32, 64 or 128 the same batches of BERT (128, 4) took 1.26, 1.24 and 1.24 s, and 5.8 s
# without splitting. Where launching kernels takes longer than computing, as on a GPU with little to do, it is larger.
OVERHEAD = 64

Collate = Callable[[list[Any]], Any]


# Splitting -----------------------------------------------------------------------------------------------------------


def split_into_runs(
    lengths: Sequence[int] | Sequence[Sequence[int]], *, overhead: float = OVERHEAD, max_area: int | None = None
) -> list[range]:
    """Divide rows into runs so that padded tokens plus `overhead` tokens for every run are as few as possible.

    Rows keep their order; runs are best if rows are sorted from long to short. A row with several padded columns has
    several lengths, and a run costs its rows times the sum of its longest in every column. `max_area` limits the
    tokens of a run of more than one row; a run never has more than all rows together.

    >>> split_into_runs([100, 98, 20, 19, 18], overhead=64)
    [range(0, 2), range(2, 5)]
    >>> split_into_runs([100, 98, 20, 19, 18], overhead=1000)
    [range(0, 5)]
    >>> split_into_runs([(50, 50), (49, 2), (48, 1)], overhead=64)
    [range(0, 1), range(1, 3)]
    """
    if len(lengths) == 0:
        return []
    several = isinstance(lengths[0], Sequence)
    columns: list[Any] = list(zip(*lengths, strict=True)) if several else [lengths]  # type: ignore[arg-type]
    if len(columns) == 1 and max_area is None and _is_descending(columns[0]):
        ends = _split_descending(columns[0], overhead)
    else:
        ends = _split_any(columns, overhead, max_area)
    runs, start = [], 0
    while start < len(lengths):
        runs.append(range(start, ends[start]))
        start = ends[start]
    return runs


def _is_descending(lengths: Sequence[int]) -> bool:
    return all(map(operator.ge, lengths, lengths[1:]))


def _split_descending(lengths: Sequence[int], overhead: float) -> list[int]:
    """Return, for every row, the end of the run that begins with it. Linear in the number of rows.

    The rows are taken from the last to the first. Rows i to j cost (j - i) * length of i, so that each end j is a line
    over the length of i, with slope j. The lowest line is found on the lower hull, along which the answer only moves
    forward: slopes fall and lengths grow.
    """
    count = len(lengths)
    cost: list[float] = [0.0] * (count + 1)
    ends = [count] * count
    hull, head = [count], 0
    for start in range(count - 1, -1, -1):
        length = lengths[start]
        end = hull[head]
        best = cost[end] + end * length
        while head + 1 < len(hull):
            other = hull[head + 1]
            value = cost[other] + other * length
            if value >= best:
                break
            head, end, best = head + 1, other, value
        ends[start] = end
        cost[start] = best - start * length + overhead
        while len(hull) - head > 1 and _is_above(hull[-1], hull[-2], start, cost):
            hull.pop()
        hull.append(start)
    return ends


def _is_above(middle: int, before: int, after: int, cost: list[float]) -> bool:
    """Return whether the line of `middle` is nowhere below both its neighbours on the hull."""
    return (cost[after] - cost[before]) * (before - middle) <= (cost[middle] - cost[before]) * (before - after)


def _split_any(columns: Sequence[Sequence[int]], overhead: float, max_area: int | None) -> list[int]:
    """Return the same for any order, several columns and a limited area, by a search over all runs."""
    count = len(columns[0])
    cost = np.zeros(count + 1)
    ends = [count] * count
    longest = [np.zeros(count) for _ in columns]  # at position j - 1: the longest of the rows from `start` to j
    rows = np.arange(1.0, count + 1)
    for start in range(count - 1, -1, -1):
        area = 0.0
        for so_far, column in zip(longest, columns, strict=True):
            tail = so_far[start:]
            area = area + np.maximum(tail, column[start], out=tail)
        area = area * rows[: count - start]
        if max_area is not None:
            area = area[: max(1, int(area.searchsorted(max_area, side="right")))]
        total = area + cost[start + 1 : start + 1 + len(area)]
        best = int(total.argmin())
        ends[start] = start + 1 + best
        cost[start] = total[best] + overhead
    return ends


# Lengths -------------------------------------------------------------------------------------------------------------


def _find_sized_columns(row: Any) -> list[str]:
    """Return the names of the columns that have a length."""
    return [name for name, value in row.items() if _has_length(value)] if isinstance(row, Mapping) else []


def _has_length(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return not (value and isinstance(value[0], str))
    if isinstance(value, torch.Tensor):
        return value.ndim > 0
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.dtype.kind not in "OSU"
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _measure_columns(rows: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the lengths of every padded column, each once: a mask is as long as what it masks, and costs no more.

    The first row decides which columns there are. Empty if other rows lack them: the collator handles that.
    """
    try:
        found = [tuple([len(row[name]) for row in rows]) for name in _find_sized_columns(rows[0])] if rows else []
    except (KeyError, TypeError, IndexError):
        return []
    return list(dict.fromkeys(found))


def _plan_runs(
    columns: list[tuple[int, ...]], overhead: float, max_area: int | None = None
) -> tuple[list[int], list[range]]:
    """Return row numbers from long to short, and the runs into which they are divided."""
    lengths = list(zip(*columns, strict=True))
    if len(columns) == 1:
        order = sorted(range(len(lengths)), key=columns[0].__getitem__, reverse=True)
        return order, split_into_runs([columns[0][row] for row in order], overhead=overhead, max_area=max_area)
    totals = [sum(each) for each in lengths]
    order = sorted(range(len(lengths)), key=totals.__getitem__, reverse=True)
    return order, split_into_runs([lengths[row] for row in order], overhead=overhead, max_area=max_area)


# Collating -----------------------------------------------------------------------------------------------------------


class SplitBatch(list[Any]):
    """The micro-batches of one batch, longest first. A list, which workers and pinned memory can handle.

    >>> SplitBatch([{"labels": 1}, {"labels": 2}])
    SplitBatch([{'labels': 1}, {'labels': 2}])
    """

    def __repr__(self) -> str:
        return f"SplitBatch({super().__repr__()})"


def flatten_micro_batches(batches: Iterable[Any]) -> list[Any]:
    """Return the batches, each split batch replaced by its micro-batches.

    >>> flatten_micro_batches([{"labels": 0}, SplitBatch([{"labels": 1}, SplitBatch([{"labels": 2}])])])
    [{'labels': 0}, {'labels': 1}, {'labels': 2}]
    """
    found = []
    for batch in batches:
        found.extend(flatten_micro_batches(batch) if isinstance(batch, SplitBatch) else [batch])
    return found


class CountedBatches(Iterator[Any]):
    """Batches that may be split, with the numbers of micro-batches of those taken since `begin`."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches
        self.begin()

    def begin(self) -> None:
        """Reset the counts."""
        self.sizes: list[int] = []
        self.sources: list[str] = []  # for a mixture: the name of the set of each micro-batch
        self.skipped: list[Any] = []  # rows that could not be read
        self.padding_batches: list[bool] = []  # True for a batch of which no row could be read

    def __next__(self) -> Any:
        batch = next(self.batches)
        self.sizes.append(len(flatten_micro_batches([batch])))
        self.sources += getattr(batch, "sources", ())
        self.skipped += getattr(batch, "skipped", ())
        self.padding_batches.append(getattr(batch, "is_padding_batch", False))
        return batch


class SplitCollator:
    """Collate rows into a `SplitBatch`: micro-batches of rows of similar length, divided where it saves most.

    Rows that have no length, or all the same, are one micro-batch, in their own order. No micro-batch takes more
    memory than `rows_at_once` of the longest rows.

    >>> collate = SplitCollator(lambda rows: [len(row["input_ids"]) for row in rows])
    >>> collate([{"input_ids": range(length)} for length in (10, 300, 11, 290)])
    SplitBatch([[300, 290], [11, 10]])
    """

    splits_batches = True

    def __init__(
        self,
        data_collator: Collate,
        overhead: float = OVERHEAD,
        *,
        pad_to_multiple_of: int | None = None,
        rows_at_once: int | None = None,
    ) -> None:
        self.data_collator = data_collator
        self.overhead = overhead
        self.rows_at_once = rows_at_once
        self.multiple = pad_to_multiple_of or find_pad_multiple(data_collator) or 1

    def __call__(self, rows: list[Any]) -> SplitBatch:
        parts = self.split(rows)
        if len(parts) == 1:
            return SplitBatch([self.data_collator(rows)])
        try:
            return SplitBatch([self.data_collator(part) for part in parts])
        except Exception as error:
            failure = error
        self.data_collator(rows)  # fails as well, and names rows by their positions in the whole batch
        raise failure

    def split(self, rows: list[Any]) -> list[list[Any]]:
        """Return the rows of every micro-batch."""
        columns = [
            column for column in _measure_columns(rows) if min(column) != max(column)
        ]  # others are never padded
        if self.multiple > 1:
            columns = [tuple(-(-length // self.multiple) * self.multiple for length in each) for each in columns]
        if not columns:
            return self._split_equal_rows(rows)
        order, runs = _plan_runs(columns, self.overhead, self._find_max_area(columns))
        return [rows] if len(runs) == 1 else [[rows[order[place]] for place in run] for run in runs]

    def _find_max_area(self, columns: list[tuple[int, ...]]) -> int | None:
        """Return the tokens of a micro-batch of `rows_at_once` of the longest rows: what memory must hold."""
        if self.rows_at_once is None or len(columns[0]) <= self.rows_at_once:
            return None
        return self.rows_at_once * sum(map(max, columns))

    def _split_equal_rows(self, rows: list[Any]) -> list[list[Any]]:
        """Return rows of equal length in parts of `rows_at_once`."""
        size = self.rows_at_once or len(rows)
        return [rows] if len(rows) <= size else [rows[start : start + size] for start in range(0, len(rows), size)]


def splits_steps(loader: Any) -> bool:
    """Return whether the batches of a loader hold the rows of whole optimizer steps, which are split."""
    return any(isinstance(collator, SplitCollator) for collator in _iterate_collators(loader))


def splits_batches(loader: Any) -> bool:
    """Return whether the batches of a loader may be split into micro-batches."""
    return any(getattr(collator, "splits_batches", False) for collator in _iterate_collators(loader))


def _iterate_collators(loader: Any) -> Iterator[Any]:
    """Yield the collator of a loader, the one inside it, and so on."""
    collator = getattr(loader, "collate_fn", None)
    while collator is not None:
        yield collator
        collator = getattr(collator, "data_collator", None)


def find_pad_multiple(collator: Any) -> int | None:
    """Return the multiple to which a collator, or the one inside it, rounds lengths up."""
    while collator is not None:
        multiple = getattr(collator, "pad_to_multiple_of", None)
        if isinstance(multiple, int):
            return multiple
        collator = getattr(collator, "data_collator", None)
    return None


# Possible savings ----------------------------------------------------------------------------------------------------


class PaddingMeter:
    """Measure how much of a run's batches is padding, and how much of it splitting by length would save.

    Only the first `batches` batches are measured: as rows, or as collated batches.

    >>> meter = PaddingMeter()
    >>> meter.add([{"input_ids": range(length)} for length in (10, 300, 11, 290)])
    >>> f"{meter.share_of_padding:.0%}, {meter.saved:.0%}"
    '49%, 48%'
    >>> meter.advise()
    '49 % of the tokens are padding: split_by_length=True would save 48 % of the tokens'
    """

    def __init__(self, overhead: float = OVERHEAD, *, batches: int = 32) -> None:
        self.overhead = overhead
        self.batches_left = batches
        self.real = 0
        self.padded = 0
        self.split = 0  # padded tokens if batches were split

    def add(self, rows: Sequence[Any]) -> None:
        """Count a batch that is not collated yet."""
        if self.batches_left > 0:
            self._add_lengths(_measure_columns(rows))

    def add_batch(self, batch: Any) -> None:
        """Count a collated batch by its masks; one without masks, or not on the CPU, is not counted."""
        if self.batches_left <= 0 or not isinstance(batch, Mapping):
            return
        masks = [batch.get(name) for name in ("attention_mask", "decoder_attention_mask")]
        columns = [
            tuple(mask.count_nonzero(dim=1).tolist())
            for mask in masks
            if isinstance(mask, torch.Tensor) and mask.ndim == 2 and mask.device.type == "cpu"
        ]
        self._add_lengths(list(dict.fromkeys(columns)))

    @property
    def share_of_padding(self) -> float:
        """The share of tokens that are padding."""
        return 1 - self.real / self.padded if self.padded else 0.0

    @property
    def saved(self) -> float:
        """The share of tokens that `split_by_length` would save."""
        return 1 - self.split / self.padded if self.padded else 0.0

    def advise(self, least: float = 0.2) -> str | None:
        """Return a line of advice, if at least the share `least` would be saved."""
        if self.saved < least:
            return None
        return (
            f"{self.share_of_padding * 100:.0f} % of the tokens are padding: split_by_length=True would save "
            f"{self.saved * 100:.0f} % of the tokens"
        )

    def _add_lengths(self, columns: list[tuple[int, ...]]) -> None:
        if not columns:
            return
        self.batches_left -= 1
        order, runs = _plan_runs(columns, self.overhead)
        self.real += sum(map(sum, columns))
        self.padded += _compute_area(columns, order)
        self.split += sum(_compute_area(columns, [order[place] for place in run]) for run in runs)


def _compute_area(columns: list[tuple[int, ...]], rows: list[int]) -> int:
    return len(rows) * sum(max(column[row] for row in rows) for column in columns)
