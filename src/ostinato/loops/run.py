"""What lives exactly as long as one call to `train()`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..config.plan import ReportSettings
from ..core.notices import note_once
from ..core.protocols import Batch, TrainHooks
from ..core.random import RandomState
from ..core.state import TrainerState
from ..data.loaders import Replay
from ..data.position import real_rows_of, skip_batches
from ..objective.objective import Objective
from ..objective.outputs import as_tensor
from .flops import FlopCounter
from .nonfinite import NonFiniteGuard


@dataclass(frozen=True)
class Plan:
    """The arithmetic of a run, settled before the first batch."""

    max_steps: int
    epochs: int
    batches_per_epoch: int
    accumulation: int
    max_grad_norm: float  # infinity when clipping is off: the norm is still measured
    rows: int  # that training will see, for the speed it reports

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
    ) -> Plan:
        """From the number of batches a process sees per epoch; None when nobody knows it."""
        if batches is None:
            updates, whole_epochs = max_steps, sys.maxsize
        else:
            updates = max(math.ceil(batches / accumulation), 1)
            whole_epochs = math.ceil(max_steps / updates) if max_steps > 0 else math.ceil(epochs)
        by_steps = max_steps > 0 or rows_per_epoch is None
        return cls(
            max_steps=max_steps if max_steps > 0 else math.ceil(epochs * updates),
            epochs=whole_epochs,
            batches_per_epoch=max_steps * accumulation if batches is None else batches,
            accumulation=accumulation,
            max_grad_norm=max_grad_norm if max_grad_norm and max_grad_norm > 0 else math.inf,
            rows=max_steps * rows_per_update if by_steps else int((rows_per_epoch or 0) * epochs),
        )


@dataclass
class Place:
    """Where a run stands in its data: it is saved in every checkpoint."""

    epoch: int = 0
    batch: int = 0  # the number within the epoch of the next batch to train on
    stream: Tensor | None = None  # torch's generator when the epoch began: some orders are drawn from it
    before_read: RandomState | None = None  # the random streams before the next batch, which is read ahead, was read

    def mark(self) -> None:
        """An epoch begins."""
        self.stream = torch.get_rng_state()

    def rewind(self) -> None:
        """Let an order that is drawn from the global generator be drawn again as it was."""
        if self.stream is not None:
            torch.set_rng_state(self.stream)

    def close_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0


@dataclass(frozen=True)
class Update:
    """The micro-batches that make up one optimizer step."""

    batches: list[Batch]
    num_items: Tensor | int | None
    divisors: list[float]  # what turns each micro-batch's mean into its share of the step
    epoch_progress: float  # the epoch, counted in batches, once this update is applied
    epoch: int
    first_batch: int  # its number within the epoch

    def micro_batches(self) -> Iterator[tuple[Batch, float, bool]]:
        """Each micro-batch, its divisor, and whether it is the last of the update."""
        last = len(self.batches) - 1
        for index, batch in enumerate(self.batches):
            yield batch, self.divisors[index], index == last


@dataclass
class LossMeter:
    """Sums losses on the device: one look at the number per log, none per step."""

    device: torch.device
    pending: Tensor = field(init=False)  # since the last log
    total: float = 0.0  # up to the last log
    last_step: int = 0  # the step of the last log
    held: list[Tensor] = field(default_factory=list)  # of the update at hand
    poisoned: bool = False  # the window since the last log holds a number that is not finite

    def __post_init__(self) -> None:
        self.pending = torch.zeros((), device=self.device)

    def hold(self, loss: Tensor) -> None:
        """Keep a micro-batch's loss until its update turns out to be finite."""
        if not isinstance(loss, Tensor):
            as_tensor(loss, "training_step")
        self.held.append(loss)

    def commit(self) -> None:
        for loss in self.held:
            self.pending += loss.to(self.pending.device)
        self.held.clear()

    def reject(self) -> None:
        """Leave the held losses out of the sum, and say in the next log that they were not numbers."""
        self.held.clear()
        self.poisoned = True

    def drain(self, pending: Tensor, step: int, mean_over_processes: Callable[[Tensor], Tensor]) -> float:
        """The mean loss per step since the previous drain. Empties `pending`, which an override may have supplied."""
        amount = mean_over_processes(pending).item()
        pending -= pending
        steps, self.last_step = step - self.last_step, step
        self.total += amount
        if self.poisoned:
            self.poisoned = False
            return math.nan
        return amount / max(steps, 1)


