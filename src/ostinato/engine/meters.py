"""The running numbers of a run: losses, tracked numbers, metrics of training batches, operations, tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.logged_numbers import NumberOrParts, TrackedNumber, TrackedNumbers, add_totals
from ..core.protocols import Strategy
from ..data.mixture_loss import SourceLosses
from ..loss.model_outputs import as_tensor
from ..loss.objective import Objective
from ..metrics.train_window import MetricWindow
from .flops import FlopCounter
from .updates import Update


@dataclass
class LossMeter:
    """Sum of losses, kept on the device: it is read once per log, not once per step."""

    device: torch.device
    pending: Tensor = field(init=False)  # since the last log
    total: float = 0.0  # up to the last log
    last_step: int = 0  # the step of the last log
    held: list[Tensor] = field(default_factory=list)  # of the update being computed
    poisoned: bool = False  # a number since the last log was not finite

    def __post_init__(self) -> None:
        self.pending = torch.zeros((), device=self.device)

    def hold(self, loss: Tensor) -> None:
        """Keep a micro-batch's loss until its update is known to be finite."""
        if not isinstance(loss, Tensor):
            as_tensor(loss, "training_step")
        self.held.append(loss)

    def take(self) -> list[Tensor]:
        """Return the held losses, and hold none."""
        losses, self.held = self.held, []
        return losses

    def commit(self, losses: list[Tensor]) -> None:
        """Count the losses of an update."""
        for loss in losses:
            self.pending += loss.to(self.pending.device)

    def reject(self) -> None:
        """Report NaN at the next log: the losses of an update are left out of the sum."""
        self.poisoned = True

    def drain(self, pending: Tensor, amount: float, step: int) -> float:
        """Return the mean loss per step since the last drain, given the sum of the losses over all processes.

        `pending`, which an override may have supplied, is emptied.
        """
        pending -= pending
        steps, self.last_step = step - self.last_step, step
        self.total += amount
        if self.poisoned:
            self.poisoned = False
            return math.nan
        return amount / max(steps, 1)


class UpdateNumbers(NamedTuple):
    """The numbers of one update, which count once it is known to be finite."""

    losses: list[Tensor]  # of its micro-batches
    named: Mapping[str, NumberOrParts] | None
    tracked: list[TrackedNumber]


@dataclass
class Meters:
    """The numbers that are added up between two logs. An update counts once it is committed."""

    loss: LossMeter
    objective: Objective  # records the named losses of an update
    flops: FlopCounter
    count_tokens: Callable[[Update], None] | None = None  # of an update; None: tokens are not counted
    sources: SourceLosses | None = None  # of a mixture: the losses of each of its sets
    tracked: TrackedNumbers = field(default_factory=TrackedNumbers)  # numbers that were reported since the last log
    window: MetricWindow | None = None  # metrics of the training batches since the last log
    counts_for_all: bool = True  # sums that already cover all processes are kept by the first process
    steps_without_loss: int = 0  # steps taken by another library, whose checkpoint does not hold their losses

    def take(self) -> UpdateNumbers:
        """Return the numbers of the update that was computed; those of the next one can be held."""
        named, tracked = self.objective.named, self.tracked
        return UpdateNumbers(
            self.loss.take(),
            named.take() if named.held else None,
            tracked.take_held() if tracked.held else [],
        )

    def commit(self, update: Update, numbers: UpdateNumbers) -> None:
        """Count the numbers of an update."""
        if self.sources is not None and len(update.sources) == len(numbers.losses):
            for source, loss, divisor in zip(update.sources, numbers.losses, update.divisors, strict=True):
                self.sources.hold(source, loss, 1 / divisor)
            self.sources.commit()
        self.loss.commit(numbers.losses)
        if numbers.named or numbers.tracked:
            self.tracked.commit(numbers.named, numbers.tracked)

    def reject(self) -> None:
        """Leave out the numbers of an update that did not reach the weights."""
        self.loss.reject()

    def export_progress(self, strategy: Strategy) -> dict[str, Any]:
        """Return the running numbers that a resumed run needs."""
        return {
            "pending_loss": strategy.mean(self.loss.pending).detach().cpu(),
            "sources": None if self.sources is None else self.sources.progress(strategy.mean),
            "tracked": add_totals(strategy.gather_objects(self.tracked.totals())),
            "window": None if self.window is None else strategy.gather_objects(self.window.states()),
            "total_loss": self.loss.total,
            "last_logged_step": self.loss.last_step,
            "window_has_nonfinite": self.loss.poisoned,
            "steps_without_loss": self.steps_without_loss,
        }

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Continue with the numbers of a saved run."""
        loss = self.loss
        loss.pending += progress["pending_loss"].to(loss.pending.device)
        loss.total, loss.last_step = progress["total_loss"], progress["last_logged_step"]
        loss.poisoned = progress["window_has_nonfinite"]
        self.steps_without_loss = progress.get("steps_without_loss", 0)
        if self.sources is not None and progress.get("sources") is not None:
            self.sources.restore(progress["sources"])
        if self.counts_for_all and progress.get("tracked"):
            self.tracked.restore(progress["tracked"])
        if self.window is not None and self.counts_for_all and progress.get("window"):
            self.window.restore(progress["window"])
