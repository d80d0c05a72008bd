"""A place inside an epoch: which rows it stands for, and how to start there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from ..core.errors import DataError, NotSupportedError
from ..core.notices import note, note_once
from .budget import TokenBudgetBatchSampler
from .loaders import Loader, Replay
from .samplers import EpochSampler, LengthGroupedSampler, ShardedBatchSampler, announce_epoch
from .sizes import has_length, is_iterable
from .windows import WindowedLengthSampler

TELLS_AFTER = 2.0  # seconds of reading and dropping, after which it is said how long it will take

Order = Callable[[int, int], Iterator[int]]  # epoch, place to begin at -> rows


def order_of(sampler: Any) -> Order | None:
    """The rows of any epoch from any place on, by arithmetic; None where the order is drawn, or is the user's.

    >>> list(order_of(EpochSampler(5, seed=0))(3, 2)) == list(order_of(EpochSampler(5, seed=0))(3, 0))[2:]
    True
    """
    if type(sampler) is SequentialSampler:
        return lambda epoch, start: iter(range(start, len(sampler)))
    if isinstance(sampler, LengthGroupedSampler) and sampler.seed is None:
        return None
    return sampler.order if isinstance(sampler, (EpochSampler, LengthGroupedSampler, WindowedLengthSampler)) else None


class RestOfOrder(Sampler[int]):
    """The rows of an epoch from place `row` on."""

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


class RestOfEpoch(Sampler[list[int]]):
    """The batches of an epoch from number `skip` on; those before are not read."""

    def __init__(self, batches: Any, skip: int) -> None:
        self.batches, self.skip = batches, skip

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.batches, TokenBudgetBatchSampler):
            return self.batches.batches(self.batches.epoch, self.skip)
        return islice(iter(self.batches), self.skip, None)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skip, 0)

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.batches, epoch)
        announce_epoch(getattr(self.batches, "sampler", None), epoch)

    def real_rows(self, batch_number: int) -> int | None:
        return real_rows_of(self.batches)(batch_number)


# How rows become batches ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batching:
    """Equal batches cut from an order of rows, this process's part of each."""

    sampler: Any
    batch_size: int  # in one process
    rank: int
    world_size: int
    drop_last: bool

    @property
    def rows_per_batch(self) -> int:
        """Over all processes."""
        return self.batch_size * self.world_size

    @property
    def rows(self) -> int:
        """Of an epoch."""
        return len(self.sampler)

    @property
    def group(self) -> int | None:
        """The number of rows that an order by length keeps together: with another number it is another order."""
        grouped = isinstance(self.sampler, (LengthGroupedSampler, WindowedLengthSampler))
        return self.sampler.batch_size if grouped else None

    def regrouped(self, group: int | None) -> Batching:
        """With the order that another number of rows per step had, so that an epoch can be finished in it."""
        if group is None or self.group is None or group == self.group:
            return self
        regrouped = getattr(self.sampler, "regrouped", None)
        if not callable(regrouped):
            note_once(
                "the rows of the epoch that is resumed are grouped by length anew, for another number of rows per "
                "step: some of them are seen twice in it and some not at all"
            )
            return self
        return replace(self, sampler=regrouped(group))

    def rest(self, row: int, number: int) -> ShardedBatchSampler:
        """The batches from row `row` of an epoch on, the first of them with the number `number`."""
        return ShardedBatchSampler(
            RestOfOrder(self.sampler, row),
            self.batch_size,
            self.rank,
            self.world_size,
            drop_last=self.drop_last,
            numbered_from=number,
            first_row=row,
        )


def batching_of(loader: Any) -> Batching | None:
    """How a loader cuts batches; None for streams, and for batches that are not all equal or are the user's own."""
    if not isinstance(loader, Loader) or is_iterable(loader.dataset):
        return None
    batches = loader.batch_sampler
    if isinstance(batches, ShardedBatchSampler):
        found = Batching(batches.sampler, batches.batch_size, batches.rank, batches.world_size, batches.drop_last)
    elif type(batches) is BatchSampler and getattr(batches.sampler, "num_replicas", 1) == 1:
        found = Batching(batches.sampler, batches.batch_size, 0, 1, batches.drop_last)
    else:
        return None
    return found if has_length(found.sampler) else None


