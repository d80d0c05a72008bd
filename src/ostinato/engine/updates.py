"""The updates of a run: the micro-batches of one optimizer step after another, from the run's position on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from torch import Tensor

from ..core.calls import takes
from ..core.host_copy import read_numbers
from ..core.notices import note_once
from ..core.protocols import Batch, TrainHooks
from ..core.random import preserve_rng
from ..core.timing import TimeLedger
from ..core.tree import has_no_rows
from ..data.bad_rows import SkippedRows
from ..data.batching.batch_plan import Batching, EpochStart, find_batching
from ..data.batching.split_by_length import CountedBatches, flatten_micro_batches
from ..data.epoch_position import (
    begin_epoch,
    continue_workers,
    find_stream_batch_size,
    find_worker_starts,
    get_row_counter,
)
from ..data.skip_progress import ShowProgress
from ..loss.share import KnownShare, Share
from .ballot import Divisors
from .plan import Plan
from .position import Position
from .step_weights import StepWeights, clear_void

_NOTHING: Any = object()  # a sentinel, since a collator may return anything, None too


@dataclass
class MicroBatch:
    """One forward of an optimizer step."""

    batch: Batch
    share: Share  # in the loss of the step
    index: int  # within its update
    is_last: bool


@dataclass
class Update:
    """The micro-batches that make up one optimizer step."""

    batches: list[Batch]
    num_items: Tensor | int | None  # None again once the next update begins
    divisors: Sequence[float]  # turn each micro-batch's mean into its share of the step
    epoch_progress: float  # the epoch, counted in batches, once this update is applied
    epoch: int
    first_batch: int  # its number within the epoch
    sizes: list[int] | None = None  # the number of micro-batches that each batch was split into; None: not split
    sources: Sequence[str] = ()  # of a mixture: the set of each micro-batch
    find_tokens: Callable[[], int] | None = None  # gives the input tokens of all processes, if they are exchanged

    def find_batch_number(self, micro_batch: int) -> int:
        """Return the number, within the epoch, of the batch that a micro-batch is or belongs to."""
        if self.sizes is None:
            return self.first_batch + micro_batch
        return self.first_batch + next(
            at for at, end in enumerate(itertools.accumulate(self.sizes)) if micro_batch < end
        )

    @property
    def numbers(self) -> range:
        """The numbers of all its batches."""
        return range(self.first_batch, self.first_batch + len(self.batches if self.sizes is None else self.sizes))

    def micro_batches(self) -> Iterator[MicroBatch]:
        """Yield each micro-batch of the update."""
        last = len(self.batches) - 1
        for index, batch in enumerate(self.batches):
            shares = self.divisors
            share = shares.find_share(index) if isinstance(shares, Divisors) else KnownShare(shares[index])
            yield MicroBatch(batch, share, index, index == last)


@dataclass
class UpdateReader:
    """Group the batches of a loader into optimizer steps, and keep the position among them."""

    plan: Plan
    loader: Any
    weights: StepWeights
    processes: int
    ledger: TimeLedger  # where the time is spent
    cuts: bool = False  # batches come as micro-batches
    skipped: SkippedRows | None = None  # rows that could not be read, if that does not end the run
    # Called with the first batch, its epoch and number, before anything is computed from it.
    inspect: Callable[[Batch, int, int], None] | None = None
    # Called with a batch without rows, its epoch and its number.
    report_empty: Callable[[Batch, int, int], None] = lambda batch, epoch, number: None
    show_skipping: ShowProgress | None = None  # shows how far a stream is read again, up to the run's position
    position: Position = field(default_factory=Position)
    restore_streams: Callable[[], None] | None = None  # of a checkpoint; called once the data are at its position
    current: Update | None = None  # the one being computed, or the last
    previous: Update | None = None  # the one before it: what a device reports late may be about this one
    reader: Any = None  # the loader, or the rest of its epoch
    taken: CountedBatches = field(default_factory=lambda: CountedBatches(iter(())))  # of the update being fetched
    empty_batches: int = 0  # of this process, and of this call

    def __post_init__(self) -> None:
        self._batching = batching = find_batching(self.loader)
        self._rows = 0 if batching is None else batching.rows  # of an epoch; 0: unknown
        by_stream = find_stream_batch_size(self.loader) or 0
        self._rows_per_batch = by_stream if batching is None else batching.rows_per_batch  # over all processes
        self.position.fit(self.loader, batching, self.plan)

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Continue from the position of a saved run."""
        self.position = Position.read(progress["place"], self._batching)
        self.position.fit(self.loader, self._batching, self.plan)
        if self.position.epoch or self.position.is_inside_epoch:
            continue_workers(self.loader, self.position.worker_starts)
        if self.skipped is not None and progress.get("skipped_rows"):
            self.skipped.restore(progress["skipped_rows"])

    def begin(self, update: Update) -> None:
        """Note that an update is going to be computed."""
        self.previous, self.current = self.current, update
        if self.previous is not None:
            self.previous.num_items = None  # nothing of it stays on a device

    def capture_position(self, processes: int) -> Position:
        """Return the position that a resumed run needs. Saving does not change the run's own."""
        if self.reader is None and self.position.is_inside_epoch:
            return self.position  # as in the checkpoint: nothing was read since
        return self.position.capture(self.loader, self.reader, processes)

    def read(self, trainer: TrainHooks, epoch: int) -> Iterator[Update]:
        """Group the loader's batches into optimizer steps, without those already done."""
        asked, in_epoch = perf_counter(), self.plan.count_batches(epoch)
        batches = self._open_epoch(epoch, in_epoch, trainer.state.global_step)
        self.ledger.data += perf_counter() - asked
        device = trainer.strategy.device
        # Until transformers 4.50, the method had no parameter for the device.
        where = (device,) if takes(trainer.get_batch_samples, batches, 1, device) else ()
        while (first := self.position.batch) < in_epoch:
            asked = perf_counter()
            self.taken.begin()
            wanted = min(self.plan.accumulation, in_epoch - first)
            ballot = self.weights.ballot
            if ballot is not None:
                ballot.begin(trainer.state.global_step, wanted, is_full=self._is_full(epoch, first, wanted))
            samples, num_items = trainer.get_batch_samples(batches, wanted, *where)
            self.ledger.data += perf_counter() - asked
            self._restore_streams_once()
            sizes = self.taken.sizes if self.cuts else None
            count = len(samples if sizes is None else sizes)
            if not count:
                self._stop_without_data(trainer, first)
                return
            void = self._find_void(samples, epoch)
            if ballot is not None and ballot.is_due and not ballot.is_cast:
                self.vote(samples, None)
            divisors = self.weights.find_divisors(samples, void)
            self.position.advance(count, rows_per_batch=self._rows_per_batch, rows=self._rows)
            if self.skipped is None or self._has_rows(trainer, void, self.skipped):
                progress = epoch + self.position.batch / in_epoch
                if sizes is not None and (missing := self.weights.add_stand_ins(len(samples))):
                    samples, sizes = samples + samples[-1:] * missing, [*sizes[:-1], sizes[-1] + missing]
                    self.taken.sources += self.taken.sources[-1:] * missing
                sources, tokens = self.taken.sources, None if ballot is None else ballot.add_tokens
                yield Update(samples, num_items, divisors, progress, epoch, first, sizes, sources, tokens)
        self._restore_streams_once()

    def vote(self, batches: list[Batch], counted: Sequence[Tensor] | None) -> None:
        """Tell the other processes about the micro-batches of a step; `counted` are their targets, if known."""
        self.weights.vote(batches, counted, self._find_padding_batches(len(batches)), len(self.taken.skipped))

    def count_targets(self, batches: list[Batch], counted: Sequence[Tensor]) -> int:
        """Return the number of targets of this process, given those of its micro-batches."""
        return int(sum(clear_void(read_numbers(counted), self._find_padding_batches(len(batches)))))

    def _is_full(self, epoch: int, first: int, count: int) -> bool:
        """Return whether batches are known to have as many rows in every process."""
        batching = self._batching
        if type(batching) is not Batching or self.cuts:
            return False
        begin = getattr(self.loader, "epoch_start", None)
        if begin is None or begin.epoch != epoch:
            begin = EpochStart(epoch, 0, 0)
        return begin.row + (first + count - begin.batch) * batching.rows_per_batch <= batching.rows

    def _open_epoch(self, epoch: int, in_epoch: int, step: int) -> Iterator[Batch]:
        """Return the batches of an epoch, or the rest of them, after passing the first of the run to `inspect`."""
        begin_epoch(self.loader, epoch)
        if self.reader is not self.loader and (starts := find_worker_starts(self.reader, is_inside_epoch=False)):
            continue_workers(self.loader, starts)  # it read the rest of an epoch
        position, self.reader = self.position, self.loader
        if position.is_inside_epoch:  # its order was drawn, and its next batch read, before the checkpoint
            position.restore_generators(self.loader)
            is_done = position.batch >= in_epoch
            self.reader = (
                [] if is_done else position.open_rest(self.loader, self._restore_streams_once, self.show_skipping)
            )
        else:
            self._restore_streams_once()
            position.record_generators(self.loader)
        self.record_schedule(step)
        self._real_rows = get_row_counter(self.loader if self._batching is None else self.reader)
        batches = iter(self.reader)
        if self.inspect is not None and position.batch < in_epoch:
            inspect, self.inspect = self.inspect, None
            if (first := next(batches, _NOTHING)) is not _NOTHING:
                for part in flatten_micro_batches([first]):
                    inspect(part, epoch, position.batch)
                batches = itertools.chain([first], batches)
        if self.cuts:
            batches = self.taken = CountedBatches(batches)
        return batches

    def record_schedule(self, step: int) -> None:
        """Record the step schedule from here on, after `step` steps."""
        if self._batching is not None:
            self.position.record_schedule(self._batching, self.plan.accumulation, step)

    def _restore_streams_once(self) -> None:
        if self.restore_streams is not None:
            restore, self.restore_streams = self.restore_streams, None
            restore()

    @contextmanager
    def use_next_streams(self) -> Iterator[None]:
        """Set the random streams, while entered, to those of the next step, even if they are not yet restored."""
        if self.restore_streams is None:
            yield
            return
        with preserve_rng():
            self.restore_streams()
            yield

    def _stop_without_data(self, trainer: TrainHooks, seen: int) -> None:
        """Stop the run if a stream yields nothing at all: it would be read again forever."""
        if seen == 0:
            note_once(
                f"the training data gave no batch at all at step {trainer.state.global_step} of "
                f"{self.plan.max_steps}: stopping. An iterable data set must start anew each time it is iterated over."
            )
            trainer.control.should_training_stop = True

    # ---- micro-batches that do not count -----------------------------------------------------------------

    def _find_void(self, samples: list[Batch], epoch: int) -> list[bool]:
        """Return which micro-batches do not count: padding batches, and those without rows, which are reported."""
        void = self._find_padding_batches(len(samples))
        for index, batch in enumerate(samples):
            if has_no_rows(batch):
                self.report_empty(batch, epoch, self.position.batch + (0 if self.cuts else index))
                self.empty_batches += 1
                void[index] = True
        return void

    def _find_padding_batches(self, count: int) -> list[bool]:
        """Return which of the next micro-batches are padding batches."""
        if self.processes == 1:
            return [False] * count
        sizes = self.taken.sizes if self.cuts else [1] * count
        unread = self.taken.padding_batches if self.cuts else [False] * count
        void = [self._real_rows(self.position.batch + index) == 0 or unread[index] for index in range(len(sizes))]
        return [is_void for is_void, size in zip(void, sizes, strict=True) for _ in range(size)]

    def _has_rows(self, trainer: TrainHooks, void: list[bool], skipped: SkippedRows) -> bool:
        """Return whether there are rows to compute a step from; record rows that could not be read."""
        bad, ballot = tuple(self.taken.skipped), self.weights.ballot
        if ballot is None:
            skipped.add(bad)
            return bool(void)
        if any(vote.bad_rows for vote in ballot.votes):
            skipped.add(bad, gather=trainer.strategy.gather_objects)
        return any(vote.has_rows for vote in ballot.votes)
