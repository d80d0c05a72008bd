"""How a loader divides rows into batches, and what is left of an epoch from any position in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from ..loader import Loader
from ..samplers.base import EpochOrder, announce_epoch
from ..samplers.epoch_sampler import ShardedBatchSampler
from ..sizes import has_length, is_iterable
from ..step_schedule import AnyStepSchedule, BudgetStepSchedule, StepSchedule
from ..user_loaders import RoundRobinBatchSampler
from ..worker_streams import Start
from .token_budget import PastSettings, TokenBudgetBatchSampler

Order = Callable[[int, int], Iterator[int]]  # epoch, first position -> rows


def order_of(sampler: Any) -> Order | None:
    """Return the rows of any epoch from any position, by arithmetic; None for an order that is drawn or the user's.

    >>> from ostinato.data.samplers.epoch_sampler import EpochSampler
    >>> order = order_of(EpochSampler(5, seed=0))
    >>> list(order(3, 2)) == list(order(3, 0))[2:]
    True
    """
    if type(sampler) is SequentialSampler:
        return lambda epoch, start: iter(range(start, len(sampler)))
    return sampler.order if isinstance(sampler, EpochOrder) and sampler.repeats else None


class RemainingRows(Sampler[int]):
    """The rows of an epoch from position `row` on."""

    def __init__(self, sampler: Any, row: int) -> None:
        self.sampler, self.row = sampler, row
        self.epoch = getattr(sampler, "epoch", 0)
        self._order = order_of(sampler)

    def __iter__(self) -> Iterator[int]:
        if self._order is not None:
            return self._order(self.epoch, self.row)
        return islice(iter(self.sampler), self.row, None)

    def __len__(self) -> int:
        return max(len(self.sampler) - self.row, 0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if self._order is None:
            announce_epoch(self.sampler, epoch)


class RemainingBatches(Sampler[list[int]]):
    """The batches of an epoch from number `skip` on; earlier ones are not read."""

    def __init__(self, batches: Any, skip: int) -> None:
        self.batches, self.skip = batches, skip

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.batches, TokenBudgetBatchSampler):
            return self.batches.iterate_batches(self.batches.epoch, self.skip)
        return islice(iter(self.batches), self.skip, None)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skip, 0)

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.batches, epoch)
        announce_epoch(getattr(self.batches, "sampler", None), epoch)

    def real_rows(self, batch_number: int) -> int | None:
        of_batch = getattr(self.batches, "real_rows", None)
        return None if of_batch is None else of_batch(batch_number)


class EpochStart(NamedTuple):
    """A start inside an epoch, at a row: the batch that begins there has the number `batch`."""

    epoch: int
    row: int
    batch: int
    group: int | None = None
    stream: Any = None  # the state of a stream, or of a loader of the user's
    rows_per_batch: int | None = None  # of a stream, before the start
    workers: int | None = None  # that shared the stream before the start
    worker_starts: list[Start] | None = None  # random streams of workers that share those of torch


@dataclass(frozen=True)
class Batching:
    """Equal batches from an order of rows, with this process's part of each."""

    sampler: Any
    rows: int  # rows of an epoch: of the first, if epochs differ
    batch_size: int  # in one process
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False

    @property
    def rows_per_batch(self) -> int:
        """The rows of a batch over all processes."""
        return self.batch_size * self.world_size

    @property
    def group(self) -> int | None:
        """The number of rows that an order by length keeps together; another number gives another order."""
        return self.sampler.group if isinstance(self.sampler, EpochOrder) else None

    def regroup(self, group: int | None) -> Batching:
        """Return the batching with the order of another number of rows per step, to finish an epoch in that order."""
        same = group is None or self.group is None or group == self.group
        return self if same else replace(self, sampler=self.sampler.regroup(group))

    def build_schedule(
        self, accumulation: int, *, step: int, epoch: int, row: int, group: int | None
    ) -> AnyStepSchedule:
        """Return the schedule of a run from a position on. `group` is that of the epoch at that position."""
        return StepSchedule(
            step=step,
            epoch=epoch,
            row=row,
            rows=self.rows,
            rows_per_batch=self.rows_per_batch,
            accumulation=accumulation,
            drop_last=self.drop_last,
            group=self.group,
            first_group=group if row else self.group,
            counts="batches" if isinstance(self, UserBatches) else "rows",
        )

    def record_history(self, schedules: Sequence[AnyStepSchedule]) -> None:
        """Record how a run has read its data, if the batches depend on it."""

    def build_rest(self, begin: EpochStart) -> Any:
        """Return the batches from a row of an epoch on."""
        return ShardedBatchSampler(
            RemainingRows(self.regroup(begin.group).sampler, begin.row),
            self.batch_size,
            self.rank,
            self.world_size,
            drop_last=self.drop_last,
            numbered_from=begin.batch,
            first_row=begin.row,
        )


