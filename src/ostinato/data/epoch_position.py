"""A position inside an epoch, and how to start there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ..core.errors import DataError, NotSupportedError
from ..core.notices import note_once
from .batching.batch_plan import (
    Batching,
    BudgetBatches,
    EpochStart,
    RemainingBatches,
    UserBatches,
    build_first_schedule,
    find_batching,
    order_of,
)
from .loader import Loader, Replay
from .samplers.base import announce_epoch
from .samplers.epoch_sampler import LengthGroupedSampler
from .sizes import is_iterable
from .skip_progress import ShowProgress, SkipProgress
from .step_schedule import AnyStepSchedule, StepSchedule
from .streams.reader import StreamStart
from .streams.shards import StreamPosition, can_resume, has_shuffle_buffer, keep_if_plain, unwrap_stream
from .worker_streams import Start, WorkerStreams

__all__ = [
    "EpochStart",
    "begin_epoch",
    "build_first_schedule",
    "find_batch_rows",
    "find_batching",
    "get_row_counter",
    "samples_at",
    "start_at",
]


class NotAStepError(DataError, TypeError):
    """A step that is not a number."""


class NoSuchStepError(DataError, IndexError):
    """A step that the run does not have."""


# Which rows ----------------------------------------------------------------------------------------------------------


def samples_at(loader: Any, schedules: Sequence[AnyStepSchedule], step: Any, max_steps: int) -> list[int]:
    """Return the rows of the data set, over all processes, from which a step of a run is computed."""
    step = _check_step(step, max_steps)
    batching = find_batching(loader)
    order = None if batching is None else order_of(batching.sampler)
    if batching is None or (order is None and not isinstance(batching, BudgetBatches)):
        raise NotSupportedError(
            what=f"the rows of step {step} cannot be computed",
            why=_explain_unknown_rows(loader, batching),
            fix="record them where they are read, or train on a data set with numbered rows in one of the orders of "
            "train_sampling_strategy",
        )
    schedule = next((schedule for schedule in reversed(schedules) if schedule.step < step), None)
    if schedule is None:
        raise DataError(
            what=f"the rows of step {step} are not known",
            why=f"the run was resumed after step {schedules[0].step}, from a checkpoint that does not record which "
            "rows its steps had",
            fix=f"pass step {schedules[0].step + 1} or a later one",
        )
    epoch, places = schedule.rows_of(step)
    if isinstance(batching, BudgetBatches):
        return batching.sampler.rows_of(epoch, places)
    group = schedule.group_in(epoch) if isinstance(schedule, StepSchedule) else None
    order = order_of(batching.regroup(group).sampler) or order
    return [] if order is None else list(islice(order(epoch, places.start), len(places)))


def _check_step(step: Any, max_steps: int) -> int:
    is_number = isinstance(step, int) and not isinstance(step, bool)
    if not is_number and not callable(getattr(step, "__index__", None)):
        raise NotAStepError(
            what=f"{step!r} is not the number of a step",
            why=f"it is a {type(step).__name__}, and steps are counted 1, 2, 3, ...",
            fix="use samples_at(1), or samples_at(trainer.state.global_step)",
        )
    number = step.__index__()
    if not 1 <= number <= max_steps:
        raise NoSuchStepError(
            what=f"there is no step {number}",
            why=f"the run has {max_steps} steps, counted from 1",
            fix=f"pass a step from 1 to {max_steps}",
        )
    return number


def _explain_unknown_rows(loader: Any, batching: Batching | None) -> str:
    if not isinstance(loader, Loader):
        return f"batches come from your own {type(loader).__name__}"
    if is_iterable(loader.dataset):
        return "a stream yields rows in its own order, and they have no numbers"
    if batching is None or isinstance(batching, UserBatches):
        return f"batches are chosen by a {type(loader.batch_sampler).__name__}"
    if isinstance(batching.sampler, LengthGroupedSampler):
        return "the order by length is drawn from the global generator, as in transformers, not from a seed"
    return f"rows are chosen by a {type(batching.sampler).__name__}"


def find_batch_rows(loader: Any, epoch: int, batches: range) -> list[int] | None:
    """Return the data-set indices of some batches of an epoch, by arithmetic; None where the order is not known."""
    batching = find_batching(loader)
    if isinstance(batching, BudgetBatches):
        chosen = islice(batching.sampler.iterate_batches(epoch, batches.start), len(batches))
        return [index for batch in chosen for index in batch]
    if batching is None or order_of(batching.sampler) is None:
        return None
    begin = (
        loader.epoch_start
        if loader.epoch_start is not None and loader.epoch_start.epoch == epoch
        else EpochStart(epoch, 0, 0)
    )
    row = begin.row + (batches.start - begin.batch) * batching.rows_per_batch
    rest = batching.build_rest(EpochStart(epoch, max(row, 0), batches.start, begin.group))
    rest.set_epoch(epoch)
    return [index for batch in islice(iter(rest), len(batches)) for index in batch]


def get_row_counter(loader: Any) -> Callable[[int], int | None]:
    """Return a function that gives the number of rows of batch k that count in this process; None means all."""
    return getattr(loader, "real_rows", None) or _count_all_rows


def _count_all_rows(batch_number: int) -> None:
    return None


# Starting inside an epoch --------------------------------------------------------------------------------------------


def begin_epoch(loader: Any, epoch: int) -> None:
    """Announce the epoch to a loader, or to its parts if it has no `set_epoch`."""
    if callable(getattr(loader, "set_epoch", None)):
        announce_epoch(loader, epoch)
        return
    batches = getattr(loader, "batch_sampler", None)
    parts = [batches, getattr(batches, "sampler", None), getattr(loader, "sampler", None)]
    for part in {id(part): part for part in [*parts, getattr(loader, "dataset", None)]}.values():
        announce_epoch(part, epoch)


def start_at(
    loader: Any, begin: EpochStart, replay: Replay | None = None, show: ShowProgress | None = None
) -> Iterable[Any]:
    """Return the rest of an epoch, in batches of the loader's current size.

    Rows that have numbers are skipped without reading. A stream, or a loader of the user's, is set to its former
    position if it supports that, and is otherwise read again up to there; `show` receives the progress.
    """
    if not isinstance(loader, Loader):
        if begin.stream is not None and callable(getattr(loader, "load_state_dict", None)):
            loader.load_state_dict(begin.stream)
            return loader
        return _drop_batches(loader, begin.batch, replay, show)
    if is_iterable(loader.dataset):
        loader.replay = replay if loader.reads_in_process else None
        return _resume_stream(loader, begin, show)
    batching = find_batching(loader)
    loader.epoch_start = begin
    batches = RemainingBatches(loader.batch_sampler, begin.batch) if batching is None else batching.build_rest(begin)
    return _build_rest(loader, batches, begin, replay)


def skip_batches(loader: Any, count: int, show: ShowProgress | None = None) -> Iterable[Any]:
    """Return the loader's current epoch without its first `count` batches."""
    batching = find_batching(loader)
    size = find_stream_batch_size(loader) or (1 if batching is None else batching.rows_per_batch)
    row = count * size if batching is None else min(count * size, batching.rows)
    return start_at(loader, EpochStart(getattr(loader, "epoch", 0), row, count), show=show)