@dataclass(frozen=True)
class Course:
    """From where on, and in steps of how many rows, a run goes through its data: each step is then arithmetic.

    A run is one course, unless it is resumed with other numbers or leaves an epoch before its end.

    >>> course = Course(step=0, epoch=0, row=0, rows=10, rows_per_batch=4, accumulation=1, drop_last=False)
    >>> course.rows_of(3), course.rows_of(4)
    ((0, range(8, 10)), (1, range(0, 4)))
    """

    step: int  # taken before it
    epoch: int
    row: int
    rows: int  # of an epoch
    rows_per_batch: int  # over all processes
    accumulation: int
    drop_last: bool
    group: int | None = None  # rows kept together by an order by length
    first_group: int | None = None  # the same of its first epoch, which may have begun before

    @property
    def rows_per_step(self) -> int:
        return self.rows_per_batch * self.accumulation

    def is_like(self, other: Course) -> bool:
        """Whether both cut an epoch into the same steps."""
        names = ("rows", "rows_per_batch", "accumulation", "drop_last", "group")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def batches_left(self, row: int) -> int:
        """In an epoch, from a row on."""
        whole, part = divmod(max(self.rows - row, 0), self.rows_per_batch)
        return whole + (part > 0 and not self.drop_last)

    def steps_left(self, row: int) -> int:
        """In an epoch, from a row on."""
        return -(-self.batches_left(row) // self.accumulation)

    def steps_until(self, epochs: float) -> int:
        """From its beginning until so many epochs are done."""
        after = epochs - self.epoch - 1
        if after >= 0:
            return self.steps_left(self.row) + math.ceil(after * self.steps_left(0))
        rows = math.ceil((epochs - self.epoch) * self.rows) - self.row
        return min(max(-(-rows // self.rows_per_step), 0), self.steps_left(self.row))

    def epochs_for(self, steps: int) -> int:
        """How many epochs, counted from the first of the run, are begun until `steps` steps of the run are taken."""
        after = max(steps - self.step - self.steps_left(self.row), 0)
        return self.epoch + 1 + -(-after // max(self.steps_left(0), 1))

    def place_after(self, step: int) -> tuple[int, int]:
        """Epoch and row at which the run stands when `step` steps are taken; an epoch's end is row 0 of the next."""
        if step == self.step:
            return self.epoch, self.row
        epoch, rows = self.rows_of(step)
        return (epoch + 1, 0) if self.batches_left(rows.stop) == 0 else (epoch, rows.stop)

    def rows_of(self, step: int) -> tuple[int, range]:
        """The epoch of a step, and the places in its order that the step is computed from."""
        number, epoch, row = step - self.step - 1, self.epoch, self.row
        if number >= self.steps_left(row):
            after, number = divmod(number - self.steps_left(row), max(self.steps_left(0), 1))
            epoch, row = epoch + 1 + after, 0
        end = min(row + self.batches_left(row) * self.rows_per_batch, self.rows)
        start = row + number * self.rows_per_step
        return epoch, range(start, min(start + self.rows_per_step, end))

    def group_in(self, epoch: int) -> int | None:
        return self.first_group if epoch == self.epoch else self.group


def course_from(
    batching: Batching, accumulation: int, *, step: int, epoch: int, row: int, group: int | None
) -> Course:
    """The course of a loader's batches from a place on. `group`: of the epoch that is going on there."""
    return Course(
        step=step,
        epoch=epoch,
        row=row,
        rows=batching.rows,
        rows_per_batch=batching.rows_per_batch,
        accumulation=accumulation,
        drop_last=batching.drop_last,
        group=batching.group,
        first_group=group if row else batching.group,
    )


def first_course(loader: Any, accumulation: int) -> list[Course]:
    """The course of a run from its beginning, where it is known."""
    batching = batching_of(loader)
    return [] if batching is None else [course_from(batching, accumulation, step=0, epoch=0, row=0, group=None)]


def samples_at(loader: Any, courses: Sequence[Course], step: int, max_steps: int) -> list[int]:
    """The rows of the data set, over all processes, that a step of a run is computed from."""
    if not 1 <= step <= max_steps:
        raise DataError(
            what=f"there is no step {step}",
            why=f"the run has {max_steps} steps, counted from 1",
            fix=f"ask for a step from 1 to {max_steps}",
        )
    batching = batching_of(loader)
    order = None if batching is None else order_of(batching.sampler)
    if batching is None or order is None:
        raise NotSupportedError(
            what=f"the rows of step {step} cannot be computed",
            why=_why_unknown(loader, batching),
            fix="record them where they are read, or train on a data set with numbered rows in one of the orders of "
            "train_sampling_strategy",
        )
    course = next((course for course in reversed(courses) if course.step < step), None)
    if course is None:
        raise DataError(
            what=f"the rows of step {step} are not known",
            why=f"the run was taken over after step {courses[0].step}, from a checkpoint that does not tell how its "
            "steps were cut",
            fix=f"ask for step {courses[0].step + 1} or a later one",
        )
    epoch, places = course.rows_of(step)
    sampler = batching.regrouped(course.group_in(epoch)).sampler
    order = order_of(sampler) or order
    return list(islice(order(epoch, places.start), len(places)))


def _why_unknown(loader: Any, batching: Batching | None) -> str:
    if not isinstance(loader, Loader):
        return f"batches come from a {type(loader).__name__} of your own"
    if is_iterable(loader.dataset):
        return "a stream gives rows in its own order, and they have no numbers"
    if batching is None:
        return f"batches are chosen by a {type(loader.batch_sampler).__name__}"
    if isinstance(batching.sampler, LengthGroupedSampler):
        return "the order by length is drawn from the global generator, as in transformers, not from a seed"
    return f"rows are chosen by a {type(batching.sampler).__name__}"


# Starting inside an epoch --------------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """An epoch is entered at a row: the batch that begins there has the number `batch`."""

    epoch: int
    row: int
    batch: int
    group: int | None


def skip_rows(loader: Loader, begin: Begin, replay: Replay | None = None) -> Loader:
    """An epoch without its first rows, which are not read, cut into batches of the size that the loader has now."""
    batching = batching_of(loader)
    assert batching is not None
    loader.begin = begin
    return _rest(loader, batching.regrouped(begin.group).rest(begin.row, begin.batch), begin.epoch, replay)


def skip_batches(loader: Any, count: int, replay: Replay | None = None) -> Iterable[Any]:
    """The loader's present epoch without its first `count` batches. Rows that can be addressed are not read."""
    if not isinstance(loader, Loader):
        note_once(f"reading and dropping {count} batches to come back to where training stood: the loader is your own")
        return _dropped(loader, count, replay)
    if is_iterable(loader.dataset):
        note_once(
            f"reading and dropping {count} batches to come back to where training stood: a stream has no addresses"
        )
        loader.stream_skip = count
        return _dropped(loader, count, None)
    batching = batching_of(loader)
    if batching is not None:
        row = min(count * batching.rows_per_batch, batching.rows)
        return skip_rows(loader, Begin(loader.epoch, row, count, None), replay)
    return _rest(loader, RestOfEpoch(loader.batch_sampler, count), loader.epoch, replay)


def _rest(loader: Loader, batches: Any, epoch: int, replay: Replay | None) -> Loader:
    rest = Loader(
        loader.dataset,
        training=loader.training,
        source=loader.source,
        batch_sampler=batches,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        multiprocessing_context=loader.multiprocessing_context,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )
    rest.set_epoch(epoch)
    rest.replay = replay
    rest.row_streams = loader.row_streams
    return rest


def _dropped(loader: Any, count: int, replay: Replay | None) -> Iterator[Any]:
    """What is left after `count` batches; the random streams then stand where they stood, as nothing is read ahead."""
    batches, started, told = iter(loader), time.monotonic(), False
    for done, _ in enumerate(islice(batches, count), start=1):
        if not told and time.monotonic() - started > TELLS_AFTER:
            told = True
            left = (time.monotonic() - started) / done * (count - done)
            note(f"{done} of the {count} batches to drop are read; the others take about {left:.0f} s")
    if replay is not None:
        replay.end()
    yield from batches


def stream_state_of(loader: Any, reader: Any) -> Any:
    """Where a stream stands, before the batch that is read ahead; None where nobody can tell.

    A stream that has `state_dict` and `load_state_dict` can; so can a loader of the user's that has them.
    """
    if isinstance(loader, Loader):
        return _plain(loader.stream_state) if is_iterable(loader.dataset) else None
    tell = getattr(loader, "state_dict", None)
    return _plain(tell()) if callable(tell) and callable(getattr(loader, "load_state_dict", None)) else None


def continue_stream(loader: Any, state: Any, count: int) -> Iterable[Any]:
    """The rest of an epoch from the state on in which a stream was after `count` batches."""
    if isinstance(loader, Loader):
        loader.stream_begin = (state, count)
    else:
        loader.load_state_dict(state)
    return loader


def can_continue(loader: Any, state: Any) -> bool:
    """Whether a stream can be put into a state instead of being read up to there."""
    if state is None:
        return False
    stateful = getattr(loader.dataset, "all_rows", loader.dataset) if isinstance(loader, Loader) else loader
    return callable(getattr(stateful, "load_state_dict", None)) and not (
        isinstance(loader, Loader) and loader.num_workers > 0  # where each worker has a stream of its own
    )


def stream_rows_per_batch(loader: Any) -> int | None:
    """The rows, over all processes, that a batch of a stream takes."""
    if not isinstance(loader, Loader) or not is_iterable(loader.dataset) or loader.batch_size is None:
        return None
    return loader.batch_size * getattr(loader.dataset, "world_size", 1)


def _plain(state: Any) -> Any:
    """A state, if it is made of what a checkpoint can hold."""
    if state is None or _is_plain(state):
        return state
    note_once(
        "the state_dict of the training stream holds objects that cannot be saved: a resumed run will read the stream "
        "up to where it stood"
    )
    return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool, Tensor))


def begin_epoch(loader: Any, epoch: int) -> None:
    """Tell a loader which epoch begins, or its parts if it does not want to know."""
    if callable(getattr(loader, "set_epoch", None)):
        announce_epoch(loader, epoch)
        return
    batches = getattr(loader, "batch_sampler", None)
    parts = [batches, getattr(batches, "sampler", None), getattr(loader, "sampler", None)]
    for part in {id(part): part for part in [*parts, getattr(loader, "dataset", None)]}.values():
        announce_epoch(part, epoch)


def rows_of(loader: Any, epoch: int, batches: range) -> list[int] | None:
    """The data-set indices of some batches of an epoch, by arithmetic; None where the order is not ours to know."""
    if isinstance(loader, Loader) and isinstance(loader.batch_sampler, TokenBudgetBatchSampler):
        chosen = islice(loader.batch_sampler.batches(epoch, batches.start), len(batches))
        return [index for batch in chosen for index in batch]
    batching = batching_of(loader)
    if batching is None or order_of(batching.sampler) is None:
        return None
    begin = loader.begin if loader.begin is not None and loader.begin.epoch == epoch else Begin(epoch, 0, 0, None)
    row = begin.row + (batches.start - begin.batch) * batching.rows_per_batch
    rest = batching.regrouped(begin.group).rest(max(row, 0), batches.start)
    rest.set_epoch(epoch)
    return [index for batch in islice(iter(rest), len(batches)) for index in batch]


def real_rows_of(loader: Any) -> Callable[[int], int | None]:
    """How many rows of batch k count in this process; None: all that it holds."""
    return getattr(loader, "real_rows", None) or _all


def _all(batch_number: int) -> None:
    return None