class StreamBatches(Batching):
    """Equal batches of a stream that has a length: `sampler` is the stream itself."""


class UserBatches(Batching):
    """Batches of the user's, in their own order: batches are counted as if they were rows."""

    def build_rest(self, begin: EpochStart) -> Any:
        rest = RemainingBatches(self.sampler, begin.row)
        if self.world_size == 1:
            return rest
        return RoundRobinBatchSampler(
            rest,
            self.rank,
            self.world_size,
            drop_last=self.drop_last,
            numbered_from=begin.batch,
            first_batch=begin.row,
        )


class BudgetBatches(UserBatches):
    """Batches by number of tokens: each process has one of every step, and steps are counted."""

    def build_schedule(
        self, accumulation: int, *, step: int, epoch: int, row: int, group: int | None
    ) -> AnyStepSchedule:
        return BudgetStepSchedule(step, epoch, row, accumulation, self.sampler.cut, self.sampler.batches_in)

    def record_history(self, schedules: Sequence[AnyStepSchedule]) -> None:
        own = [each for each in schedules if isinstance(each, BudgetStepSchedule)]
        changes = own[:1] + [after for before, after in pairwise(own) if after.cut != before.cut]
        self.sampler.past = [PastSettings(each.epoch, each.row, each.cut) for each in changes]


def find_batching(loader: Any) -> Batching | None:
    """Return how a loader divides rows into batches; None where the number of batches is not known."""
    if not isinstance(loader, Loader):
        return _build_batching(UserBatches, loader, 1)
    if is_iterable(loader.dataset):
        return _find_stream_batching(loader)
    batches = loader.batch_sampler
    if isinstance(batches, ShardedBatchSampler):
        cut = batches.batch_size, batches.rank, batches.world_size, batches.drop_last
        return _build_batching(Batching, batches.sampler, *cut)
    if type(batches) is BatchSampler and getattr(batches.sampler, "num_replicas", 1) == 1:
        return _build_batching(Batching, batches.sampler, batches.batch_size, 0, 1, batches.drop_last)
    if isinstance(batches, TokenBudgetBatchSampler):
        return BudgetBatches(batches, 0, 1)
    if isinstance(batches, RoundRobinBatchSampler):
        return _build_batching(UserBatches, batches.batches, 1, batches.rank, batches.world_size, batches.drop_last)
    return _build_batching(UserBatches, batches, 1)


def _build_batching(kind: type[Batching], sampler: Any, *cut: Any) -> Batching | None:
    return kind(sampler, len(sampler), *cut) if has_length(sampler) else None


def _find_stream_batching(loader: Loader) -> Batching | None:
    if loader.batch_size is None:
        return None
    stream = loader.dataset
    rank, world_size = getattr(stream, "rank", 0), getattr(stream, "world_size", 1)
    rows = getattr(stream, "all_rows", stream)
    return _build_batching(StreamBatches, rows, loader.batch_size, rank, world_size, loader.drop_last)


def build_first_schedule(loader: Any, accumulation: int) -> list[AnyStepSchedule]:
    """Return the schedule of a run from its start, where it is known."""
    batching = find_batching(loader)
    return [] if batching is None else [batching.build_schedule(accumulation, step=0, epoch=0, row=0, group=None)]
