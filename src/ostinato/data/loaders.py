"""From a data set to an iterator over batches, in this process's share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler

from ..config.plan import LoaderSettings
from ..core.errors import ConfigError, DataError
from ..core.notices import note_once
from ..core.random import RandomState, set_seed
from .samplers import EpochSampler, ShardedBatchSampler, announce_epoch
from .sizes import has_length, is_iterable, length_of, num_examples

__all__ = [
    "Loader",
    "RankStream",
    "batches_ahead",
    "build_loader",
    "has_length",
    "is_iterable",
    "length_of",
    "num_examples",
    "seed_worker",
]

Batch = TypeVar("Batch")
Collate = Callable[[list[Any]], Any]


def build_loader(
    dataset: Any,
    *,
    batch_size: int,
    sampler: Sampler[int] | Iterable[int] | None,
    collate_fn: Collate,
    settings: LoaderSettings,
    training: bool,
) -> Loader:
    """A loader of this process's batches, `batch_size` rows each.

    Without a `sampler` rows come as they are. A data set that can only be iterated over has its own order; every
    process then reads all of it and keeps its batches.

    >>> loader = build_loader(
    ...     rows,
    ...     batch_size=8,
    ...     sampler=EpochSampler(len(rows)),
    ...     collate_fn=default_data_collator,
    ...     settings=settings,
    ...     training=True,
    ... )  # doctest: +SKIP
    """
    if not training and settings.drop_last:
        settings = replace(settings, drop_last=False)  # what is evaluated is counted: every row, once
    options = _worker_options(settings, training=training, iterable=is_iterable(dataset))
    if is_iterable(dataset):
        return _stream_loader(dataset, batch_size, collate_fn, settings, training, options)
    if sampler is None:
        sampler = SequentialSampler(dataset)
    elif training:
        sampler = _repeatable(sampler, settings)
    global_batch_size = batch_size * (1 if _is_sharded(sampler) else settings.world_size)
    _check_rows(dataset, sampler, global_batch_size, settings, training)
    if global_batch_size == batch_size:
        options.update(batch_size=batch_size, sampler=sampler, drop_last=settings.drop_last)
    else:
        options["batch_sampler"] = ShardedBatchSampler(
            sampler, batch_size, settings.rank, settings.world_size, drop_last=settings.drop_last
        )
    return Loader(dataset, training=training, collate_fn=collate_fn, **options)


# Reads of an epoch after which reading that drew no random number is taken to never draw one. Noting down the streams
# before every read costs as much as a step of a tiny model.
WATCHED_READS = 8


@dataclass
class Watch:
    """Notes down the random streams before a batch is read, as long as reading may draw from them."""

    reads: int  # still to be watched
    draws: bool = False

    def begin(self) -> RandomState | None:
        return RandomState.capture() if self.reads > 0 or self.draws else None

    def end(self, before: RandomState | None) -> None:
        if self.reads > 0 and before is not None:
            self.reads -= 1
            self.draws = self.draws or not before.is_current()


@dataclass(frozen=True)
class Replay:
    """Reads the batch that was read ahead of a checkpoint as it was read then, and goes on from the checkpoint."""

    streams: RandomState | None  # before that batch was read
    end: Callable[[], None]  # puts the streams of the checkpoint back

    def begin(self) -> None:
        if self.streams is not None:
            self.streams.restore()


class Loader(DataLoader[Any]):
    """A `DataLoader` that fetches one batch ahead, counts its epochs, and knows which rows of a batch are real.

    The batch after the one in hand is always read already: collators and models that draw random numbers then draw
    them in the order they do under transformers. Before the first batch is asked for nothing is read, nothing drawn.
    """

    def __init__(self, dataset: Any, *, training: bool, **options: Any) -> None:
        super().__init__(dataset, **options)
        self.training = training
        self.epoch = 0
        # Where the random streams stood before the newest batch was read: rows and collators may have drawn from them.
        self.before_read: RandomState | None = None
        self.replay: Replay | None = None
        self._real_rows: list[int] = []  # of a stream shared between processes: known once a batch has been read

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self.training:
            self.set_epoch(self.epoch)
        yield from batches_ahead(self._batches())
        self.epoch += 1  # a second pass is another epoch; a pass that was broken off is not over

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next pass is; samplers and data sets that shuffle follow it."""
        self.epoch = epoch
        for part in (self.batch_sampler, self.sampler, self.dataset):
            announce_epoch(part, epoch)

    def real_rows(self, batch_number: int) -> int | None:
        """How many rows of batch `batch_number` (from 0) count; 0 for a stand-in. None: all that it holds."""
        if isinstance(self.batch_sampler, ShardedBatchSampler):
            return self.batch_sampler.real_rows(batch_number)
        return self._real_rows[batch_number] if isinstance(self.dataset, RankStream) else None

    def _batches(self) -> Iterator[Any]:
        if isinstance(self.dataset, RankStream):
            return self._counted_batches()
        if (
            self.num_workers == 0
            and not self.pin_memory
            and self.batch_sampler is not None
            and not is_iterable(self.dataset)
        ):
            return self._read_here()
        return super().__iter__()

    def _read_here(self) -> Iterator[Any]:
        """What torch's iterator does without workers, without its overhead: half the cost of a small batch."""
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)  # torch draws a seed for its workers
        rows, collate = self.dataset, self.collate_fn
        many = getattr(rows, "__getitems__", None)
        batches = iter(self.batch_sampler)  # type: ignore[arg-type]
        first = next(batches, None)  # here an order that is random is drawn
        if self.replay is not None:
            self.replay.begin()
        watch = Watch(reads=WATCHED_READS if self.training else 0)
        for indices in chain([] if first is None else [first], batches):
            self.before_read = watch.begin()
            batch = collate(many(indices) if many else [rows[index] for index in indices])
            watch.end(self.before_read)
            if self.replay is not None:
                self.replay.end()
                self.replay = None
            yield batch

    def _counted_batches(self) -> Iterator[Any]:
        self._real_rows = []
        for batch, real_rows in super().__iter__():
            self._real_rows.append(real_rows)
            yield batch


