"""The updates of a run: the micro-batches of one optimizer step after another, from the run's position on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ..core.notices import note_once
from ..core.protocols import Batch, TrainHooks
from ..core.random import undisturbed
from ..core.timing import TimeLedger
from ..core.tree import has_no_rows
from ..data.bad_rows import SkippedRows
from ..data.batching.batch_plan import Begin, batching_of
from ..data.batching.split_by_length import CountedBatches, micro_batches
from ..data.epoch_position import begin_epoch, real_rows_of, start_at, stream_rows_per_batch, stream_state_of
from ..data.loader import Replay
from ..data.skip_progress import Show
from .plan import Plan
from .position import Place

_NOTHING: Any = object()  # a sentinel, since a collator may return anything, None too


@dataclass(frozen=True)
class MicroBatch:
    """One forward of an optimizer step."""

    batch: Batch
    divisor: float  # turns the mean of its loss into its share of the step
    is_last: bool  # of its update


@dataclass(frozen=True)
class Update:
    """The micro-batches that make up one optimizer step."""

    batches: list[Batch]
    num_items: Tensor | int | None
    divisors: list[float]  # turn each micro-batch's mean into its share of the step
    epoch_progress: float  # the epoch, counted in batches, once this update is applied
    epoch: int
    first_batch: int  # its number within the epoch
    sizes: list[int] | None = None  # the number of micro-batches that each batch was split into; None: not split
    sources: Sequence[str] = ()  # of a mixture: the set of each micro-batch

    def number_of(self, micro_batch: int) -> int:
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
            yield MicroBatch(batch, self.divisors[index], index == last)


@dataclass
class UpdateReader:
    """Group the batches of a loader into optimizer steps, and keep the position among them."""

    plan: Plan
    loader: Any
    weigh: Callable[[list[Batch], list[bool]], list[float]]  # micro-batches, which are padding -> divisors
    processes: int
    ledger: TimeLedger  # where the time is spent
    cuts: bool = False  # batches come as micro-batches
    skipped: SkippedRows | None = None  # rows that could not be read, if that does not end the run
    # Called with the first batch, its epoch and number, before anything is computed from it.
    inspect: Callable[[Batch, int, int], None] | None = None
    # Called with a batch without rows, its epoch and its number.
    report_empty: Callable[[Batch, int, int], None] = lambda batch, epoch, number: None
    show_skipping: Show | None = None  # shows how far a stream is read again, up to the run's position
    position: Place = field(default_factory=Place)
    restore_streams: Callable[[], None] | None = None  # of a checkpoint; called once the data are at its position
    current: Update | None = None  # the one being computed, or the last
    reader: Any = None  # the loader, or the rest of its epoch
    taken: CountedBatches = field(default_factory=lambda: CountedBatches(iter(())))  # of the update being fetched
    _rows: int = 0  # of an epoch; below, of a batch over all processes; where they can be counted
    _rows_per_batch: int = 0
    empty_batches: int = 0  # of this process, and of this call
    _void: list[bool] = field(default_factory=list)  # which micro-batches of the update do not count

    def __post_init__(self) -> None:
        self._batching = batching_of(self.loader)
        self._rows_per_batch = stream_rows_per_batch(self.loader) or 0
        if self._batching is not None:
            self._rows, self._rows_per_batch = self._batching.rows, self._batching.rows_per_batch
        self._settle_place()

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Continue from the position of a saved run."""
        self.position = Place.of(progress["place"], self._batching)
        self._settle_place()
        if self.skipped is not None and progress.get("skipped_rows"):
            self.skipped.restore(progress["skipped_rows"])

    def read(self, trainer: TrainHooks, epoch: int) -> Iterator[Update]:
        """Group the loader's batches into optimizer steps, without those already done."""
        asked = perf_counter()
        begin_epoch(self.loader, epoch)
        in_epoch, accumulation = self.plan.batches_in(epoch), self.plan.accumulation
        first = self.position.batch
        inside = self.position.inside  # its order was drawn, and its next batch read, before the checkpoint
        if inside:
            self.position.rewind(self.loader)
        else:
            self._put_streams_back()
            self.position.mark(self.loader)
        self.reader = self._rest_of_epoch(epoch) if inside else self.loader
        self.record_schedule(trainer.state.global_step)
        self._real_rows = real_rows_of(self.loader if self._batching is None else self.reader)
        batches = self._inspected(iter(self.reader), epoch, first) if first < in_epoch else iter(self.reader)
        if self.cuts:
            batches = self.taken = CountedBatches(batches)
        self.ledger.data += perf_counter() - asked
        while first < in_epoch:
            wanted = min(accumulation, in_epoch - first)
            if self.cuts:
                self.taken.begin()
            asked = perf_counter()
            samples, num_items = trainer.get_batch_samples(batches, wanted, trainer.strategy.device)
            self.ledger.data += perf_counter() - asked
            self._put_streams_back()
            if not samples and not (self.cuts and self.taken.sizes):
                self._ended_early(trainer, first)
                return
            self._void = self._find_padding_batches(len(samples))
            if any(map(has_no_rows, samples)):
                self._leave_out_empty(samples, epoch, first)
            divisors = self.weigh(samples, self._void)
            taken = self.taken.sizes if self.cuts else None
            count = len(samples if taken is None else taken)
            self.position.batch = first + count
            if self.position.row is not None:
                self.position.row += count * self._rows_per_batch
                self.position.row = min(self.position.row, self._rows) if self._rows else self.position.row
            progress = epoch + self.position.batch / in_epoch
            if self.skipped is None or self._has_rows(trainer, samples, self.skipped):
                yield Update(samples, num_items, divisors, progress, epoch, first, taken, self.taken.sources)
            first = self.position.batch
        self._put_streams_back()

    def record_schedule(self, step: int) -> None:
        """Record the step schedule from here on, after `step` steps."""
        if self._batching is not None:
            if not self.position.inside:
                self.position.group = self._batching.group
            self.position.record_schedule(self.position.course(self._batching, self.plan.accumulation, step))

    def _rest_of_epoch(self, epoch: int) -> Any:
        """Return the rest of the epoch in which a resumed run was stopped."""
        position, replay = self.position, Replay(self.position.before_read, self._put_streams_back)
        if position.batch >= self.plan.batches_in(epoch):
            return []
        row = position.batch if position.row is None else position.row
        begin = Begin(
            epoch, row, position.batch, position.group, position.data, position.rows_per_batch, position.workers
        )
        return start_at(self.loader, begin, replay, self.show_skipping)

    def _settle_place(self) -> None:
        """Derive the batch number from the rows, where rows can be counted.

        Batches may have another size than those of a checkpoint. The batches that are left of an epoch get the last
        numbers in it.
        """
        position, batching = self.position, self._batching
        if batching is None:
            now, before = stream_rows_per_batch(self.loader), position.rows_per_batch
            if now is None:
                position.row = None
                return
            position.row = position.batch * (before or now) if position.row is None else position.row
            position.batch = position.batch if before in (None, now) else position.row // now
            return
        if position.row is None:
            position.row = position.batch * (position.rows_per_batch or batching.rows_per_batch)
            position.row = min(position.row, batching.rows) if batching.rows else position.row
        left = position.course(batching, self.plan.accumulation, 0).batches_left(position.row, position.epoch)
        position.batch = max(self.plan.batches_in(position.epoch) - left, 0)

    def _inspected(self, batches: Iterator[Batch], epoch: int, number: int) -> Iterator[Batch]:
        """Return the same batches, after passing the first batch of the run to `inspect`."""
        if self.inspect is None:
            return batches
        inspect, self.inspect = self.inspect, None
        batch = next(batches, _NOTHING)
        if batch is _NOTHING:
            return batches
        for part in micro_batches([batch]):
            inspect(part, epoch, number)
        return itertools.chain([batch], batches)

    def _put_streams_back(self) -> None:
        if self.restore_streams is not None:
            restore, self.restore_streams = self.restore_streams, None
            restore()

    @contextmanager
    def streams_to_go_on_with(self) -> Iterator[None]:
        """Set the random streams, while entered, to those of the next step, even if they are not yet restored."""
        if self.restore_streams is None:
            yield
            return
        with undisturbed():
            self.restore_streams()
            yield

    def _ended_early(self, trainer: TrainHooks, seen: int) -> None:
        """Stop the run if a stream yields nothing at all: it would be read again forever."""
        if seen == 0:
            note_once(
                f"the training data gave no batch at all at step {trainer.state.global_step} of "
                f"{self.plan.max_steps}: stopping. An iterable data set must start anew each time it is iterated over."
            )
            trainer.control.should_training_stop = True

    def _find_padding_batches(self, count: int) -> list[bool]:
        """Return which of the next batches are padding batches."""
        if self.processes == 1:
            return [False] * count
        sizes = self.taken.sizes if self.cuts else [1] * count
        unread = self.taken.padding_batches if self.cuts else [False] * count
        void = [self._real_rows(self.position.batch + index) == 0 or unread[index] for index in range(len(sizes))]
        return [is_void for is_void, size in zip(void, sizes, strict=True) for _ in range(size)]

    def _leave_out_empty(self, samples: list[Batch], epoch: int, first: int) -> None:
        """Mark micro-batches without rows, which do not count, as padding batches do not."""
        for index, batch in enumerate(samples):
            if has_no_rows(batch):
                self.report_empty(batch, epoch, first if self.cuts else first + index)
                self.empty_batches += 1
                self._void[index] = True

    def _has_rows(self, trainer: TrainHooks, samples: list[Batch], skipped: SkippedRows) -> bool:
        """Return whether there are rows to compute a step from; record rows that could not be read."""
        bad = tuple(self.taken.skipped)
        if self.processes == 1:
            skipped.add(bad)
            return bool(samples)
        own = torch.tensor([float(not all(self._void)), float(len(bad))], dtype=torch.float64)
        any_rows, any_bad = trainer.strategy.sum(own).tolist()
        if any_bad:
            skipped.add(bad, gather=trainer.strategy.gather_objects)
        return any_rows > 0

    def without_padding_batches(self, batches: list[Batch]) -> list[Batch]:
        """Return the batches without the padding batches among them."""
        return [
            batch for batch, void in zip(batches, self._find_padding_batches(len(batches)), strict=True) if not void
        ]

    def position_to_save(self) -> Place:
        """Return the position that a resumed run needs. Saving does not change the run's own."""
        if self.reader is None and self.position.inside:
            return self.position  # as in the checkpoint: nothing was read since
        return dataclasses.replace(
            self.position,
            before_read=getattr(self.reader, "before_read", None),
            processes=self.processes,
            rows_per_batch=stream_rows_per_batch(self.loader),
            data=stream_state_of(self.loader) if self.position.inside else None,
            workers=getattr(self.loader, "num_workers", None),
        )
