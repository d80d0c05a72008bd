"""The state of a run in its checkpoint, and the effect of changed settings on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..arguments.resume_diff import Change
from ..core.state import TrainerState
from ..data.batching.batch_plan import Batching
from ..data.step_schedule import AnyStepSchedule, BudgetStepSchedule, StepSchedule
from .plan import Plan
from .position import Position


@dataclass(frozen=True)
class Resumed:
    """A run as its checkpoint holds it, and its plan from there on."""

    checkpoint: str  # empty for a run that restarts in its own process
    state: TrainerState
    progress: Mapping[str, Any]
    plan: Plan
    changes: list[str]  # what differs from before, and what follows from it: one line each
    has_other_processes: bool
    arguments: tuple[Change, ...] = ()  # those that differ from before

    @classmethod
    def build(
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
        keeps_order: bool = True,
    ) -> Resumed:
        """Build it from `plan`, which is the plan of a new run with the present settings.

        `keeps_order` states that the rows of an epoch still come in their earlier order.
        """
        position, changes = Position.read(progress["place"], batching), []
        if batching is not None and position.schedules:
            present = position.build_schedule(batching, plan.accumulation, state.global_step)
            plan = plan.extend(position.find_last_change(present), epochs=epochs, max_steps=max_steps)
            changes += _describe_changes(
                position.schedules[-1], present, plan, state.max_steps, stays=max_steps > 0, keeps_order=keeps_order
            )
        other = position.processes is not None and position.processes != processes
        if other:
            changes.append(
                f"{processes} processes instead of {position.processes}: their random streams (dropout) are seeded "
                "anew, which cannot give the numbers of the run as it was"
            )
        return cls(checkpoint, state, progress, plan, changes, other)


def _describe_changes(
    before: AnyStepSchedule, now: AnyStepSchedule, plan: Plan, planned: int, *, stays: bool, keeps_order: bool
) -> list[str]:
    """Return one line if steps are divided differently than before, else none."""
    if before.is_like(now):
        return []
    if before.counts != now.counts:
        return [
            "batches are made in another way than before the checkpoint: rows of the epoch that is resumed may be "
            "seen twice or not at all"
        ]
    if isinstance(before, StepSchedule) and isinstance(now, StepSchedule) and before.rows != now.rows:
        return [_describe_other_rows(before, now)]
    if stays or plan.max_steps == planned:
        length = f"the run still ends at step {plan.max_steps}, and so does its learning-rate schedule"
    else:
        length = f"the learning-rate schedule is stretched to {plan.max_steps} steps, from {planned}"
    unit = "row" if now.counts == "rows" else "batch"
    seen = "batch" if now.counts == "batches" else "row"
    once = f"every {seen} is still seen once; " if keeps_order else ""
    return [f"resuming at {unit} {now.row} of epoch {now.epoch} with {_describe_cut(before, now)}: {once}{length}"]


def _describe_other_rows(before: StepSchedule, now: StepSchedule) -> str:
    if now.counts == "batches":
        return (
            f"an epoch has {now.rows} batches instead of {before.rows}: batches of your own are continued by their "
            "number, rows of the epoch that is resumed may be seen twice or not at all"
        )
    return (
        f"the training set has {now.rows} rows instead of {before.rows}: the epoch that is resumed has another "
        "order now, rows of it may be seen twice or not at all"
    )


def _describe_cut(before: AnyStepSchedule, now: AnyStepSchedule) -> str:
    if isinstance(before, BudgetStepSchedule) or isinstance(now, BudgetStepSchedule):
        return _describe_budget(before, now)
    if before.rows_per_step != now.rows_per_step:
        return f"{now.rows_per_step} {now.counts} per step instead of {before.rows_per_step}"
    if before.rows_per_batch != now.rows_per_batch:
        same = f"steps of the same {now.rows_per_step} {now.counts}"
        return f"{same}, in batches of {now.rows_per_batch} instead of {before.rows_per_batch}"
    if before.drop_last != now.drop_last:
        return f"drop_last={now.drop_last} instead of {before.drop_last}"
    return "its batches cut in another way"


def _describe_budget(before: Any, now: Any) -> str:
    names = {
        "max_tokens": "max_tokens_per_batch",
        "world_size": "processes",
        "multiple": "pad_to_multiple_of",
        "window": "length_window",
    }
    changed = [
        f"{name}={now.cut[key]} instead of {before.cut[key]}"
        for key, name in names.items()
        if now.cut[key] != before.cut[key]
    ]
    if now.accumulation != before.accumulation:
        changed.append(f"{now.accumulation} batches per step instead of {before.accumulation}")
    return " and ".join(changed)
