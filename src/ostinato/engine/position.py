"""The position of a run in its data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.random import RandomState
from ..data.batching.batch_plan import Batching
from ..data.step_schedule import AnyCourse, course_of, saved_course
from ..data.user_loaders import generators_of


@dataclass
class Place:
    """The position of a run in its data, which every checkpoint holds."""

    epoch: int = 0
    batch: int = 0  # the number within the epoch of the next batch to train on
    row: int | None = None  # the rows of the epoch that are done, over all processes; None: not counted
    group: int | None = None  # the rows that the order of the epoch keeps together, if it depends on length
    courses: list[AnyCourse] = field(default_factory=list)  # the step schedules that the run has followed
    processes: int | None = None
    workers: int | None = None  # that share a stream
    data: Any = None  # the stream's own state of its position
    rows_per_batch: int | None = None  # of a stream
    stream: Tensor | None = None  # torch's generator when the epoch began: some orders are drawn from it
    generators: list[Tensor] = field(default_factory=list)  # the same for generators that belong to the loader
    before_read: RandomState | None = None  # the random streams before the next batch was read, which happens ahead

    @classmethod
    def of(cls, saved: Mapping[str, Any], batching: Batching | None) -> Place:
        """Build a position from a checkpoint; older checkpoints hold fewer fields."""
        streams, batches_in = saved["before_read"], getattr(getattr(batching, "sampler", None), "batches_in", None)
        place = cls(
            **{
                **saved,
                "before_read": None if streams is None else RandomState(**streams),
                "courses": [course_of(course, batches_in) for course in saved.get("courses", [])],
            }
        )
        if batching is not None and place.courses:
            present = place.course(batching, 1, 0)
            if place.courses[-1].counts != present.counts:  # the unit of counting has changed
                place.row = place.batch * batching.rows_per_batch
                place.row = min(place.row, batching.rows) if batching.rows else place.row
                present = place.course(batching, 1, 0)
            batching.recall([*place.courses, present])
        return place

    def saved(self) -> dict[str, Any]:
        """Return the values that a checkpoint holds."""
        courses = [saved_course(course) for course in self.courses]
        return {**dataclasses.asdict(dataclasses.replace(self, courses=[])), "courses": courses}

    @property
    def inside(self) -> bool:
        """Whether a part of the epoch is done."""
        return self.batch > 0 or bool(self.row)

    def course(self, batching: Batching, accumulation: int, step: int) -> AnyCourse:
        """Return the step schedule from this position on."""
        return batching.course(accumulation, step=step, epoch=self.epoch, row=self.row or 0, group=self.group)

    def record_schedule(self, present: AnyCourse) -> None:
        """Record the step schedule, unless the last one leads to it."""
        last = self.courses[-1] if self.courses else None
        at_end = present.batches_left(present.row, present.epoch) == 0
        here = (present.epoch + 1, 0) if at_end else (present.epoch, present.row)
        if last is None or not last.is_like(present) or last.place_after(present.step) != here:
            self.courses.append(present)

    def base(self, present: AnyCourse) -> AnyCourse | None:
        """Return the step schedule at which steps were last divided differently; None if they never were."""
        past = [*self.courses, present]
        changes = [after for before, after in itertools.pairwise(past) if not after.is_like(before)]
        return changes[-1] if changes else None

    def restart_epoch(self) -> None:
        """Go back to the first row of the epoch."""
        self.batch, self.row = 0, None if self.row is None else 0

    def mark(self, loader: Any) -> None:
        """Record the state of the generators at the start of an epoch."""
        self.stream = torch.get_rng_state()
        self.generators = [generator.get_state() for generator in generators_of(loader)]

    def rewind(self, loader: Any) -> None:
        """Reset the global generator and the loader's own, so that an order drawn from them is drawn as before."""
        if self.stream is not None:
            torch.set_rng_state(self.stream)
        for generator, state in zip(generators_of(loader), self.generators, strict=False):
            generator.set_state(state)

    def close_epoch(self) -> None:
        self.epoch += 1
        self.restart_epoch()
