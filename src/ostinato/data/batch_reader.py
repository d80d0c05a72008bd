"""Read batches where torch's loader requests them: in a worker, or in this process for pinned memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset, get_worker_info

from .bad_rows import SkippingRows
from .columns import has_columns
from .dataset_errors import RowNames
from .row_random import BatchRequest, ReadIsolation, Seeder
from .samplers.base import announce_epoch
from .streams.shards import Collate, unwrap_stream
from .worker_errors import WorkerFailure, raise_collate_error, raise_read_error
from .worker_streams import Start, StreamReporter, start_streams


def return_unchanged(batch: Any) -> Any:
    """Return the batch unchanged. It is torch's collator, because the readers return finished batches."""
    return batch


class BatchReader(Dataset[Any]):
    """Read whole batches of a data set with numbered rows: `reader[[3, 1, 2]]`."""

    def __init__(
        self,
        rows: Any,
        collate: Collate,
        source: str,
        isolation: ReadIsolation | None = None,
        reporter: StreamReporter | None = None,
    ) -> None:
        self.rows, self.collate, self.source = rows, collate, source
        self.isolation, self.reporter = isolation, reporter
        self._epoch: int | None = None

    def __getitem__(self, wanted: list[int] | BatchRequest) -> Any:
        try:
            if not isinstance(wanted, BatchRequest):
                return self._read(wanted) if self.reporter is None else self.reporter.read(lambda: self._read(wanted))
            return self._read_in_process(wanted) if get_worker_info() is None else self._read_in_worker(wanted)
        except Exception as error:
            if get_worker_info() is None:
                raise
            return WorkerFailure.of(error)

    def _read_in_process(self, wanted: BatchRequest) -> Any:
        assert self.isolation is not None
        if not self.isolation.is_needed:
            return self._read(wanted.indices)
        return self.isolation.read(wanted.epoch, lambda seeder: self._read(wanted.indices, seeder, wanted.place))

    def _read_in_worker(self, wanted: BatchRequest) -> Any:
        assert self.isolation is not None
        if wanted.epoch != self._epoch:  # a persistent worker learns of it in no other way
            self._epoch = wanted.epoch
            announce_epoch(self.rows, wanted.epoch)
        return self._read(wanted.indices, self.isolation.streams.build_seeder(wanted.epoch), wanted.place)

    def _read(self, indices: list[int], seeder: Seeder | None = None, place: int = 0) -> Any:
        many = getattr(self.rows, "__getitems__", None)
        found, part = None, []
        try:
            if many:
                if seeder is not None:
                    seeder.seed_row(place)
                found = many(indices)
            else:
                for index in indices:
                    if seeder is not None:
                        seeder.seed_row(place + len(part))
                    part.append(self.rows[index])
                found = part
            if seeder is not None:
                seeder.seed_collator(place)
            return self.collate(found)
        except Exception as error:
            if found is None:
                raise_read_error(error, self.rows, indices if many else indices[len(part) :][:1], self.source)
            rows = RowNames(self.source, indices, has_columns(self.rows))
            raise_collate_error(error, self.collate, found, rows, self.rows)


def set_up_worker(worker_id: int, then: Callable[[int], None] | None, starts: Sequence[Start] | None) -> None:
    """Make `get_worker_info().dataset` the user's data set instead of the reader around it; then seed.

    `starts`: where the random streams of each worker start, if not by a seed of torch's.
    """
    info = get_worker_info()
    if info is not None:
        rows = unwrap_stream(info.dataset.rows)  # type: ignore[attr-defined]
        rows = rows.rows if isinstance(rows, SkippingRows) else rows
        object.__setattr__(info, "dataset", rows)  # torch forbids plain assignment
    if then is not None:
        then(worker_id)
    if starts is not None:
        start_streams(worker_id, starts)
