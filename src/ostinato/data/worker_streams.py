"""The random streams of workers that draw from torch's seeds, as under transformers: so that a resumed run has them.

torch seeds each worker anew in every epoch, and the worker draws from these streams for all batches that it reads.
What a batch draws then depends on those before it. So a worker that has drawn sends the state of its streams along
with the batch, and a checkpoint holds the state in which each worker reads its next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from ..core.random import RandomState, set_seed

Start = int | RandomState  # a seed, as long as nothing was drawn, or where the streams are


class DrawnBatch(NamedTuple):
    """A batch from a worker, and its streams afterwards; None if it has drawn nothing. torch can pin named tuples."""

    batch: Any
    worker: int
    streams: RandomState | None


@dataclass
class StreamReporter:
    """In a worker: send the streams along with every batch that has drawn from them."""

    _last: RandomState | None = None

    def read(self, read: Callable[[], Any]) -> DrawnBatch:
        """Return the batch that `read` returns."""
        last = self._last or RandomState.capture()
        batch, worker = read(), get_worker_info()
        has_drawn = not last.is_current()
        self._last = RandomState.capture() if has_drawn else last
        return DrawnBatch(batch, 0 if worker is None else worker.id, self._last if has_drawn else None)


@dataclass
class WorkerStreams:
    """In the process that trains: the streams with which each worker reads its next batch.

    The number of a worker is that in a pass over the whole epoch. In a pass from batch 5 on, torch's first worker does
    what the worker number 5 (modulo their count) would have done.
    """

    starts: list[Start]
    first: int = 0  # the number of torch's first worker
    _before: list[Start] = field(default_factory=list)  # `starts` before the newest batch came

    def unpack(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches themselves."""
        for received in batches:
            if not isinstance(received, DrawnBatch):  # a failure
                yield received
                continue
            self._before = list(self.starts)
            if received.streams is not None:
                self.starts[(received.worker + self.first) % len(self.starts)] = received.streams
            yield received.batch
        self._before = list(self.starts)  # the newest was the last, and is not read again

    def list_for_torch(self) -> list[Start]:
        """Return the streams in the order of torch's workers."""
        return self.starts[self.first :] + self.starts[: self.first]

    def list_before_newest(self) -> list[Start]:
        """Return the streams before the newest batch was read."""
        return self._before


@dataclass(frozen=True)
class WorkerSeeder:
    """Seed Python, numpy and torch in a loader's worker, differently in every process and worker.

    >>> WorkerSeeder(workers=2, rank=1).list_seeds(100)
    [102, 103]
    """

    workers: int
    rank: int

    def __call__(self, worker: int) -> None:
        # torch has given this worker a seed of its own; the streams must differ between processes.
        set_seed(self.list_seeds(torch.initial_seed() - worker)[worker])

    def list_seeds(self, base_seed: int) -> list[int]:
        """Return the seeds of all workers, given the number to which torch adds that of the worker."""
        return [(base_seed + worker) % 2**32 + self.workers * self.rank for worker in range(self.workers)]


def seed_worker(worker_id: int, num_workers: int, rank: int) -> None:
    """Seed Python, numpy and torch in a loader's worker, as `WorkerSeeder` does; under transformers' name.

    Args:
        worker_id: The number of the worker, as torch passes it.
        num_workers: The number of workers of each process.
        rank: The number of the process.

    >>> from functools import partial
    >>> worker_init_fn = partial(seed_worker, num_workers=2, rank=0)
    """
    WorkerSeeder(num_workers, rank)(worker_id)


def start_streams(worker: int, starts: Sequence[Start]) -> None:
    """In a worker: start the streams where those of a checkpoint were."""
    start = starts[worker]
    if isinstance(start, RandomState):
        start.restore()
    else:
        set_seed(start)


def export_starts(starts: Sequence[Start]) -> list[Any]:
    """Return the values that a checkpoint holds."""
    return [start.export() if isinstance(start, RandomState) else start for start in starts]


def read_starts(saved: Sequence[Any]) -> list[Start]:
    """Build the streams of workers from the values of `export_starts`."""
    return [
        RandomState.read(start).keep_present_devices("the streams of workers") if isinstance(start, Mapping) else start
        for start in saved
    ]
