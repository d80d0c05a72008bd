"""Build an iterator over batches of a data set, in this process's share."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data._utils.pin_memory import pin_memory

from ..arguments.settings import LoaderSettings
from ..core import accelerator
from ..core.errors import ConfigError, DataError
from ..core.notices import note_once
from ..core.random import RandomState
from . import dataset_errors
from .batch_reader import BatchReader, return_unchanged, set_up_worker
from .batching.token_budget import TokenBudgetBatchSampler
from .columns import format_set_name, has_columns
from .row_random import WATCHED_READS, BatchRequest, BatchRequests, ReadIsolation, RowStreams
from .samplers.base import announce_epoch
from .samplers.epoch_sampler import EpochSampler, ShardedBatchSampler
from .sizes import has_length, is_iterable
from .skip_progress import ShowProgress, SkipProgress
from .streams.reader import DroppedRows, StreamReader, StreamStart
from .streams.shards import Collate, CountingCollator, PlainStream, RankStream, StreamPosition, unwrap_stream
from .streams.stream_buckets import StreamWindows
from .user_loaders import RoundRobinBatchSampler, is_sharded
from .worker_errors import raise_collate_error, raise_read_error, unpack_batches
from .worker_streams import StreamReporter, WorkerSeeder, WorkerStreams

Batch = TypeVar("Batch")

_END: Any = object()  # a collator may return anything, None too


def build_loader(
    dataset: Any,
    *,
    batch_size: int,
    sampler: Sampler[int] | Iterable[int] | None,
    collate_fn: Collate,
    settings: LoaderSettings,
    training: bool,
    description: str | None = None,
    batch_sampler: Any = None,
    windows: StreamWindows | None = None,
) -> Loader:
    """Build a loader of this process's batches: `batch_size` rows each, or those that `batch_sampler` yields.

    Args:
        dataset: The rows. A data set that can only be iterated over has its own order; every process then reads all of
            it and keeps its batches.
        batch_size: The rows of a batch in one process.
        sampler: The order of rows. None: the order of the data set.
        collate_fn: Makes a batch of rows.
        settings: The arguments that concern loaders.
        training: Whether the loader is for training.
        description: "Training", "Evaluation" or "test": how errors name the data set.
        batch_sampler: Yields the row numbers of each batch.
        windows: Another order for the rows of a stream.

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
        settings = replace(settings, drop_last=False)  # evaluation counts every row once
    source = format_set_name(description, "training set" if training else "evaluation set")
    dataset_errors.check_data_set(dataset, source, may_be_empty=not training)
    dataset_errors.check_collator(collate_fn)
    options = _build_worker_options(settings, training=training, iterable=is_iterable(dataset))
    options.update(training=training, source=source)
    if is_iterable(dataset):
        loader = _build_stream_loader(dataset, batch_size, collate_fn, settings, options)
        loader.stream_windows, loader.skips_bad_rows = windows, training and settings.skips_bad_rows
        return loader
    if batch_sampler is not None:
        return Loader(dataset, collate_fn=collate_fn, batch_sampler=batch_sampler, **options)
    if sampler is None:
        dataset_errors.check_addressable(dataset, source)
        sampler = SequentialSampler(dataset)
    elif training:
        sampler = _make_repeatable(sampler, settings)
    global_batch_size = batch_size * (1 if is_sharded(sampler) else settings.world_size)
    if training:
        _check_row_count(sampler, global_batch_size, settings, source)
    if global_batch_size == batch_size:
        options.update(batch_size=batch_size, sampler=sampler, drop_last=settings.drop_last)
    else:
        options["batch_sampler"] = ShardedBatchSampler(
            sampler, batch_size, settings.rank, settings.world_size, drop_last=settings.drop_last
        )
    return Loader(dataset, collate_fn=collate_fn, **options)


@dataclass
class DrawDetector:
    """Record the random streams before a batch is read, as long as reading may draw from them."""

    reads: int  # reads that are still watched
    draws: bool = False

    def begin(self) -> RandomState | None:
        return RandomState.capture() if self.reads > 0 or self.draws else None

    def end(self, before: RandomState | None) -> None:
        if self.reads > 0 and before is not None:
            self.reads -= 1
            self.draws = self.draws or not before.is_current()


@dataclass(frozen=True)
class Replay:
    """Read the batch that was read ahead of a checkpoint as it was read then, and continue from the checkpoint."""

    streams: RandomState | None  # before that batch was read
    end: Callable[[], None]  # restores the streams of the checkpoint

    def begin(self) -> None:
        if self.streams is not None:
            self.streams.restore()


