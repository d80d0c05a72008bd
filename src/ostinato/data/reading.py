"""Batches read where torch's loader asks for them: in a worker, or in this process on their way to pinned memory.

What fails there comes back as a value, and is raised in the main process as what it is: the same type, the same
attributes, with a note that names the row. (torch would make a new exception of the traceback's text.)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, NoReturn

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from ..core.errors import add_note
from . import diagnosis, mistakes
from .bad_rows import BadRow, SkippingCollator
from .columns import RemoveColumnsCollator, has_columns
from .cutting import SplitCollator
from .mistakes import Rows
from .mixture import Mixture
from .row_streams import Apart, Draw, Seeder
from .samplers import announce_epoch
from .sources import SourceCollator

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


def stream_state(rows: Any) -> Any:
    """Where a stream stands, if it can tell and be put there again."""
    rows = getattr(rows, "all_rows", rows)
    tell = getattr(rows, "state_dict", None)
    return tell() if callable(tell) and callable(getattr(rows, "load_state_dict", None)) else None


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

    def __init__(self, rows: Any, collate: Collate, source: str, apart: Apart | None = None) -> None:
        self.rows, self.collate, self.source = rows, collate, source
        self.apart = apart
        self._epoch: int | None = None

    def __getitem__(self, wanted: list[int] | Draw) -> Any:
        try:
            if not isinstance(wanted, Draw):
                return self._read(wanted)
            return self._read_here(wanted) if get_worker_info() is None else self._read_in_worker(wanted)
        except Exception as error:
            if get_worker_info() is None:
                raise
            return Failure.of(error)

    def _read_here(self, wanted: Draw) -> Any:
        assert self.apart is not None
        if not self.apart.is_needed:
            return self._read(wanted.indices)
        return self.apart.read(wanted.epoch, lambda seeder: self._read(wanted.indices, seeder, wanted.place))

    def _read_in_worker(self, wanted: Draw) -> Any:
        assert self.apart is not None
        if wanted.epoch != self._epoch:  # a worker that persists is not told otherwise
            self._epoch = wanted.epoch
            announce_epoch(self.rows, wanted.epoch)
        return self._read(wanted.indices, self.apart.streams.of(wanted.epoch), wanted.place)

    def _read(self, indices: list[int], seeder: Seeder | None = None, place: int = 0) -> Any:
        many = getattr(self.rows, "__getitems__", None)
        found, part = None, []
        try:
            if many:
                if seeder is not None:
                    seeder.row(place)
                found = many(indices)
            else:
                for index in indices:
                    if seeder is not None:
                        seeder.row(place + len(part))
                    part.append(self.rows[index])
                found = part
            if seeder is not None:
                seeder.join(place)
            return self.collate(found)
        except Exception as error:
            if found is None:
                reading_failed(error, self.rows, indices if many else indices[len(part) :][:1], self.source)
            rows = Rows(self.source, indices, has_columns(self.rows))
            joining_failed(error, self.collate, found, rows, self.rows)


SKIPPED = CountedBatch(None, 0)
END: Any = object()


@dataclass
class Cursor:
    """How far a stream is read by one reader, which may be one of several workers."""

    own: int  # batches
    worker: int = 0
    workers: int = 1
    read: int = 0  # rows
    rows: Iterator[Any] | None = None

    @property
    def number(self) -> int:
        """Of the next batch among those of all workers, which take turns; lower if some have come to their end."""
        return self.own * self.workers + self.worker

    @property
    def place(self) -> int:
        return (self.worker << 40) + self.own

    def advance(self, rows: int) -> None:
        self.own, self.read = self.own + 1, self.read + rows


class StreamReader(IterableDataset[Any]):
    """Whole batches of a stream."""

    def __init__(
        self,
        rows: Any,
        collate: Collate,
        source: str,
        batch_size: int,
        *,
        drop_last: bool,
        apart: Apart | None = None,
    ) -> None:
        self.rows, self.collate, self.source = rows, collate, source
        self.batch_size, self.drop_last = batch_size, drop_last
        self.apart = apart
        self.epoch = 0
        self.first = 0  # the number of the first batch, where the stream itself goes on in the middle of an epoch
        self.skip = 0  # batches that are read and not joined
        self.state: Any = None  # of the stream, before the newest batch was read
        self._passes = 0  # of a worker that persists

    def __iter__(self) -> Iterator[Any]:
        try:
            if get_worker_info() is not None:
                announce_epoch(self.rows, self.epoch + self._passes)
                self._passes += 1
            yield from self._batches()
        except Exception as error:
            if get_worker_info() is None:
                raise
            yield Failure.of(error)

    def _batches(self) -> Iterator[Any]:
        worker = get_worker_info()
        cursor = Cursor(self.first) if worker is None else Cursor(0, worker.id, worker.num_workers)
        while True:
            if worker is None:
                self.state = stream_state(self.rows)
            batch = self._seeded(cursor)
            if batch is END:
                return
            yield batch

    def _seeded(self, cursor: Cursor) -> Any:
        if self.apart is None:
            return self._next(cursor)
        if get_worker_info() is not None:
            return self._next(cursor, self.apart.streams.of(self.epoch + self._passes - 1))
        return self.apart.read(self.epoch, partial(self._next, cursor)) if self.apart.is_needed else self._next(cursor)

    def _next(self, cursor: Cursor, seeder: Seeder | None = None) -> Any:
        """The next batch, `END`, or `SKIPPED` for one that nobody wants."""
        found: list[Any] = []
        if seeder is not None:
            seeder.row(cursor.place)
        try:
            cursor.rows = iter(self.rows) if cursor.rows is None else cursor.rows
            for row in islice(cursor.rows, self.batch_size):
                found.append(row)
        except Exception as error:
            mistakes.stream_failed(error, self._share(), cursor.read + len(found))
        if not found or (self.drop_last and len(found) < self.batch_size):
            return END
        if seeder is not None:
            seeder.join(cursor.place)
        try:
            batch = self.collate(found) if cursor.number >= self.skip else SKIPPED
        except Exception as error:
            read = range(cursor.read, cursor.read + len(found))
            names = Rows(self._share(), read, has_columns(self.rows))
            collating_failed(error, self.collate, found, names)
        cursor.advance(len(found))
        return batch

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


def joining_failed(error: Exception, collate: Any, found: list[Any], rows: Rows, dataset: Any) -> NoReturn:
    """Say why rows could not be joined; of a mixture also in which columns its sets differ."""
    if not isinstance(dataset, Mixture):
        collating_failed(error, collate, found, rows)
    try:
        collating_failed(error, collate, found, _in_their_set(rows, collate, dataset))
    except Exception as told:
        dataset.note_columns(told)
        raise


def _in_their_set(rows: Rows, collate: Any, mixture: Mixture) -> Rows:
    """Rows of a mixture by their numbers in the set that they come from."""
    failed = collate.failed if isinstance(collate, SourceCollator) else None
    if failed is None or rows.numbers is None:
        return rows
    numbers, name = [mixture.locate(number)[1] for number in rows.numbers], failed[0]
    table = has_columns(mixture.sets[name])
    return replace(rows, source=f"set {name!r} of the mixture", numbers=numbers, table=table)


def _of_one_set(collate: SourceCollator, found: list[Any], rows: Rows, error: Exception) -> tuple[list[Any], Rows]:
    """The rows that the collator inside got: those of one set. Our own collators know their places in the batch."""
    seen = collate.seen(found)
    if collate.failed is None or isinstance(error, mistakes.RowsError):
        return seen, rows
    places = collate.failed[1]
    numbers = rows.numbers and [rows.numbers[place] for place in places]
    return [seen[place] for place in places], replace(rows, numbers=numbers)


def collating_failed(error: Exception, collate: Any, found: list[Any], rows: Rows) -> NoReturn:
    """Say why rows could not be joined, of the rows that the innermost collator got."""
    while True:
        if isinstance(collate, SplitCollator):
            pass  # it has tried the rows uncut
        elif isinstance(collate, SkippingCollator):
            kept = [place for place, row in enumerate(found) if not isinstance(row, BadRow)]
            numbers = None if rows.numbers is None else [rows.numbers[place] for place in kept]
            found, rows = collate.seen(found), replace(rows, numbers=numbers)
        elif isinstance(collate, SourceCollator):
            found, rows = _of_one_set(collate, found, rows, error)
        elif isinstance(collate, CountingCollator):
            found = [row.row if isinstance(row, StandIn) else row for row in found]
        elif isinstance(collate, RemoveColumnsCollator):
            found = collate.seen(found)
            rows = replace(rows, columns=collate.signature_columns)
        else:
            diagnosis.collating_failed(error, collate, found, rows)
        collate = collate.data_collator
