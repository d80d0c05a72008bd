"""The loss of each set of a mixture.

A micro-batch has one loss. To have one for every set, batches are split by set: each micro-batch then holds rows of
one set only. A loss is a sum and a weight, so the gradient does not change, and the losses of the sets, each with its
weight, add up to the loss of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..core.errors import DataError, add_note
from .batching.split_by_length import SplitBatch
from .dataset_errors import RowNames, RowsError
from .row_types import SetRow


class SourceBatch(SplitBatch):
    """The micro-batches of one batch, each with rows of one set; `sources` are the names of the sets.

    >>> SourceBatch([{"labels": 1}, {"labels": 2}], ["a", "b"]).sources
    ['a', 'b']
    """

    def __init__(self, batches: Iterable[Any] = (), sources: Iterable[str] = ()) -> None:
        super().__init__(batches)
        self.sources = list(sources)


class SourceCollator:
    """Collate the rows of each set separately, with sets in the order in which they appear.

    Rows are those of a tagged `Mixture`, or anything else of which `source_of` knows the set. A collator that splits
    batches itself, as `SplitCollator` does, splits those of every set.

    >>> collate = SourceCollator(lambda rows: rows)
    >>> batch = collate([SetRow("a", 1), SetRow("b", 2), SetRow("a", 3)])
    >>> batch, batch.sources
    (SplitBatch([[1, 3], [2]]), ['a', 'b'])
    """

    splits_batches: ClassVar[bool] = True  # returns lists of micro-batches

    def __init__(
        self, data_collator: Callable[[list[Any]], Any], source_of: Callable[[Any], str] | None = None
    ) -> None:
        self.data_collator = data_collator
        self.source_of = source_of
        self.failed: tuple[str, list[int]] | None = None  # the set whose rows were not joined, and their positions

    def __call__(self, rows: Sequence[Any]) -> SourceBatch:
        places: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(self._find_source(row), []).append(place)
        batches, sources = [], []
        for source, own in places.items():
            batch = self._collate(source, own, self.prepare_rows([rows[place] for place in own]))
            parts = batch if isinstance(batch, SplitBatch) else [batch]
            batches += parts
            sources += [source] * len(parts)
        return SourceBatch(batches, sources)

    def prepare_rows(self, rows: Sequence[Any]) -> list[Any]:
        """Return the rows as the inner collator receives them."""
        return [row.row if isinstance(row, SetRow) else row for row in rows]

    def _find_source(self, row: Any) -> str:
        if self.source_of is not None:
            return self.source_of(row)
        if not isinstance(row, SetRow):
            raise DataError(
                what="a row does not say which set it comes from",
                why=f"it is a {type(row).__name__}, and rows of a tagged mixture are expected",
                fix="read rows from Mixture(..., tagged=True), or pass source_of=",
            )
        return row.source

    def _collate(self, source: str, places: list[int], rows: list[Any]) -> Any:
        try:
            return self.data_collator(rows)
        except RowsError as error:
            self.failed = source, places
            _convert_positions(error, places)
            raise
        except Exception as error:
            self.failed = source, places
            add_note(error, f"ostinato: while rows of set {source!r} of the mixture were collated")
            raise


def _convert_positions(error: RowsError, places: list[int]) -> None:
    """Convert positions in an error: the collator counts the rows of one set, the loader those of the whole batch."""
    rebuild = error.rebuild
    if rebuild is None:
        return

    def rebuild_in_batch(rows: RowNames) -> DataError | None:
        numbers = places if rows.numbers is None else [rows.numbers[place] for place in places]
        return rebuild(replace(rows, numbers=numbers))

    error.rebuild = rebuild_in_batch


class SourceLoss(NamedTuple):
    """The mean loss of a set, and its part of the steps: weights add up to the number of steps."""

    loss: float
    weight: float


class SourceLosses:
    """Sum the loss of each set on the device: the numbers are read once per log, and never in a step.

    >>> losses = SourceLosses(["a", "b"])
    >>> losses.hold("a", torch.tensor(1.5), 0.75)  # three quarters of a step, whose mean loss is 2
    >>> losses.hold("b", torch.tensor(1.0), 0.25)
    >>> losses.commit()
    >>> losses.drain()
    {'a': SourceLoss(loss=2.0, weight=0.75), 'b': SourceLoss(loss=4.0, weight=0.25)}
    """

    def __init__(self, names: Iterable[str], device: torch.device | str = "cpu") -> None:
        self.names = list(names)
        self.pending = torch.zeros(len(self.names), 2, device=device)  # loss and weight of each since the last log
        self._held: list[tuple[int, Tensor, float]] = []

    def hold(self, source: str, loss: Tensor, weight: float) -> None:
        """Keep the loss of a micro-batch until its step is known to be finite.

        `loss` is its share of the step's loss, and `weight` its share of the step's targets (1 / its divisor).
        """
        self._held.append((self.names.index(source), loss.detach(), weight))

    def commit(self) -> None:
        """Count the losses that are held."""
        for place, loss, weight in self._held:
            self.pending[place, 0] += loss.to(self.pending.device)
            self.pending[place, 1] += weight
        self._held.clear()

    def reject(self) -> None:
        """Discard the losses that are held."""
        self._held.clear()

    def drain(self, mean_over_processes: Callable[[Tensor], Tensor] | None = None) -> dict[str, SourceLoss]:
        """Return the mean loss of every set since the last drain; none for a set of which nothing was read."""
        pending = self.pending if mean_over_processes is None else mean_over_processes(self.pending)
        sums = pending.tolist()
        self.pending.zero_()
        return {
            name: SourceLoss(loss / weight, weight)
            for name, (loss, weight) in zip(self.names, sums, strict=True)
            if weight > 0
        }

    def progress(self, mean_over_processes: Callable[[Tensor], Tensor] | None = None) -> dict[str, Any]:
        """Return what a resumed run needs."""
        pending = self.pending if mean_over_processes is None else mean_over_processes(self.pending)
        return {"names": list(self.names), "pending": pending.detach().cpu().clone()}

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Continue from a saved run; a set that is new, or no longer present, starts from zero."""
        for name, amounts in zip(progress["names"], progress["pending"], strict=True):
            if name in self.names:
                self.pending[self.names.index(name)] += amounts.to(self.pending.device)
