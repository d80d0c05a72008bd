"""The arithmetic of a run: the number of its steps, epochs and batches."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ..data.step_schedule import AnyStepSchedule


@dataclass(frozen=True)
class Plan:
    """The arithmetic of a run, fixed before the first batch."""

    max_steps: int
    epochs: int
    batches_per_epoch: int
    accumulation: int
    max_grad_norm: float  # infinity when clipping is off: the norm is still measured
    rows: int  # that training will read, for the reported speed
    varying: Callable[[int], int] | None = None  # the batches of each epoch, where the number differs

    def count_batches(self, epoch: int) -> int:
        """Return the number of batches that a process reads in an epoch."""
        return self.batches_per_epoch if self.varying is None else self.varying(epoch)

    @classmethod
    def for_length(
        cls,
        batches: int | None,
        *,
        epochs: float,
        max_steps: int,
        accumulation: int,
        max_grad_norm: float | None,
        rows_per_update: int,
        rows_per_epoch: int | None,
        varying: Callable[[int], int] | None = None,
    ) -> Plan:
        """Build a plan from the number of batches that a process reads per epoch; None if it is unknown.

        `varying` returns the number for each epoch, where it is not always the same.
        """
        if batches is None:
            steps, whole_epochs = max_steps, sys.maxsize
        else:
            calendar = _Calendar(varying or (lambda epoch: batches), accumulation, constant=varying is None)
            steps = max_steps if max_steps > 0 else calendar.count_steps(epochs)
            whole_epochs = calendar.count_epochs(max_steps) if max_steps > 0 else math.ceil(epochs)
        by_steps = max_steps > 0 or rows_per_epoch is None
        return cls(
            max_steps=steps,
            epochs=whole_epochs,
            batches_per_epoch=max_steps * accumulation if batches is None else batches,
            accumulation=accumulation,
            max_grad_norm=max_grad_norm if max_grad_norm and max_grad_norm > 0 else math.inf,
            rows=max_steps * rows_per_update if by_steps else int((rows_per_epoch or 0) * epochs),
            varying=varying,
        )

    def extend(self, base: AnyStepSchedule | None, *, epochs: float, max_steps: int) -> Plan:
        """Return the plan of a run whose steps were divided differently before `base`: steps taken plus steps left."""
        if base is None:
            return self
        if max_steps > 0:
            return dataclasses.replace(self, epochs=base.epochs_for(max_steps))
        return dataclasses.replace(self, max_steps=base.step + base.steps_until(epochs))


@dataclass(frozen=True)
class _Calendar:
    """Epochs and the optimizer steps in them."""

    batches_in: Callable[[int], int]
    accumulation: int
    constant: bool  # all epochs are alike

    def count_updates(self, epoch: int) -> int:
        return max(math.ceil(self.batches_in(epoch) / self.accumulation), 1)

    def count_steps(self, epochs: float) -> int:
        if self.constant:
            return math.ceil(epochs * self.count_updates(0))
        whole = math.floor(max(epochs, 0))
        part = math.ceil((epochs - whole) * self.count_updates(whole)) if epochs > whole else 0
        return sum(map(self.count_updates, range(whole))) + part

    def count_epochs(self, steps: int) -> int:
        if self.constant:
            return math.ceil(steps / self.count_updates(0))
        done = itertools.accumulate(map(self.count_updates, itertools.count()))
        return next(epoch for epoch, total in enumerate(done, start=1) if total >= steps)