@dataclass
class Run:
    """One `train()` call: its plan, its data, its running numbers."""

    plan: Plan
    loader: Any
    meter: LossMeter
    objective: Objective
    guard: NonFiniteGuard
    settings: ReportSettings
    flops: FlopCounter
    weigh: Callable[[list[Batch], list[bool]], list[float]]  # micro-batches, which are stand-ins -> divisors
    processes: int
    count_tokens: Callable[[Batch], None] | None  # where tokens are counted at all
    steps_schedule: bool  # False for a schedule that waits for a metric
    report_always: bool  # somebody overrides the report and wants every step
    # Looks at the first batch, given its epoch and number, before anything is computed from it.
    inspect: Callable[[Batch, int, int], None] | None = None
    place: Place = field(default_factory=Place)
    restore_streams: Callable[[], None] | None = (
        None  # those of a checkpoint; waits until the data stand where they stood
    )
    trial: Any = None
    ignore_keys: list[str] | None = None
    started: float = field(default_factory=time.time)
    grad_norm: Tensor | float | None = None
    learning_rate: float | None = None
    is_last_micro_batch: bool = True
    steps_without_loss: int = 0  # taken by another library, whose checkpoint does not tell their losses
    update: Update | None = None  # the one being computed, or the last
    in_hand: Batch | None = None  # the micro-batch of it whose loss is being computed
    reader: Any = None  # the loader, or what is left of its epoch
    parameters: list[nn.Parameter] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._real_rows = real_rows_of(self.loader)

    def epochs(self, state: TrainerState) -> range:
        """The epochs still to do; none if a finished run is resumed."""
        return range(self.place.epoch, self.plan.epochs if state.global_step < self.plan.max_steps else 0)

    def updates(self, trainer: TrainHooks, epoch: int) -> Iterator[Update]:
        """Group the loader's batches into optimizer steps, leaving out those already taken."""
        plan = self.plan
        set_epoch = getattr(self.loader, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        first = self.place.batch
        inside = first > 0  # a resumed epoch: its order was drawn, and its next batch read, before the checkpoint
        if inside:
            self.place.rewind()
        else:
            self._put_streams_back()
            self.place.mark()
        self.reader = self.loader
        if inside:
            self.reader = skip_batches(self.loader, first, Replay(self.place.before_read, self._put_streams_back))
        batches = self._inspected(iter(self.reader), epoch, first)
        while first < plan.batches_per_epoch:
            wanted = min(plan.accumulation, plan.batches_per_epoch - first)
            samples, num_items = trainer.get_batch_samples(batches, wanted, trainer.strategy.device)
            self._put_streams_back()
            if not samples:
                self._ended_early(trainer, first)
                return
            divisors = self.weigh(samples, self._stand_ins(len(samples)))
            self.place.batch = first + len(samples)
            progress = epoch + self.place.batch / plan.batches_per_epoch
            yield Update(samples, num_items, divisors, progress, epoch, first)
            first = self.place.batch
        self._put_streams_back()

    def _inspected(self, batches: Iterator[Batch], epoch: int, number: int) -> Iterator[Batch]:
        """The same batches, the very first of the run looked at."""
        if self.inspect is None or number >= self.plan.batches_per_epoch:
            return batches
        inspect, self.inspect = self.inspect, None
        batch = next(batches, None)
        if batch is None:
            return batches
        inspect(batch, epoch, number)
        return itertools.chain([batch], batches)

    def number_in_hand(self) -> int:
        """The number within its epoch of the micro-batch in hand."""
        assert self.update is not None
        position = next((at for at, batch in enumerate(self.update.batches) if batch is self.in_hand), 0)
        return self.update.first_batch + position

    def _put_streams_back(self) -> None:
        if self.restore_streams is not None:
            restore, self.restore_streams = self.restore_streams, None
            restore()

    def _ended_early(self, trainer: TrainHooks, seen: int) -> None:
        """A stream that gives nothing at all would be asked forever."""
        if seen == 0:
            note_once(
                f"the training data gave no batch at all at step {trainer.state.global_step} of "
                f"{self.plan.max_steps}: stopping. An iterable data set must start anew each time it is iterated over."
            )
            trainer.control.should_training_stop = True

    def _stand_ins(self, count: int) -> list[bool]:
        """Which of the next batches only keep this process in step with the others; their rows count nowhere."""
        if self.processes == 1:
            return [False] * count
        return [self._real_rows(self.place.batch + index) == 0 for index in range(count)]

    def without_stand_ins(self, batches: list[Batch]) -> list[Batch]:
        """The next batches that count."""
        return [batch for batch, void in zip(batches, self._stand_ins(len(batches)), strict=True) if not void]

    def meet(self, model: nn.Module) -> None:
        """Note the model's parameters. Walking over its modules twice a step would cost more than clipping does.

        Done at the start of an epoch and after every report, so that a module added by a callback is soon known.
        """
        self.parameters = list(model.parameters())

    def gradients(self) -> list[Tensor]:
        """The gradients there are."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def clear_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def progress(self) -> dict[str, Any]:
        """What a resumed run has to know besides the trainer's state: running sums, and the place in the data."""
        self.place.before_read = getattr(self.reader, "before_read", None)
        return {
            "place": dataclasses.asdict(self.place),
            "pending_loss": self.meter.pending.detach().cpu(),
            "total_loss": self.meter.total,
            "last_logged_step": self.meter.last_step,
            "window_has_nonfinite": self.meter.poisoned,
            "steps_without_loss": self.steps_without_loss,
            "nonfinite": {
                "in_a_row": self.guard.in_a_row,
                "first_step": self.guard.first_step,
                "all": self.guard.refused,
            },
        }

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Go on where a saved run stood."""
        streams = progress["place"]["before_read"]
        before_read = None if streams is None else RandomState(**streams)
        self.place = Place(**{**progress["place"], "before_read": before_read})
        self.meter.pending += progress["pending_loss"].to(self.meter.pending.device)
        self.meter.total, self.meter.last_step = progress["total_loss"], progress["last_logged_step"]
        self.meter.poisoned = progress["window_has_nonfinite"]
        self.steps_without_loss = progress.get("steps_without_loss", 0)
        bad = progress["nonfinite"]
        self.guard.in_a_row, self.guard.first_step, self.guard.refused = bad["in_a_row"], bad["first_step"], bad["all"]

    def is_finite(self, state: TrainerState, update: Update) -> bool:
        """Whether the update at hand may reach the weights; its losses are counted or left out accordingly."""
        if self.guard.passes(self.grad_norm, self.meter.held):
            self.meter.commit()
            return True
        losses = [float(loss) for loss in self.meter.held]
        self.meter.reject()
        self.guard.refuse(
            step=state.global_step + 1,
            losses=losses,
            grad_norm=float(self.grad_norm) if self.grad_norm is not None else math.nan,
            epoch=update.epoch,
            batches=range(update.first_batch, update.first_batch + len(update.batches)),
            contents=update.batches,
        )
        return False
