"""Read whole batches of a stream where torch's loader requests them, from its start or from a saved position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isgenerator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from .. import dataset_errors
from ..bad_rows import build_unreadable_error
from ..columns import has_columns
from ..dataset_errors import RowNames
from ..row_random import ReadIsolation, Seeder
from ..row_types import BadRow, PaddingRow
from ..samplers.base import announce_epoch
from ..worker_errors import WorkerFailure, raise_inner_collate_error
from .shards import Collate, RankStream, StreamPosition, can_resume, unwrap_stream
from .stream_buckets import StreamWindows

END: Any = object()
MAX_BAD_IN_A_ROW = 100  # successive failed reads after which a stream counts as broken


@dataclass(frozen=True)
class DroppedRows:
    """A replacement for a batch: rows that were read only to get past them."""

    rows: int


@dataclass(frozen=True)
class StreamStart:
    """The position at which a pass begins."""

    position: StreamPosition = field(default_factory=lambda: StreamPosition(0))
    rows: int = 0  # rows of the epoch that are done
    # Where workers share the stream, each of them drops its part of `batches` batches of `rows_per_batch` rows.
    batches: int = 0
    rows_per_batch: int = 0

    @property
    def rows_to_drop(self) -> int:
        """The number of rows that are read only to get past them, where one reader reads the stream."""
        return self.rows if self.position.state is None else self.rows - self.position.row


@dataclass
class Cursor:
    """The progress of one reader of a stream, which may be one of several workers."""

    read: int = 0  # rows that have been read
    returned: int = 0  # rows that were returned in batches, or dropped
    worker: int = 0
    before_window: int = 0  # rows to drop before the first window begins
    to_drop: int = 0
    chunk: int = 1  # rows dropped at a time
    rows: Iterator[Any] | None = None
    waiting: list[tuple[int, Any]] = field(default_factory=list)  # rows of a window and their numbers
    window: StreamPosition | None = None  # the position of the waiting rows
    good: Any = END  # the last row that could be read
    bad: int = 0  # reads that failed since then


class StreamReader(IterableDataset[Any]):
    """Read whole batches of a stream."""

    def __init__(
        self,
        rows: Any,
        collate: Collate,
        source: str,
        batch_size: int,
        *,
        drop_last: bool,
        isolation: ReadIsolation | None = None,
        windows: StreamWindows | None = None,
        skips_bad_rows: bool = False,
        reports_position: bool = True,
    ) -> None:
        self.rows, self.collate, self.source = rows, collate, source
        self.batch_size, self.drop_last = batch_size, drop_last
        self.isolation, self.windows, self.skips_bad_rows = isolation, windows, skips_bad_rows
        self.epoch = 0
        self.start = StreamStart()
        self.position = StreamPosition(0)  # the position before the newest batch was read
        self._reports_position = reports_position and can_resume(rows)
        self._passes = 0  # passes of a persistent worker

    @property
    def size(self) -> int:
        """The rows of a batch over all processes."""
        return self.batch_size * (self.rows.world_size if isinstance(self.rows, RankStream) else 1)

    def __iter__(self) -> Iterator[Any]:
        try:
            if get_worker_info() is not None:
                announce_epoch(self.rows, self.epoch + self._passes)
                self._passes += 1
            yield from self._iterate_batches()
        except Exception as error:
            if get_worker_info() is None:
                raise
            yield WorkerFailure.of(error)

    def _iterate_batches(self) -> Iterator[Any]:
        cursor = self._build_cursor()
        while True:
            if get_worker_info() is None:
                self.position = self._find_position(cursor)
            batch = self._read_seeded_batch(cursor)
            if batch is END:
                return
            yield batch

    def _build_cursor(self) -> Cursor:
        worker, start = get_worker_info(), self.start
        if worker is None:
            place = start.position
            from_beginning = place.state is None
            read = 0 if from_beginning else place.row
            # Rows of windows that are done may be dropped in any order.
            before = place.row if from_beginning and self.windows is not None else 0
            return Cursor(read, read, 0, before, start.rows - read - before, max(self.size, 1))
        own = -(-max(start.batches - worker.id, 0) // worker.num_workers)
        return Cursor(worker=worker.id, to_drop=own * start.rows_per_batch, chunk=max(start.rows_per_batch, 1))

    def _find_position(self, cursor: Cursor) -> StreamPosition:
        """Return the position from which a resumed run would start if its first batch were the one read next."""
        if cursor.waiting and cursor.window is not None:
            return cursor.window
        return StreamPosition(cursor.read, self._read_state(cursor))

    def _read_state(self, cursor: Cursor) -> Any:
        # Before its first row, the state of a stream may still be that of the previous epoch.
        return unwrap_stream(self.rows).state_dict() if self._reports_position and cursor.read > 0 else None

    def _read_seeded_batch(self, cursor: Cursor) -> Any:
        if self.isolation is None:
            return self._read_batch(cursor)
        if get_worker_info() is not None:
            return self._read_batch(cursor, self.isolation.streams.build_seeder(self.epoch + self._passes - 1))
        return (
            self.isolation.read(self.epoch, partial(self._read_batch, cursor))
            if self.isolation.is_needed
            else self._read_batch(cursor)
        )

    def _read_batch(self, cursor: Cursor, seeder: Seeder | None = None) -> Any:
        """Return the next batch, `END`, or `DroppedRows` for rows that are not needed."""
        if cursor.before_window > 0:
            found = self._read_rows(cursor, min(cursor.before_window, cursor.chunk), seeder)
            cursor.before_window -= len(found)
            cursor.returned += len(found)
            return DroppedRows(len(found)) if found else END
        if cursor.to_drop > 0:
            found = self._take_rows(cursor, min(cursor.to_drop, cursor.chunk), seeder)
            cursor.to_drop -= len(found)
            if found and seeder is None and get_worker_info() is not None:
                self._collate_rows(
                    found, cursor
                )  # a collator may draw from the worker's streams, which are not restored
            return DroppedRows(len(found)) if found else END
        place = (cursor.worker << 40) + cursor.returned
        found = self._take_rows(cursor, self.size, seeder)
        if not found or (self.drop_last and len(found) < self.size):
            return END
        if seeder is not None:
            seeder.seed_collator(
                place + (self.rows.rank * self.batch_size if isinstance(self.rows, RankStream) else 0)
            )
        return self._collate_rows(found, cursor)

    def _collate_rows(self, found: list[tuple[int, Any]], cursor: Cursor) -> Any:
        """Return a batch of this process's rows."""
        numbers, rows = self._select_share(found, cursor)
        try:
            return self.collate(rows)
        except Exception as error:
            raise_inner_collate_error(
                error, self.collate, rows, RowNames(self._name_source(), numbers, has_columns(self.rows))
            )

    # ---- rows ----------------------------------------------------------------------------------

    def _take_rows(self, cursor: Cursor, count: int, seeder: Seeder | None) -> list[tuple[int, Any]]:
        """Return the next rows in the order of training, and their numbers."""
        if self.windows is None:
            found = self._read_rows(cursor, count, seeder)
        else:
            while len(cursor.waiting) < count and self._read_window(cursor, seeder, self.windows):
                pass
            found, cursor.waiting = cursor.waiting[:count], cursor.waiting[count:]
        cursor.returned += len(found)
        return found

    def _read_window(self, cursor: Cursor, seeder: Seeder | None, windows: StreamWindows) -> bool:
        """Read a window of rows and sort it; return False at the end of the stream."""
        begun, first = self.start.position, cursor.read
        again = begun.rows > 0 and first == begun.row  # it was begun before, and gets the same order again
        rows, group = (begun.rows, begun.group) if again else (windows.count_window_rows(first), windows.group)
        if get_worker_info() is None:
            cursor.window = StreamPosition(first, begun.state if again else self._read_state(cursor), rows, group)
        found = self._read_rows(cursor, rows, seeder)
        cursor.waiting += windows.sort_rows(found, group, self.epoch, first, cursor.worker)
        return bool(found)

    def _read_rows(self, cursor: Cursor, count: int, seeder: Seeder | None) -> list[tuple[int, Any]]:
        """Return the next rows in the order of the stream, and their numbers."""
        found: list[Any] = []
        first = cursor.read
        try:
            if cursor.rows is None:
                cursor.rows = iter(unwrap_stream(self.rows))
            if seeder is None and not self.skips_bad_rows:
                for row in islice(cursor.rows, count):
                    found.append(row)
            else:
                while len(found) < count and (row := self._read_row(cursor, first + len(found), seeder)) is not END:
                    found.append(row)
        except Exception as error:
            dataset_errors.raise_stream_error(error, self._name_source(), first + len(found))
        cursor.read += len(found)
        return list(enumerate(found, start=first))

    def _read_row(self, cursor: Cursor, number: int, seeder: Seeder | None) -> Any:
        assert cursor.rows is not None
        if seeder is not None:
            seeder.seed_row((cursor.worker << 40) + number)
        if not self.skips_bad_rows:
            return next(cursor.rows, END)
        try:
            row = next(cursor.rows, END)
        except Exception as error:
            if isgenerator(cursor.rows):
                dataset_errors.raise_generator_error(error)
            cursor.bad += 1
            if cursor.bad >= MAX_BAD_IN_A_ROW:
                raise build_unreadable_error(self.source, cursor.bad, error) from error
            return BadRow(number, f"{type(error).__name__}: {error}")
        cursor.bad, cursor.good = 0, row
        return row

    def _select_share(self, found: Sequence[tuple[int, Any]], cursor: Cursor) -> tuple[list[int], list[Any]]:
        """Return this process's rows of a batch, and their numbers; a `PaddingRow` if it has no readable row."""
        own = self.rows.select_share(list(found)) if isinstance(self.rows, RankStream) else found
        numbers, rows = [number for number, _ in own], [row for _, row in own]
        if isinstance(self.rows, RankStream) and all(isinstance(row, BadRow) for row in rows):
            good = next((row for _, row in found if not isinstance(row, BadRow)), cursor.good)
            if good is END:
                raise build_unreadable_error(self.source, cursor.read, None)
            numbers, rows = [*numbers, found[0][0]], [*rows, PaddingRow(good)]
        return numbers, rows

    def _name_source(self) -> str:
        """Return the name of the data set. A worker counts only the rows that it reads, so it adds its own number."""
        worker = get_worker_info()
        return self.source if worker is None else f"{self.source} (share of worker {worker.id})"
