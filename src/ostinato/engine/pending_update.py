"""An update whose numbers the host has not seen yet.

Reading on the host whether an update is finite makes it wait for the device, which then has nothing to do until the
next batch is launched. A fused optimizer can look itself: where `found_inf` is set it leaves the weights unchanged.
The verdict then travels to the host beside the next forward and backward, and is read before the next optimizer step.
Until then the schedule is one step ahead if the update turns out not to be finite; it is then set back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..core.host_copy import HostCopy, read_numbers
from .finite_guard import NonFiniteGuard
from .meters import Meters, UpdateNumbers
from .schedule_step import ScheduleStep
from .updates import Update


class Overflow(Protocol):
    """What float16 knows of a step: read only if the step was not finite, since reading waits for the device."""

    def has_infinite_gradients(self) -> bool:
        """Return whether the scaler found gradients that are not finite; it then corrects their scale."""
        ...

    def is_due_to_scale(self) -> bool:
        """Return whether they are not finite because of their scale."""
        ...


@dataclass(frozen=True)
class GuardedUpdate:
    """An update, its numbers, and those who count or refuse them."""

    guard: NonFiniteGuard
    meters: Meters
    update: Update
    numbers: UpdateNumbers
    step: int
    grad_norm: Tensor | float | None
    sum_over_processes: Callable[[Tensor], Tensor]

    def count(self) -> None:
        """Count the numbers of an update that was finite."""
        self.meters.commit(self.update, self.numbers)

    def refuse(self, *, is_due_to_scale: bool) -> None:
        """Report an update that was not finite and leave its numbers out; they count if only the scale was wrong."""
        if is_due_to_scale and self._has_finite_losses():
            self.guard.count_overflow(self.step)
            self.count()
            return
        self.meters.reject()
        *losses, grad_norm = read_numbers(
            [*self.numbers.losses, math.nan if self.grad_norm is None else self.grad_norm]
        )
        self.guard.refuse(
            step=self.step,
            losses=losses,
            grad_norm=grad_norm,
            epoch=self.update.epoch,
            batches=self.update.numbers,
            contents=self.update.batches,
        )

    def _has_finite_losses(self) -> bool:
        """Return whether the losses of all processes are finite."""
        bad = sum(not math.isfinite(loss) for loss in read_numbers(self.numbers.losses))
        return int(self.sum_over_processes(torch.tensor(bad))) == 0


@dataclass
class PendingUpdate:
    """An update that the optimizer has taken, or left out by itself: the host learns later which."""

    guarded: GuardedUpdate
    verdict: HostCopy  # of a number that is finite if the update is
    overflow: Overflow
    schedule_step: ScheduleStep | None = None

    def step_schedule(self, schedule: Any) -> None:
        """Step the schedule as if the update were finite."""
        self.schedule_step = ScheduleStep.take(schedule)

    def settle(self) -> None:
        """Wait for the verdict; count the update, or refuse it and set the schedule back."""
        (total,) = self.verdict.get()
        if self.guarded.guard.is_finite(total):
            self.guarded.count()
            return
        if self.schedule_step is not None and not self.overflow.has_infinite_gradients():
            self.schedule_step.undo()
        self.guarded.refuse(is_due_to_scale=self.overflow.is_due_to_scale())


@dataclass(frozen=True)
class KnownOutcome:
    """An update of which the host knows whether the schedule advances."""

    advances: bool

    def step_schedule(self, schedule: Any) -> None:
        """Step the schedule, unless the step was skipped."""
        if self.advances:
            schedule.step()


STEPPED, SKIPPED = KnownOutcome(advances=True), KnownOutcome(advances=False)