class Loader(DataLoader[Any]):
    """A `DataLoader` that fetches one batch ahead, counts its epochs, and knows which rows of a batch are real.

    The batch after the current one is always read already: collators and models that draw random numbers then draw
    them in the same order as under transformers. Before the first batch is requested, nothing is read and nothing is
    drawn.
    """

    def __init__(self, dataset: Any, *, training: bool, source: str | None = None, **options: Any) -> None:
        super().__init__(dataset, **options)
        self.training = training
        self.source = source or ("training set" if training else "evaluation set")  # the name in errors
        self.epoch = 0
        self.origin: Any = None  # of a loader that is kept (`kept_loaders.LoaderOrigin`)
        self._options = options
        self._torch_loader: DataLoader[Any] | None = None  # reads in workers
        self._has_yielded = False
        # The random streams before the newest batch was read: rows and collators may have drawn from them.
        self.before_read: RandomState | None = None
        self.replay: Replay | None = None
        self.epoch_start: Any = None  # of a pass that begins inside an epoch (`batch_plan.EpochStart`)
        self._isolation: ReadIsolation | None = None
        self.worker_streams: WorkerStreams | None = None  # of workers that share torch's streams
        self.resumed_streams: WorkerStreams | None = None  # those with which the first pass starts
        # Workers that persist were started in an earlier process: torch draws no seed for them.
        self.continues_workers = False
        self.stream_start: StreamStart | None = None  # for one pass: the position at which the stream starts
        self.first_batch = 0  # for one pass: the number of its first batch
        self.show_skipping: ShowProgress | None = None  # shows the progress of reading dropped rows
        self.stream_windows: StreamWindows | None = None  # the order in which the rows of a stream are read
        self.skips_bad_rows = False  # for a stream; a data set with numbered rows does it itself
        self._stream_reader: StreamReader | None = None
        self._real_rows: list[int] = []  # for a stream shared by processes: known after a batch is read
        self._numbered_from = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self.training:
            self.set_epoch(self.epoch)
        batches = self._iterate_batches()
        if self.pin_memory and self.reads_in_process and torch.accelerator.is_available():
            batches = map(pin_memory, batches)
        first = next(batches, _END)
        if first is not _END:
            self._has_yielded = True
            yield from prefetch_batches(chain([first], batches))
        elif self.training and not self._has_yielded and not self._has_none_left():
            raise dataset_errors.build_no_batches_error(self.source, self.batch_size, drop_last=self.drop_last)
        self.epoch += 1  # a second pass is another epoch; an interrupted pass is not finished

    def _has_none_left(self) -> bool:
        """Return whether no batch is left, as at the end of an epoch that is resumed."""
        return has_length(self.batch_sampler) and len(self.batch_sampler) == 0  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; samplers and data sets that shuffle follow it."""
        self.epoch = epoch
        for part in (self.batch_sampler, self.sampler, self.dataset):
            announce_epoch(part, epoch)

    def real_rows(self, batch_number: int) -> int | None:
        """Return how many rows of batch `batch_number` (from 0) count; 0 for a padding batch, None for all."""
        of_batch: Callable[[int], int | None] | None = getattr(self.batch_sampler, "real_rows", None)
        if of_batch is not None:
            return of_batch(batch_number)
        return self._real_rows[batch_number - self._numbered_from] if isinstance(self.dataset, RankStream) else None

    @property
    def total_batch_size(self) -> int | None:
        """The rows of a batch of all processes, under accelerate's name. None: batches differ."""
        shared = self.dataset if isinstance(self.dataset, RankStream) else self.batch_sampler
        if isinstance(shared, (RankStream, ShardedBatchSampler)):
            return shared.batch_size * shared.world_size
        return self.batch_size

    @property
    def total_dataset_length(self) -> int:
        """The number of rows of all processes, under accelerate's name."""
        rows: Any = self.dataset
        return len(rows)

    @property
    def batches_in(self) -> Callable[[int], int] | None:
        """The number of batches of an epoch as a function of the epoch, where it varies; None otherwise."""
        return self.batch_sampler.batches_in if isinstance(self.batch_sampler, TokenBudgetBatchSampler) else None

    def _iterate_batches(self) -> Iterator[Any]:
        if isinstance(self.dataset, RankStream):
            return self._iterate_counted_batches()
        return self._read_stream() if is_iterable(self.dataset) else self._read_rows()

    def _read_rows(self) -> Iterator[Any]:
        if self.batch_sampler is None:  # a loader without batches, built by hand: left to torch
            return super().__iter__()
        if self.reads_in_process:
            return self._read_in_process()
        isolation = self._isolation
        if isolation is None:
            reporter = StreamReporter() if self.shares_streams else None
            return self._read_with_torch(
                lambda: BatchReader(self.dataset, self.collate_fn, self.source, reporter=reporter),
                sampler=self.batch_sampler,
            )
        return self._read_with_torch(
            lambda: BatchReader(self.dataset, self.collate_fn, self.source, isolation),
            sampler=BatchRequests(weakref.proxy(self)),
        )

    @property
    def row_streams(self) -> RowStreams | None:
        """The streams from which rows and collators draw random numbers; None: the global streams."""
        return None if self._isolation is None else self._isolation.streams

    @row_streams.setter
    def row_streams(self, streams: RowStreams | None) -> None:
        self._isolation = None if streams is None else ReadIsolation(streams)

    def build_position_finder(self) -> Callable[[int], int]:
        """Return a function from the number of a batch in this pass to the position of its first row in the epoch."""
        batches: Any = self.batch_sampler
        if isinstance(batches, ShardedBatchSampler):
            return batches.find_position
        if type(batches) is BatchSampler and not is_sharded(batches.sampler):
            return lambda number: number * batches.batch_size
        # Batches of any size: positions far from those of any other batch.
        if isinstance(batches, RoundRobinBatchSampler):
            return lambda number: batches.find_batch_number(number) << 20
        rank = 0 if self._isolation is None else self._isolation.streams.rank
        return lambda number: (rank << 48) + ((getattr(batches, "skip", 0) + number) << 20)

    def _read_stream(self) -> Iterator[Any]:
        if self.batch_size is None:
            return super().__iter__()
        if self._stream_reader is None:
            self._stream_reader = StreamReader(
                self.dataset,
                self.collate_fn,
                self.source,
                self.batch_size,
                drop_last=self.drop_last,
                isolation=self._isolation,
                windows=self.stream_windows,
                skips_bad_rows=self.skips_bad_rows,
                reports_position=self.training,
            )
        reader, start = self._stream_reader, self.stream_start or StreamStart()
        reader.epoch, reader.start, self._numbered_from = self.epoch, start, self.first_batch
        if start.position.state is not None:
            unwrap_stream(self.dataset).load_state_dict(start.position.state)
        self._has_yielded = self._has_yielded or start.rows > 0  # earlier; none may be left
        self.stream_start, self.first_batch = None, 0
        in_process = self.reads_in_process
        batches = self._read_stream_in_process(reader) if in_process else self._read_with_torch(lambda: reader)
        return self._skip_dropped(batches, start.rows)

    def _skip_dropped(self, batches: Iterator[Any], rows: int) -> Iterator[Any]:
        """Yield the batches after the rows that are read and dropped."""
        with SkipProgress(rows, "rows", self.show_skipping) as skipping:
            first = next(batches, _END)
            while isinstance(first, DroppedRows):
                skipping.advance(first.rows)
                first = next(batches, _END)
        if first is not _END:
            yield first
            yield from batches

    @property
    def stream_position(self) -> StreamPosition | None:
        """The position of the stream before the newest batch was read; None if workers share the stream."""
        return None if self._stream_reader is None or self.num_workers else self._stream_reader.position

    @property
    def shares_streams(self) -> bool:
        """Whether training rows with numbers are read with the global streams, in this process or in a worker."""
        return self.training and self._isolation is None and not is_iterable(self.dataset)

    @property
    def reads_in_process(self) -> bool:
        """Whether batches are read in this process, and not in workers."""
        return self.num_workers == 0

    def _read_with_torch(self, reader: Callable[[], Any], **order: Any) -> Iterator[Any]:
        """Read in workers: with torch's loader over a reader that knows which rows it reads."""
        if self._torch_loader is None:  # kept, for persistent workers
            batching = ("batch_size", "sampler", "batch_sampler", "drop_last", "collate_fn", "shuffle")
            options = {name: value for name, value in self._options.items() if name not in batching}
            starts = None if self.resumed_streams is None else self.resumed_streams.list_for_torch()
            options["worker_init_fn"] = partial(set_up_worker, then=options.get("worker_init_fn"), starts=starts)
            if self.continues_workers:
                options["generator"] = torch.Generator()
            self._torch_loader = DataLoader(reader(), batch_size=None, collate_fn=return_unchanged, **order, **options)
            # From here, since the collector of cycles would take torch's queues apart before it ends the workers.
            weakref.finalize(self, _stop_kept_workers, self._torch_loader, os.getpid())
        workers = iter(self._torch_loader)
        return self._end_workers(workers, unpack_batches(self._follow_streams(workers)), os.getpid())

    def _end_workers(self, workers: Any, batches: Iterator[Any], process: int) -> Iterator[Any]:
        """Yield the batches. The workers end with them, also after an error, and not when they are collected."""
        try:
            yield from batches
        finally:
            if not self.persistent_workers:
                _stop_workers(workers, process)

    def _follow_streams(self, batches: Any) -> Iterator[Any]:
        """Note the streams of workers that share those of torch."""
        if not self.shares_streams or not isinstance(self.worker_init_fn, WorkerSeeder):
            return batches
        resumed, self.resumed_streams = self.resumed_streams, None
        if resumed is not None:
            self.worker_streams = resumed
        elif self.worker_streams is None or not self.persistent_workers:
            self.worker_streams = WorkerStreams([*self.worker_init_fn.list_seeds(batches._base_seed)])
        return self.worker_streams.unpack(batches)

    def _draw_worker_seed(self) -> None:
        """Draw a seed for workers as every pass of torch's loaders does, even without workers."""
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)

    def _read_stream_in_process(self, reader: StreamReader) -> Iterator[Any]:
        self._draw_worker_seed()
        to_drop = reader.start.rows_to_drop
        watch = DrawDetector(reads=WATCHED_READS if self.training and reader.isolation is None else 0)
        batches = iter(reader)
        while True:
            if self.replay is not None and to_drop <= 0:
                self.replay.begin()
            self.before_read = watch.begin()
            batch = next(batches, _END)
            watch.end(self.before_read)
            if isinstance(batch, DroppedRows):
                to_drop -= batch.rows
            else:
                self._end_replay()
            if batch is _END:
                return
            yield batch

    def _read_in_process(self) -> Iterator[Any]:
        """Read in this process, without the overhead of torch's iterator: half the cost of a small batch."""
        self._draw_worker_seed()
        rows, collate = self.dataset, self.collate_fn
        many = getattr(rows, "__getitems__", None)
        isolation = None if self._isolation is None else self._isolation.begin_epoch()
        reader = BatchReader(rows, collate, self.source, isolation)
        epoch, find_position = self.epoch, self.build_position_finder()
        batches = iter(self.batch_sampler)  # type: ignore[arg-type]
        first = next(batches, None)  # a random order is drawn here
        if self.replay is not None:
            self.replay.begin()
        watch = DrawDetector(reads=WATCHED_READS if self.training and isolation is None else 0)
        for number, indices in enumerate(chain([] if first is None else [first], batches)):
            if isolation is not None:
                if isolation.is_needed:
                    batch = reader[BatchRequest(epoch, find_position(number), indices)]
                    self._end_replay()
                    yield batch
                    continue
                isolation = None
            self.before_read = watch.begin()
            found, part = None, []
            try:
                if many:
                    found = many(indices)
                else:
                    for index in indices:
                        part.append(rows[index])
                    found = part
                batch = collate(found)
            except Exception as error:
                if found is None:
                    raise_read_error(error, rows, indices if many else indices[len(part) :][:1], self.source)
                names = dataset_errors.RowNames(self.source, indices, has_columns(rows))
                raise_collate_error(error, collate, found, names, rows)
            watch.end(self.before_read)
            if self.replay is not None:
                self._end_replay()
            yield batch

    def _end_replay(self) -> None:
        if self.replay is not None:
            self.replay.end()
            self.replay = None

    def _iterate_counted_batches(self) -> Iterator[Any]:
        self._real_rows = []
        for batch, real_rows in self._read_stream():
            self._real_rows.append(real_rows)
            yield batch