def batches_ahead(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches, each after its successor has been fetched.

    >>> def count():
    ...     for number in range(3):
    ...         print("fetch", number)
    ...         yield number
    >>> for number in batches_ahead(count()):
    ...     print("use", number)
    fetch 0
    fetch 1
    use 0
    fetch 2
    use 1
    use 2
    """
    iterator = iter(batches)
    for batch in iterator:
        for following in iterator:
            yield batch
            batch = following
        yield batch


def seed_worker(worker_id: int, num_workers: int, rank: int) -> None:
    """Seed Python, numpy and torch in a loader's worker, differently in every process and worker.

    >>> worker_init_fn = partial(seed_worker, num_workers=2, rank=0)
    """
    # torch has seeded this worker with a number of its own; the same streams must not run in every process.
    set_seed(torch.initial_seed() % 2**32 + num_workers * rank)


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


def _stream_loader(
    dataset: Any,
    batch_size: int,
    collate_fn: Collate,
    settings: LoaderSettings,
    training: bool,
    options: dict[str, Any],
) -> Loader:
    if not callable(getattr(dataset, "__iter__", None)):
        raise DataError(
            what=f"a {type(dataset).__name__} is no data set",
            why="it has neither __getitem__ nor __iter__",
            fix="pass a list of dicts, a torch Dataset or IterableDataset, or a datasets.Dataset",
        )
    if settings.world_size > 1:
        dataset = RankStream(dataset, batch_size, settings.rank, settings.world_size, drop_last=settings.drop_last)
        collate_fn = CountingCollator(collate_fn)
    elif not isinstance(dataset, IterableDataset):
        dataset = PlainStream(dataset)
    return Loader(
        dataset,
        training=training,
        collate_fn=collate_fn,
        batch_size=batch_size,
        drop_last=settings.drop_last,
        **options,
    )


# Checks and options --------------------------------------------------------------------------------------------------


def _worker_options(settings: LoaderSettings, *, training: bool, iterable: bool) -> dict[str, Any]:
    """What torch's DataLoader is told about workers and memory."""
    _check_workers(settings)
    options: dict[str, Any] = {
        "num_workers": settings.num_workers,
        # Pinned memory speeds up copies to a GPU; without one torch warns about it.
        "pin_memory": settings.pin_memory and torch.cuda.is_available(),
        "persistent_workers": settings.persistent_workers,
        "prefetch_factor": settings.prefetch_factor,
        "multiprocessing_context": settings.multiprocessing_context,
    }
    if not settings.in_order:
        options["in_order"] = False
    # A stream in one process keeps torch's own seeding, as under transformers; several processes have to differ.
    if training and (not iterable or settings.world_size > 1):
        options["worker_init_fn"] = partial(seed_worker, num_workers=settings.num_workers, rank=settings.rank)
    return options


def _check_workers(settings: LoaderSettings) -> None:
    """Options of workers ask for workers."""
    asked = {
        "dataloader_persistent_workers": settings.persistent_workers,
        "dataloader_prefetch_factor": settings.prefetch_factor is not None,
        "dataloader_multiprocessing_context": settings.multiprocessing_context is not None,
    }
    names = [name for name, is_set in asked.items() if is_set]
    if names and settings.num_workers == 0:
        raise ConfigError(
            what=f"{' and '.join(names)} cannot be honoured without workers",
            why="dataloader_num_workers=0 reads the data in the training process",
            fix=f"set dataloader_num_workers=2 or more, or leave out {', '.join(names)}",
        )


def _repeatable(sampler: Any, settings: LoaderSettings) -> Any:
    """torch's `RandomSampler` in the form that depends on seed and epoch alone. Every other sampler stays as it is."""
    plain = type(sampler) is RandomSampler and sampler.generator is None and not sampler.replacement
    if not plain or sampler.num_samples != len(sampler.data_source):  # type: ignore[arg-type]
        return sampler
    note_once("the RandomSampler of the training set is made repeatable: its order is that of seed + epoch")
    return EpochSampler(len(sampler), settings.seed)


def _is_sharded(sampler: Any) -> bool:
    """Whether a sampler yields this process's rows only, as torch's DistributedSampler does."""
    return getattr(sampler, "num_replicas", 1) > 1


def _check_rows(dataset: Any, sampler: Any, global_batch_size: int, settings: LoaderSettings, training: bool) -> None:
    """There must be rows, and as many as a batch needs."""
    name = "training set" if training else "evaluation set"
    if isinstance(dataset, Mapping):
        raise DataError(
            what=f"the {name} is a dict of data sets",
            why=f"it holds {', '.join(map(repr, dataset))}, and rows have numbers",
            fix="pass one of them, for instance dataset['train']",
        )
    if has_length(dataset) and len(dataset) == 0:
        raise DataError(
            what=f"the {name} is empty",
            why="it has 0 rows",
            fix="check the split, the filter or the slice that made it",
        )
    if not settings.drop_last or not has_length(sampler):
        return
    rows = len(sampler)
    if rows < global_batch_size:
        raise DataError(
            what=f"the {name} makes no batch",
            why=f"it has {rows} rows, a batch over all processes takes {global_batch_size}, and "
            "dataloader_drop_last=True drops what does not fill one",
            fix=f"set dataloader_drop_last=False, or a batch size of at most {max(1, rows // settings.world_size)}",
        )
