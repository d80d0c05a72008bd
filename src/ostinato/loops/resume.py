"""What a checkpoint says of a run, and what becomes of it under other settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.state import TrainerState
from ..data.position import Batching, Course
from .run import Place, Plan


@dataclass(frozen=True)
class Resumed:
    """A run as its checkpoint has it, and how long it will be from there on."""

    checkpoint: str
    state: TrainerState
    progress: Mapping[str, Any]
    plan: Plan
    changes: list[str]  # what is other than before, and what follows from it: one line each
    has_other_processes: bool

    @classmethod
    def at(
        cls,
        checkpoint: str,
        state: TrainerState,
        progress: Mapping[str, Any],
        plan: Plan,
        batching: Batching | None,
        *,
        epochs: float,
        max_steps: int,
        processes: int,
    ) -> Resumed:
        """`plan` is that of a run that starts anew with the present settings."""
        place, changes = Place.of(progress["place"]), []
        if batching is not None and place.row is not None and place.courses:
            present = place.course(batching, plan.accumulation, state.global_step)
            plan = plan.going_on(place.base(present), epochs=epochs, max_steps=max_steps)
            changes += _changes(place.courses[-1], present, plan, state.max_steps, stays=max_steps > 0)
        other = place.processes is not None and place.processes != processes
        if other:
            changes.append(
                f"{processes} processes instead of {place.processes}: their random streams (dropout) are seeded anew, "
                "which cannot give the numbers of the run as it was"
            )
        return cls(checkpoint, state, progress, plan, changes, other)


def _changes(before: Course, now: Course, plan: Plan, planned: int, *, stays: bool) -> list[str]:
    """One line on steps that are cut in another way, none if they are not."""
    if before.rows != now.rows:
        return [
            f"the training set has {now.rows} rows instead of {before.rows}: the epoch that is resumed has another "
            "order now, rows of it may be seen twice or not at all"
        ]
    if before.is_like(now):
        return []
    if before.rows_per_step != now.rows_per_step:
        what = f"{now.rows_per_step} rows per step instead of {before.rows_per_step}"
    elif before.rows_per_batch != now.rows_per_batch:
        what = f"steps of the same {now.rows_per_step} rows, in batches of {now.rows_per_batch} instead of "
        what += str(before.rows_per_batch)
    else:
        what = f"drop_last={now.drop_last} instead of {before.drop_last}"
    if stays or plan.max_steps == planned:
        length = f"the run still ends at step {plan.max_steps}, and so does its learning-rate schedule"
    else:
        length = f"the learning-rate schedule is stretched to {plan.max_steps} steps, from {planned}"
    return [f"resuming at row {now.row} of epoch {now.epoch} with {what}: every row is still seen once; {length}"]
