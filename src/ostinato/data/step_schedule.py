"""The steps of a run as arithmetic: where it starts in its data, and how many rows a step has.

A run follows one schedule, unless it is resumed with other numbers or leaves an epoch before its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

Cut = dict[str, int | None]  # decides which rows share a batch, for batches by number of tokens


@dataclass(frozen=True)
class StepSchedule:
    """Equal steps.

    >>> schedule = StepSchedule(step=0, epoch=0, row=0, rows=10, rows_per_batch=4, accumulation=1, drop_last=False)
    >>> schedule.rows_of(3), schedule.rows_of(4)
    ((0, range(8, 10)), (1, range(0, 4)))
    """

    step: int  # steps taken before the schedule
    epoch: int
    row: int
    rows: int  # rows of an epoch
    rows_per_batch: int  # over all processes
    accumulation: int
    drop_last: bool
    group: int | None = None  # rows that an order by length keeps together
    first_group: int | None = None  # the same for its first epoch, which may have begun earlier
    counts: str = "rows"  # or "batches", where the user supplies them: rows then means batches

    @property
    def rows_per_step(self) -> int:
        return self.rows_per_batch * self.accumulation

    def is_like(self, other: AnyStepSchedule) -> bool:
        """Return whether both divide an epoch into the same steps."""
        names = ("rows", "rows_per_batch", "accumulation", "drop_last", "group", "counts")
        return isinstance(other, StepSchedule) and all(getattr(self, name) == getattr(other, name) for name in names)

    def batches_left(self, row: int, epoch: int = 0) -> int:
        """Return the batches of an epoch from a row on."""
        whole, part = divmod(max(self.rows - row, 0), self.rows_per_batch)
        return whole + (part > 0 and not self.drop_last)

    def steps_left(self, row: int) -> int:
        """Return the steps of an epoch from a row on."""
        return -(-self.batches_left(row) // self.accumulation)

    def steps_until(self, epochs: float) -> int:
        """Return the steps from the start of the schedule until so many epochs are done."""
        after = epochs - self.epoch - 1
        if after >= 0:
            return self.steps_left(self.row) + math.ceil(after * self.steps_left(0))
        rows = math.ceil((epochs - self.epoch) * self.rows) - self.row
        return min(max(-(-rows // self.rows_per_step), 0), self.steps_left(self.row))

    def epochs_for(self, steps: int) -> int:
        """Return how many epochs, counted from the first of the run, are begun by `steps` steps of the run."""
        after = max(steps - self.step - self.steps_left(self.row), 0)
        return self.epoch + 1 + -(-after // max(self.steps_left(0), 1))

    def find_position_after(self, step: int) -> tuple[int, int]:
        """Return the epoch and row of the run after `step` steps; the end of an epoch is row 0 of the next."""
        if step == self.step:
            return self.epoch, self.row
        epoch, rows = self.rows_of(step)
        return (epoch + 1, 0) if self.batches_left(rows.stop) == 0 else (epoch, rows.stop)

    def rows_of(self, step: int) -> tuple[int, range]:
        """Return the epoch of a step, and the positions in its order that the step is computed from."""
        number, epoch, row = step - self.step - 1, self.epoch, self.row
        if number >= self.steps_left(row):
            after, number = divmod(number - self.steps_left(row), max(self.steps_left(0), 1))
            epoch, row = epoch + 1 + after, 0
        end = min(row + self.batches_left(row) * self.rows_per_batch, self.rows)
        start = row + number * self.rows_per_step
        return epoch, range(start, min(start + self.rows_per_step, end))

    def group_in(self, epoch: int) -> int | None:
        return self.first_group if epoch == self.epoch else self.group


@dataclass(frozen=True)
class BudgetStepSchedule:
    """Steps of batches by number of tokens: epochs differ in their number of steps. Its rows are batches.

    >>> schedule = BudgetStepSchedule(
    ...     step=0, epoch=0, row=0, accumulation=2, cut={}, batches_in=lambda epoch: 3 + epoch
    ... )
    >>> [schedule.rows_of(step) for step in range(1, 5)]
    [(0, range(0, 2)), (0, range(2, 3)), (1, range(0, 2)), (1, range(2, 4))]
    """

    step: int
    epoch: int
    row: int
    accumulation: int
    cut: Cut
    batches_in: Callable[[int], int] = field(compare=False, repr=False)

    @property
    def counts(self) -> str:
        return "batches by tokens"

    def is_like(self, other: AnyStepSchedule) -> bool:
        """Return whether both divide an epoch into the same steps."""
        same = isinstance(other, BudgetStepSchedule) and self.cut == other.cut
        return same and self.accumulation == other.accumulation

    def batches_left(self, row: int, epoch: int = 0) -> int:
        """Return the batches of an epoch from a batch on."""
        return max(self.batches_in(epoch) - row, 0)

    def _steps_in(self, epoch: int) -> int:
        """Return the steps of an epoch that belong to this schedule."""
        left = self.batches_left(self.row if epoch == self.epoch else 0, epoch)
        return -(-left // self.accumulation)

    def steps_until(self, epochs: float) -> int:
        """Return the steps from the start of the schedule until so many epochs are done."""
        whole = math.floor(epochs)
        if whole < self.epoch:
            return 0
        done = self.row if whole == self.epoch else 0
        part = max(math.ceil((epochs - whole) * self.batches_in(whole)) - done, 0) if epochs > whole else 0
        return sum(map(self._steps_in, range(self.epoch, whole))) + -(-part // self.accumulation)

    def epochs_for(self, steps: int) -> int:
        """Return how many epochs, counted from the first of the run, are begun by `steps` steps of the run."""
        return self._find_step(steps)[0] + 1

    def find_position_after(self, step: int) -> tuple[int, int]:
        """Return the epoch and batch of the run after `step` steps."""
        if step == self.step:
            return self.epoch, self.row
        epoch, batches = self.rows_of(step)
        return (epoch + 1, 0) if batches.stop >= self.batches_in(epoch) else (epoch, batches.stop)

    def rows_of(self, step: int) -> tuple[int, range]:
        """Return the epoch of a step, and the numbers in it of the step's batches."""
        epoch, number = self._find_step(step)
        start = (self.row if epoch == self.epoch else 0) + number * self.accumulation
        return epoch, range(start, min(start + self.accumulation, self.batches_in(epoch)))

    def _find_step(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step, and its number there among the steps of this schedule."""
        number = step - self.step - 1
        for epoch in count(self.epoch):
            steps = self._steps_in(epoch)
            if number < max(steps, epoch > self.epoch):  # epochs without batches would never end the loop
                return epoch, max(number, 0)
            number -= steps
        raise AssertionError


AnyStepSchedule = StepSchedule | BudgetStepSchedule


def export_schedule(schedule: AnyStepSchedule) -> dict[str, Any]:
    """Return a schedule as a checkpoint holds it."""
    return {each.name: getattr(schedule, each.name) for each in fields(schedule) if each.name != "batches_in"}


def restore_schedule(saved: Mapping[str, Any], batches_in: Callable[[int], int] | None) -> AnyStepSchedule:
    """Return a schedule from a checkpoint. `batches_in` counts the batches of an epoch for batches by tokens."""
    return (
        BudgetStepSchedule(**saved, batches_in=batches_in or _count_no_batches)
        if "cut" in saved
        else StepSchedule(**saved)
    )


def _count_no_batches(epoch: int) -> int:
    """Return 0, for batches that are no longer made."""
    return 0
