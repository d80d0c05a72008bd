"""Batches read where torch's loader asks for them: in a worker, or in this process on their way to pinned memory.

What fails there comes back as a value, and is raised in the main process as what it is: the same type, the same
attributes, with a note that names the row. (torch would make a new exception of the traceback's text.)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, NoReturn

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from ..core.errors import add_note
from . import diagnosis, mistakes
from .columns import RemoveColumnsCollator, has_columns
from .mistakes import Rows
from .samplers import announce_epoch

Collate = Callable[[list[Any]], Any]


def as_it_is(batch: Any) -> Any:
    """What torch is given for a collator: batches come out of the readers below ready-made."""
    return batch


# Streams -------------------------------------------------------------------------------------------------------------


class StandIn(NamedTuple):
    """A row that a process got only because it would have had none."""

    row: Any


class CountedBatch(NamedTuple):
    """A batch, and how many of its rows count."""

    batch: Any
    real_rows: int


class RankStream(IterableDataset[Any]):
    """One process's rows of a stream: of every `world_size * batch_size` rows, process r keeps the r-th `batch_size`.

    All processes yield equally many batches: whoever is left without rows at the end gets a stand-in.
    """

    def __init__(self, all_rows: Any, batch_size: int, rank: int, world_size: int, *, drop_last: bool) -> None:
        self.all_rows = all_rows
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[Any]:
        rows, size = iter(self.all_rows), self.batch_size * self.world_size
        start, end = self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        while batch := list(islice(rows, size)):
            if len(batch) < size and self.drop_last:
                return
            yield from batch[start:end] or [StandIn(batch[0])]

    def __len__(self) -> int:
        total, size = len(self.all_rows), self.batch_size * self.world_size
        whole, left = divmod(total, size)
        own = max(1, min(self.batch_size, left - self.rank * self.batch_size)) if left and not self.drop_last else 0
        return whole * self.batch_size + own

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.all_rows, epoch)


class CountingCollator:
    """Collates, and counts the rows that are no stand-ins."""

    def __init__(self, data_collator: Collate) -> None:
        self.data_collator = data_collator

    def __call__(self, rows: list[Any]) -> CountedBatch:
        if isinstance(rows[0], StandIn):
            return CountedBatch(self.data_collator([rows[0].row]), 0)
        return CountedBatch(self.data_collator(rows), len(rows))


class PlainStream(IterableDataset[Any]):
    """Anything that can be iterated over, in the type by which torch recognises a stream."""

    def __init__(self, all_rows: Any) -> None:
        self.all_rows = all_rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all_rows)

    def __len__(self) -> int:
        return len(self.all_rows)

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.all_rows, epoch)


# Failures ------------------------------------------------------------------------------------------------------------


class WorkerTraceback(Exception):
    """Where in a worker the exception below was raised, as text: tracebacks do not travel."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class Failure:
    """An exception on its way from a worker, through the queue that batches come through."""

    error: Exception
    notes: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Pack an exception; one that cannot travel is raised, and torch does with it what it can."""
        try:
            # As the queue does it. (Its `loads` is no method, whatever type checkers make of it.)
            same = type(ForkingPickler.loads(ForkingPickler.dumps(error))) is type(error)  # type: ignore[attr-defined]
        except Exception:
            same = False
        if not same:
            raise error
        origin = error.__cause__ if isinstance(error.__cause__, Exception) else error
        text = "".join(traceback.format_exception(type(origin), origin, origin.__traceback__))
        return cls(error, tuple(getattr(error, "__notes__", ())), text)

    def reraise(self) -> NoReturn:
        """Raise it here."""
        for note in self.notes:
            add_note(self.error, note)
        raise self.error from WorkerTraceback(self.text)


def unpacked(batches: Any) -> Iterator[Any]:
    """The batches of a loader over a reader; a failure among them is raised."""
    for batch in batches:
        if isinstance(batch, Failure):
            batch.reraise()
        yield batch


# Readers -------------------------------------------------------------------------------------------------------------


class BatchReader(Dataset[Any]):
    """Whole batches of a data set with numbered rows: `reader[[3, 1, 2]]`."""

    def __init__(self, rows: Any, collate: Collate, source: str) -> None:
        self.rows, self.collate, self.source = rows, collate, source

    def __getitem__(self, indices: list[int]) -> Any:
        try:
            return self._read(indices)
        except Exception as error:
            if get_worker_info() is None:
                raise
            return Failure.of(error)

    def _read(self, indices: list[int]) -> Any:
        many = getattr(self.rows, "__getitems__", None)
        found, part = None, []
        try:
            if many:
                found = many(indices)
            else:
                for index in indices:
                    part.append(self.rows[index])
                found = part
            return self.collate(found)
        except Exception as error:
            if found is None:
                reading_failed(error, self.rows, indices if many else indices[len(part) :][:1], self.source)
            collating_failed(error, self.collate, found, Rows(self.source, indices, has_columns(self.rows)))


class StreamReader(IterableDataset[Any]):
    """Whole batches of a stream."""

    def __init__(self, rows: Any, collate: Collate, source: str, batch_size: int, *, drop_last: bool) -> None:
        self.rows, self.collate, self.source = rows, collate, source
        self.batch_size, self.drop_last = batch_size, drop_last

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batches()
        except Exception as error:
            if get_worker_info() is None:
                raise
            yield Failure.of(error)

    def _batches(self) -> Iterator[Any]:
        read, rows = 0, None
        while True:
            found: list[Any] = []
            try:
                rows = iter(self.rows) if rows is None else rows
                for row in islice(rows, self.batch_size):
                    found.append(row)
            except Exception as error:
                mistakes.stream_failed(error, self._share(), read + len(found))
            if not found or (self.drop_last and len(found) < self.batch_size):
                return
            try:
                batch = self.collate(found)
            except Exception as error:
                names = Rows(self._share(), range(read, read + len(found)), has_columns(self.rows))
                collating_failed(error, self.collate, found, names)
            read += len(found)
            yield batch

    def _share(self) -> str:
        """Rows are counted by whoever reads them."""
        worker = get_worker_info()
        readers = [] if worker is None else [f"worker {worker.id}"]
        if isinstance(self.rows, RankStream):
            readers.append(f"process {self.rows.rank}")
        return f"{self.source} (share of {' of '.join(readers)})" if readers else self.source


def begin_worker(worker_id: int, then: Callable[[int], None] | None) -> None:
    """Show the user's data set to whoever asks `get_worker_info().dataset`, not our reader of it; then seed."""
    info = get_worker_info()
    if info is not None:
        rows = info.dataset.rows  # type: ignore[attr-defined]
        object.__setattr__(info, "dataset", getattr(rows, "all_rows", rows))  # torch itself lets nobody assign it
    if then is not None:
        then(worker_id)


def reading_failed(error: Exception, dataset: Any, indices: Sequence[int], source: str) -> NoReturn:
    """Say which row could not be read, or which rows where they are read together."""
    worker = get_worker_info()
    mistakes.reading_failed(
        error, Rows(source, indices), dataset, by="" if worker is None else f" by worker {worker.id}"
    )


def collating_failed(error: Exception, collate: Any, found: list[Any], rows: Rows) -> NoReturn:
    """Say why rows could not be joined, of the rows that the innermost collator got."""
    while True:
        if isinstance(collate, CountingCollator):
            found = [row.row if isinstance(row, StandIn) else row for row in found]
        elif isinstance(collate, RemoveColumnsCollator):
            found = collate.seen(found)
            rows = replace(rows, columns=collate.signature_columns)
        else:
            diagnosis.collating_failed(error, collate, found, rows)
        collate = collate.data_collator