_inherited: list[Any] = []  # in a worker: loaders of the process that started it


def _stop_kept_workers(loader: DataLoader[Any], process: int) -> None:
    """Stop the workers that a loader has kept (`persistent_workers`), as it is not used any more."""
    _stop_workers(getattr(loader, "_iterator", None), process)


def _stop_workers(workers: Any, process: int) -> None:
    """Stop the workers of torch's iterator, in the process that started them."""
    if os.getpid() != process:
        _inherited.append(workers)
    elif callable(stop := getattr(workers, "_shutdown_workers", None)):
        stop()


def copy_without_workers(loader: Any) -> Any:
    """Return a copy of a loader that reads in this process: workers start slower than one batch is read."""
    if not isinstance(loader, DataLoader):
        return loader
    copied = copy.copy(loader)
    copied.num_workers, copied.pin_memory = 0, False
    return copied


def prefetch_batches(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches, each after its successor has been fetched.

    >>> def count():
    ...     for number in range(3):
    ...         print("fetch", number)
    ...         yield number
    >>> for number in prefetch_batches(count()):
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


# Streams -------------------------------------------------------------------------------------------------------------


def _build_stream_loader(
    dataset: Any,
    batch_size: int,
    collate_fn: Collate,
    settings: LoaderSettings,
    options: dict[str, Any],
) -> Loader:
    if not callable(getattr(dataset, "__iter__", None)):
        raise dataset_errors.build_not_a_data_set_error(dataset, options["source"])
    if settings.world_size > 1:
        dataset = RankStream(dataset, batch_size, settings.rank, settings.world_size, drop_last=settings.drop_last)
        collate_fn = CountingCollator(collate_fn)
    elif not isinstance(dataset, IterableDataset):
        dataset = PlainStream(dataset)
    return Loader(
        dataset,
        collate_fn=collate_fn,
        batch_size=batch_size,
        drop_last=settings.drop_last,
        **options,
    )


# Checks and options --------------------------------------------------------------------------------------------------


def _build_worker_options(settings: LoaderSettings, *, training: bool, iterable: bool) -> dict[str, Any]:
    """Return the options of torch's DataLoader for workers and memory."""
    _check_workers(settings)
    options: dict[str, Any] = {
        "num_workers": settings.num_workers,
        # Pinned memory speeds up copies to a device; without one torch warns about it.
        "pin_memory": settings.pin_memory and accelerator.can_pin_memory(),
        "persistent_workers": settings.persistent_workers,
        "prefetch_factor": settings.prefetch_factor,
        "multiprocessing_context": settings.multiprocessing_context,
    }
    if not settings.in_order:
        options["in_order"] = False
    # A stream in one process keeps torch's own seeding, as under transformers; several processes must differ.
    if training and (not iterable or settings.world_size > 1):
        options["worker_init_fn"] = WorkerSeeder(settings.num_workers, settings.rank)
    return options


def _check_workers(settings: LoaderSettings) -> None:
    """Raise if options for workers are set without workers."""
    requested = {
        "dataloader_persistent_workers": settings.persistent_workers,
        "dataloader_prefetch_factor": settings.prefetch_factor is not None,
        "dataloader_multiprocessing_context": settings.multiprocessing_context is not None,
    }
    names = [name for name, is_set in requested.items() if is_set]
    if names and settings.num_workers == 0:
        raise ConfigError(
            what=f"{' and '.join(names)} cannot be applied without workers",
            why="dataloader_num_workers=0 reads the data in the training process",
            fix=f"set dataloader_num_workers=2 or more, or leave out {', '.join(names)}",
        )


def _make_repeatable(sampler: Any, settings: LoaderSettings) -> Any:
    """Return torch's `RandomSampler` as one that depends on seed and epoch alone; any other sampler unchanged."""
    plain = type(sampler) is RandomSampler and sampler.generator is None and not sampler.replacement
    if not plain or sampler.num_samples != len(sampler.data_source):  # type: ignore[arg-type]
        return sampler
    note_once("the RandomSampler of the training set is made repeatable: its order depends on seed + epoch only")
    return EpochSampler(len(sampler), settings.seed)


def _check_row_count(sampler: Any, global_batch_size: int, settings: LoaderSettings, source: str) -> None:
    """Raise unless there are as many rows as a batch needs."""
    if not has_length(sampler):
        return
    rows = len(sampler)
    if rows == 0:
        raise dataset_errors.build_empty_sampler_error(source)
    if settings.drop_last and rows < global_batch_size:
        raise DataError(
            what=f"the {source} has too few rows for one batch",
            why=f"it has {rows} rows, a batch over all processes takes {global_batch_size}, and "
            "dataloader_drop_last=True drops incomplete batches",
            fix=f"set dataloader_drop_last=False, or a batch size of at most {max(1, rows // settings.world_size)}",
        )