def _build_rest(loader: Loader, batches: Any, begin: EpochStart, replay: Replay | None) -> Loader:
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
    rest.set_epoch(begin.epoch)
    rest.replay = replay
    rest.resumed_streams = build_worker_streams(loader, begin.worker_starts, begin.batch)
    rest.row_streams = loader.row_streams
    return rest


def _drop_batches(loader: Any, count: int, replay: Replay | None, show: ShowProgress | None) -> Iterator[Any]:
    """Yield the batches after the first `count`. Random streams are then as they were, as nothing is read ahead."""
    note_once(f"reading and dropping {count} batches to return to the saved position: the loader is your own")
    batches = iter(loader)
    with SkipProgress(count, "batches", show) as skipping:
        for _ in islice(batches, count):
            skipping.advance(1)
    if replay is not None:
        replay.end()
    yield from batches


# Workers -------------------------------------------------------------------------------------------------------------


def build_worker_streams(loader: Loader, starts: list[Start] | None, batch: int = 0) -> WorkerStreams | None:
    """Return the random streams with which as many workers as before start at a batch, if they share torch's."""
    if not starts or not loader.shares_streams or len(starts) != loader.num_workers:
        return None
    return WorkerStreams(list(starts), batch % len(starts))


def find_worker_starts(reader: Any, *, is_inside_epoch: bool) -> list[Start]:
    """Return the random streams with which workers read their next batches; inside an epoch one is read ahead."""
    streams = reader.worker_streams if isinstance(reader, Loader) else None
    if streams is None:
        return []
    if is_inside_epoch:
        return streams.list_before_newest()
    return streams.starts if reader.persistent_workers else []  # others get a new seed


def continue_workers(loader: Any, starts: list[Start] | None) -> None:
    """Let workers that persist go on as those that were started in an earlier process, or for the rest of an epoch."""
    if isinstance(loader, Loader) and loader.persistent_workers:
        loader.continues_workers, loader.resumed_streams = True, build_worker_streams(loader, starts)


# Streams -------------------------------------------------------------------------------------------------------------


def _resume_stream(loader: Loader, begin: EpochStart, show: ShowProgress | None) -> Loader:
    place = StreamPosition.of(begin.stream, begin.row)
    if place.state is not None and (loader.num_workers or not can_resume(loader.dataset)):
        place = replace(place, state=None)
    before = begin.rows_per_batch or find_stream_batch_size(loader) or 1
    if begin.workers not in (None, loader.num_workers):
        note_once(
            f"{loader.num_workers} workers share the stream instead of {begin.workers}, and which rows each of them "
            "has read is not known: rows of the resumed epoch may be read twice or not at all"
        )
    count = begin.row if place.state is None else begin.row - place.row
    if count:
        note_once(f"reading and dropping {count} rows to return to the saved position: {_explain_dropping(loader)}")
    loader.stream_start = StreamStart(place, begin.row, begin.row // before, before)
    loader.first_batch, loader.show_skipping = begin.batch, show
    return loader


def _explain_dropping(loader: Loader) -> str:
    if has_shuffle_buffer(unwrap_stream(loader.dataset)):
        return "the stream shuffles in a buffer, whose rows its state_dict does not hold"
    return "the rows of a stream have no numbers"


def find_stream_state(loader: Any) -> Any:
    """Return the position of a stream before the batch that is read ahead; None where it is not known.

    It is known for a stream, or a loader of the user's, that has `state_dict` and `load_state_dict`.
    """
    if isinstance(loader, Loader):
        place = loader.stream_position if is_iterable(loader.dataset) else None
        return None if place is None else {**vars(place), "state": keep_if_plain(place.state)}
    get_state = getattr(loader, "state_dict", None)
    return (
        keep_if_plain(get_state())
        if callable(get_state) and callable(getattr(loader, "load_state_dict", None))
        else None
    )


def find_stream_batch_size(loader: Any) -> int | None:
    """Return the number of rows, over all processes, in a batch of a stream."""
    if not isinstance(loader, Loader) or not is_iterable(loader.dataset) or loader.batch_size is None:
        return None
    return loader.batch_size * getattr(loader.dataset, "world_size", 1)
