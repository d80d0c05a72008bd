"""The position of a run in its data: what a checkpoint holds of it, and how a resumed run returns to it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.random import RandomState
from ..data.batching.batch_plan import Batching, EpochStart
from ..data.epoch_position import find_stream_batch_size, find_stream_state, find_worker_starts, start_at
from ..data.loader import Replay
from ..data.skip_progress import ShowProgress
from ..data.step_schedule import AnyStepSchedule, export_schedule, restore_schedule
from ..data.user_loaders import find_generators
from ..data.worker_streams import Start, export_starts, read_starts
from .plan import Plan


@dataclass
class Position:
    """The position of a run in its data. A checkpoint holds the fields by name, `schedules` as `courses`."""

    epoch: int = 0
    batch: int = 0  # the number within the epoch of the next batch to train on
    row: int | None = None  # the rows of the epoch that are done, over all processes; None: not counted
    group: int | None = None  # the rows that the order of the epoch keeps together, if it depends on length
    schedules: list[AnyStepSchedule] = field(default_factory=list)  # the step schedules that the run has followed
    processes: int | None = None
    workers: int | None = None  # that share a stream
    data: Any = None  # the stream's own state of its position
    rows_per_batch: int | None = None  # of a stream
    stream: Tensor | None = None  # torch's generator when the epoch began: some orders are drawn from it
    generators: list[Tensor] = field(default_factory=list)  # the same for generators that belong to the loader
    before_read: RandomState | None = None  # the random streams before the next batch was read, which happens ahead
    worker_starts: list[Start] = field(default_factory=list)  # the same for workers with streams of their own

    @property
    def is_inside_epoch(self) -> bool:
        """Whether a part of the epoch is done."""
        return self.batch > 0 or bool(self.row)

    # ---- moving on -------------------------------------------------------------------------------------

    def advance(self, batches: int, *, rows_per_batch: int, rows: int) -> None:
        """Move on by some batches of an epoch that has `rows`; 0: their number is unknown."""
        self.batch += batches
        if self.row is not None:
            self.row = _limit(self.row + batches * rows_per_batch, rows)

    def restart_epoch(self) -> None:
        """Go back to the first row of the epoch."""
        self.batch, self.row = 0, None if self.row is None else 0

    def close_epoch(self) -> None:
        """Go to the first row of the next epoch."""
        self.epoch += 1
        self.restart_epoch()

    # ---- checkpoints -----------------------------------------------------------------------------------

    @classmethod
    def read(cls, saved: Mapping[str, Any], batching: Batching | None) -> Position:
        """Build a position from a checkpoint; older checkpoints hold fewer fields."""
        streams, batches_in = saved["before_read"], getattr(getattr(batching, "sampler", None), "batches_in", None)
        position = cls(
            **{
                **{name: value for name, value in saved.items() if name != "courses"},
                "before_read": None if streams is None else _read_streams(streams),
                "worker_starts": read_starts(saved.get("worker_starts", [])),
                "schedules": [restore_schedule(schedule, batches_in) for schedule in saved.get("courses", [])],
            }
        )
        if batching is not None and position.schedules:
            present = position.build_schedule(batching, 1, 0)
            if position.schedules[-1].counts != present.counts:  # the unit of counting has changed
                position.row = _limit(position.batch * batching.rows_per_batch, batching.rows)
                present = position.build_schedule(batching, 1, 0)
            batching.record_history([*position.schedules, present])
        return position

    def capture(self, loader: Any, reader: Any, processes: int) -> Position:
        """Return the position with the state of a loader, and of the one that reads now, as a resumed run needs it."""
        return dataclasses.replace(
            self,
            before_read=getattr(reader, "before_read", None),
            worker_starts=find_worker_starts(reader, is_inside_epoch=self.is_inside_epoch),
            processes=processes,
            rows_per_batch=find_stream_batch_size(loader),
            data=find_stream_state(loader) if self.is_inside_epoch else None,
            workers=getattr(loader, "num_workers", None),
        )

    def export(self) -> dict[str, Any]:
        """Return the values that a checkpoint holds."""
        values = dataclasses.asdict(dataclasses.replace(self, schedules=[], worker_starts=[]))
        values["worker_starts"] = export_starts(self.worker_starts)
        values["schedules"] = [export_schedule(schedule) for schedule in self.schedules]
        return {"courses" if name == "schedules" else name: value for name, value in values.items()}

    # ---- resuming --------------------------------------------------------------------------------------

    def fit(self, loader: Any, batching: Batching | None, plan: Plan) -> None:
        """Derive the batch number from the rows, where rows can be counted.

        Batches may have another size than those of a checkpoint. The batches that are left of an epoch get the last
        numbers in it.
        """
        if batching is None:
            self._fit_to_stream(find_stream_batch_size(loader))
            return
        if self.row is None:
            self.row = _limit(self.batch * (self.rows_per_batch or batching.rows_per_batch), batching.rows)
        left = self.build_schedule(batching, plan.accumulation, 0).batches_left(self.row, self.epoch)
        self.batch = max(plan.count_batches(self.epoch) - left, 0)

    def _fit_to_stream(self, rows_per_batch: int | None) -> None:
        if rows_per_batch is None:
            self.row = None
            return
        if self.row is None:
            self.row = self.batch * (self.rows_per_batch or rows_per_batch)
        if self.rows_per_batch not in (None, rows_per_batch):
            self.batch = self.row // rows_per_batch

    def open_rest(self, loader: Any, restore_streams: Callable[[], None], show: ShowProgress | None) -> Iterable[Any]:
        """Return the rest of the epoch in which a resumed run was stopped."""
        row = self.batch if self.row is None else self.row
        begin = EpochStart(
            self.epoch,
            row,
            self.batch,
            self.group,
            self.data,
            self.rows_per_batch,
            self.workers,
            self.worker_starts or None,
        )
        return start_at(loader, begin, Replay(self.before_read, restore_streams), show)

    def record_generators(self, loader: Any) -> None:
        """Record the state of the generators at the start of an epoch."""
        self.stream = torch.get_rng_state()
        self.generators = [generator.get_state() for generator in find_generators(loader)]

    def restore_generators(self, loader: Any) -> None:
        """Reset the global generator and the loader's own, so that an order drawn from them is drawn as before."""
        if self.stream is not None:
            torch.set_rng_state(self.stream)
        for generator, state in zip(find_generators(loader), self.generators, strict=False):
            generator.set_state(state)

    # ---- step schedules --------------------------------------------------------------------------------

    def build_schedule(self, batching: Batching, accumulation: int, step: int) -> AnyStepSchedule:
        """Return the step schedule from this position on."""
        return batching.build_schedule(accumulation, step=step, epoch=self.epoch, row=self.row or 0, group=self.group)

    def record_schedule(self, batching: Batching, accumulation: int, step: int) -> None:
        """Record the step schedule from this position on, unless the last one leads to it."""
        if not self.is_inside_epoch:
            self.group = batching.group
        present = self.build_schedule(batching, accumulation, step)
        last = self.schedules[-1] if self.schedules else None
        at_end = present.batches_left(present.row, present.epoch) == 0
        here = (present.epoch + 1, 0) if at_end else (present.epoch, present.row)
        if last is None or not last.is_like(present) or last.find_position_after(present.step) != here:
            self.schedules.append(present)

    def find_last_change(self, present: AnyStepSchedule) -> AnyStepSchedule | None:
        """Return the step schedule at which steps were last divided differently; None if they never were."""
        past = [*self.schedules, present]
        changes = [after for before, after in itertools.pairwise(past) if not after.is_like(before)]
        return changes[-1] if changes else None


def _limit(row: int, rows: int) -> int:
    """Return a number of rows that does not exceed that of an epoch, if that is known."""
    return min(row, rows) if rows else row


def _read_streams(saved: Mapping[str, Any]) -> RandomState:
    return RandomState.read(saved).keep_present_devices("the position in the data")
