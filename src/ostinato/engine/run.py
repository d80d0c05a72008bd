"""The objects that live exactly as long as one call to `train()`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..arguments.settings import ReportSettings
from ..checkpoint.background import Saves
from ..core.protocols import Strategy
from ..core.state import TrainerState
from ..core.timing import TimeLedger
from ..strategies.batch_transfer import BatchTransfer
from .finite_guard import NonFiniteGuard
from .meters import Meters
from .parameters import ModelParameters, SteppedParameters
from .pending_update import PendingUpdate
from .plan import Plan
from .updates import MicroBatch, UpdateReader


@dataclass(frozen=True)
class RunOptions:
    """The options with which a run starts."""

    settings: ReportSettings
    steps_schedule: bool = True  # False for a schedule that waits for a metric
    report_always: bool = False  # the report is overridden and needs every step
    can_restart: bool = False  # with smaller batches, when memory runs out
    step_takes_count: bool = True  # False for an override of `training_step` from before transformers 4.46
    trial: Any = None
    ignore_keys: list[str] | None = None
    peak_flops: float | None = None  # operations per second of all devices, where tokens are counted and it is known


@dataclass(frozen=True)
class InterruptedEvaluation:
    """An evaluation that was interrupted, and whether a checkpoint was to follow it."""

    save: bool


@dataclass
class Origin:
    """The start of a run: its step, and the checkpoint it was forked from."""

    step: int = 0  # the last step before this run
    forked_from: dict[str, Any] | None = None  # the checkpoint whose weights it started with, if any
    interrupted_evaluation: InterruptedEvaluation | None = None  # to be repeated


@dataclass
class StopState:
    """The flags that decide whether a run continues."""

    stopping: bool = False  # a stop was requested and will follow
    agree: Callable[[], bool] | None = None  # asks all processes, if there are several, and waits for them
    follow: Callable[[], None] | None = None  # acts on what the processes exchanged in this step
    is_over: bool = False  # an evaluation before the first step ended it

    def request(self) -> None:
        """Request that the run stop after its step."""
        self.stopping = True


@dataclass
class StepState:
    """The optimizer step that is being taken, or the last one."""

    micro_batch: MicroBatch | None = None  # the one being computed, or the last
    is_computing: bool = False  # its loss
    is_ending: bool = False  # its end is being delivered to callbacks
    grad_norm: Tensor | float | None = None
    learning_rate: float | None = None  # the rate this step used
    pending: PendingUpdate | None = None  # the last update, while it is not known whether it was finite
    stepped: SteppedParameters = field(default_factory=SteppedParameters)  # noted where an update may be judged late

    def settle(self) -> None:
        """Learn from the device whether the last update was finite, if that is not known yet."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.settle()


@dataclass
class Run:
    """One `train()` call: its plan, its data, its running numbers."""

    plan: Plan
    options: RunOptions
    updates: UpdateReader
    meters: Meters
    guard: NonFiniteGuard
    saves: Saves = field(default_factory=Saves)  # the checkpoint being written, if any
    ledger: TimeLedger = field(default_factory=TimeLedger)  # where the time is spent
    parameters: ModelParameters = field(default_factory=ModelParameters)
    origin: Origin = field(default_factory=Origin)
    stop: StopState = field(default_factory=StopState)
    transfer: BatchTransfer = field(default_factory=lambda: BatchTransfer(torch.device("cpu")))
    started: float = field(default_factory=time.time)
    restart_point: Any = None  # a `RestartPoint` after the last step, if the run can restart
    step: StepState = field(default_factory=StepState)

    def epochs(self, state: TrainerState) -> range:
        """Return the epochs still to do; none if a finished run is resumed."""
        to_do = state.global_step < self.plan.max_steps and not self.stop.is_over
        return range(self.updates.position.epoch, self.plan.epochs if to_do else 0)

    def export_progress(self, strategy: Strategy) -> dict[str, Any]:
        """Return what a resumed run needs besides the trainer's state: running sums, and its position."""
        interrupted, skipped = self.origin.interrupted_evaluation, self.updates.skipped
        return {
            "place": self.updates.capture_position(strategy.processes).export(),
            **self.meters.export_progress(strategy),
            "owed": None if interrupted is None else dataclasses.asdict(interrupted),
            "forked_from": self.origin.forked_from,
            "skipped_rows": None if skipped is None else skipped.progress(),
            "has_unused": strategy.has_unused,
            "nonfinite": self.guard.export_progress(),
        }

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Continue from the position and the numbers of a saved run."""
        self.updates.restore(progress)
        self.meters.restore(progress)
        owed = progress.get("owed")
        self.origin.interrupted_evaluation = InterruptedEvaluation(**owed) if owed else None
        self.origin.forked_from = progress.get("forked_from")
        self.guard.restore(progress["nonfinite"])
