"""What lives exactly as long as one call to `train()`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import is_not
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments.settings import ReportSettings
from ..checkpoint.background import Saves
from ..core.logged_numbers import Number, Tracked, add_totals
from ..core.notices import note_once
from ..core.protocols import Batch, Strategy, TrainHooks
from ..core.random import undisturbed
from ..core.state import TrainerState
from ..core.timing import TimeLedger
from ..data.bad_rows import SkippedRows
from ..data.batching.batch_plan import Begin, batching_of
from ..data.batching.split_by_length import CountedBatches, micro_batches
from ..data.epoch_position import (
    begin_epoch,
    real_rows_of,
    start_at,
    stream_rows_per_batch,
    stream_state_of,
)
from ..data.loader import Replay
from ..data.mixture_loss import SourceLosses
from ..data.skip_progress import Show
from ..data.step_schedule import AnyCourse
from ..loss.model_outputs import as_tensor
from ..loss.objective import Objective
from ..metrics.train_window import MetricWindow
from .finite_guard import NonFiniteGuard
from .flops import FlopCounter
from .position import Place

_NOTHING: Any = object()  # a collator may return anything, None too


@dataclass(frozen=True)
class Plan:
    """The arithmetic of a run, settled before the first batch."""

    max_steps: int
    epochs: int
    batches_per_epoch: int
    accumulation: int
    max_grad_norm: float  # infinity when clipping is off: the norm is still measured
    rows: int  # that training will see, for the speed it reports
    varying: Callable[[int], int] | None = None  # the batches of each epoch, where they are not equally many

    def batches_in(self, epoch: int) -> int:
        """How many batches a process sees in an epoch."""
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
        """From the number of batches a process sees per epoch; None when nobody knows it.

        `varying` tells it of every epoch, where it is not always the same.
        """
        if batches is None:
            steps, whole_epochs = max_steps, sys.maxsize
        else:
            calendar = _Calendar(varying or (lambda epoch: batches), accumulation, constant=varying is None)
            steps = max_steps if max_steps > 0 else calendar.steps_of(epochs)
            whole_epochs = calendar.epochs_for(max_steps) if max_steps > 0 else math.ceil(epochs)
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

    def going_on(self, base: AnyCourse | None, *, epochs: float, max_steps: int) -> Plan:
        """The plan of a run whose steps were cut in another way before `base`: steps taken plus steps left."""
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

    def updates_in(self, epoch: int) -> int:
        return max(math.ceil(self.batches_in(epoch) / self.accumulation), 1)

    def steps_of(self, epochs: float) -> int:
        if self.constant:
            return math.ceil(epochs * self.updates_in(0))
        whole = math.floor(max(epochs, 0))
        part = math.ceil((epochs - whole) * self.updates_in(whole)) if epochs > whole else 0
        return sum(map(self.updates_in, range(whole))) + part

    def epochs_for(self, steps: int) -> int:
        if self.constant:
            return math.ceil(steps / self.updates_in(0))
        done = itertools.accumulate(map(self.updates_in, itertools.count()))
        return next(epoch for epoch, total in enumerate(done, start=1) if total >= steps)


@dataclass(frozen=True)
class Update:
    """The micro-batches that make up one optimizer step."""

    batches: list[Batch]
    num_items: Tensor | int | None
    divisors: list[float]  # what turns each micro-batch's mean into its share of the step
    epoch_progress: float  # the epoch, counted in batches, once this update is applied
    epoch: int
    first_batch: int  # its number within the epoch
    sizes: list[int] | None = None  # how many micro-batches each of its batches was cut into; None: they are uncut
    sources: Sequence[str] = ()  # of a mixture: the set that each micro-batch comes from

    def number_of(self, micro_batch: int) -> int:
        """The number within the epoch of the batch that a micro-batch is, or is cut from."""
        if self.sizes is None:
            return self.first_batch + micro_batch
        return self.first_batch + next(
            at for at, end in enumerate(itertools.accumulate(self.sizes)) if micro_batch < end
        )

    @property
    def numbers(self) -> range:
        """The numbers of all its batches."""
        return range(self.first_batch, self.first_batch + len(self.batches if self.sizes is None else self.sizes))

    def micro_batches(self) -> Iterator[tuple[Batch, float, bool]]:
        """Each micro-batch, its divisor, and whether it is the last of the update."""
        last = len(self.batches) - 1
        for index, batch in enumerate(self.batches):
            yield batch, self.divisors[index], index == last


@dataclass(frozen=True)
class InterruptedEvaluation:
    """An evaluation that was broken off, and whether a checkpoint was to follow it."""

    save: bool


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
    count_tokens: Callable[[list[Batch]], None] | None  # of an update, where tokens are counted at all
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
    ledger: TimeLedger = field(default_factory=TimeLedger)  # where the time goes
    grad_norm: Tensor | float | None = None
    learning_rate: float | None = None
    is_last_micro_batch: bool = True
    steps_without_loss: int = 0  # taken by another library, whose checkpoint does not tell their losses
    update: Update | None = None  # the one being computed, or the last
    current_batch: Batch | None = None  # the micro-batch of it whose loss is being computed
    cuts: bool = False  # batches come in micro-batches
    taken: CountedBatches = field(default_factory=lambda: CountedBatches(iter(())))  # of the update being fetched
    skipped: SkippedRows | None = None  # rows that could not be read, where that does not end the run
    sources: SourceLosses | None = None  # of a mixture: the losses of each of its sets
    tracked: Tracked = field(default_factory=Tracked)  # numbers that were reported since the last log
    window: MetricWindow | None = None  # metrics of the training batches since the last log
    saves: Saves = field(default_factory=Saves)  # the checkpoint being written, if any
    show_skipping: Show | None = None  # shows how far a stream is read again, up to where the run stood
    peak_flops: float | None = None  # operations a second of all devices, where tokens are counted and it is known
    stopping: bool = False  # somebody asked the run to stop, and it is going to
    agree_to_stop: Callable[[], bool] | None = None  # asks all processes, where there are several
    interrupted_evaluation: InterruptedEvaluation | None = None  # what was broken off when the run was stopped
    opened_at: int = 0  # the step it starts from
    counts_for_all: bool = True  # what was added up over all processes before is kept by the first of them
    forked_from: dict[str, Any] | None = None  # the checkpoint whose weights it began with, if any
    is_over: bool = False  # an evaluation before the first step ended it
    reader: Any = None  # the loader, or what is left of its epoch
    parameters: list[nn.Parameter] = field(default_factory=list)
    _met: list[Any] = field(default_factory=list)  # what was found in the model when they were noted
    _rows: int = 0  # of an epoch, and of a batch over all processes, where they can be counted
    _rows_per_batch: int = 0
    _void: list[bool] = field(default_factory=list)  # which micro-batches of the update are stand-ins

    def __post_init__(self) -> None:
        self._batching = batching_of(self.loader)
        self._rows_per_batch = stream_rows_per_batch(self.loader) or 0
        if self._batching is not None:
            self._rows, self._rows_per_batch = self._batching.rows, self._batching.rows_per_batch
        self._settle_place()

    def epochs(self, state: TrainerState) -> range:
        """The epochs still to do; none if a finished run is resumed."""
        to_do = state.global_step < self.plan.max_steps and not self.is_over
        return range(self.place.epoch, self.plan.epochs if to_do else 0)

    def updates(self, trainer: TrainHooks, epoch: int) -> Iterator[Update]:
        """Group the loader's batches into optimizer steps, leaving out those already taken."""
        asked = perf_counter()
        begin_epoch(self.loader, epoch)
        in_epoch, accumulation = self.plan.batches_in(epoch), self.plan.accumulation
        first = self.place.batch
        inside = self.place.inside  # its order was drawn, and its next batch read, before the checkpoint
        if inside:
            self.place.rewind(self.loader)
        else:
            self._put_streams_back()
            self.place.mark(self.loader)
        self.reader = self._rest_of_epoch(epoch) if inside else self.loader
        self.record_schedule(trainer.state.global_step)
        self._real_rows = real_rows_of(self.loader if self._batching is None else self.reader)
        batches = self._inspected(iter(self.reader), epoch, first) if first < in_epoch else iter(self.reader)
        if self.cuts:
            batches = self.taken = CountedBatches(batches)
        self.ledger.data += perf_counter() - asked
        while first < in_epoch:
            wanted = min(accumulation, in_epoch - first)
            if self.cuts:
                self.taken.begin()
            asked = perf_counter()
            samples, num_items = trainer.get_batch_samples(batches, wanted, trainer.strategy.device)
            self.ledger.data += perf_counter() - asked
            self._put_streams_back()
            if not samples and not (self.cuts and self.taken.sizes):
                self._ended_early(trainer, first)
                return
            self._void = self._find_padding_batches(len(samples))
            divisors = self.weigh(samples, self._void)
            taken = self.taken.sizes if self.cuts else None
            count = len(samples if taken is None else taken)
            self.place.batch = first + count
            if self.place.row is not None:
                self.place.row += count * self._rows_per_batch
                self.place.row = min(self.place.row, self._rows) if self._rows else self.place.row
            progress = epoch + self.place.batch / in_epoch
            if self.skipped is None or self._has_rows(trainer, samples, self.skipped):
                yield Update(samples, num_items, divisors, progress, epoch, first, taken, self.taken.sources)
            first = self.place.batch
        self._put_streams_back()

    def record_schedule(self, step: int) -> None:
        """Remember how the run goes on from here, where `step` steps are taken."""
        if self._batching is not None:
            if not self.place.inside:
                self.place.group = self._batching.group
            self.place.record_schedule(self.place.course(self._batching, self.plan.accumulation, step))

    def _rest_of_epoch(self, epoch: int) -> Any:
        """What a resumed run has not seen yet of the epoch it was stopped in."""
        place, replay = self.place, Replay(self.place.before_read, self._put_streams_back)
        if place.batch >= self.plan.batches_in(epoch):
            return []
        row = place.batch if place.row is None else place.row
        begin = Begin(epoch, row, place.batch, place.group, place.data, place.rows_per_batch, place.workers)
        return start_at(self.loader, begin, replay, self.show_skipping)

    def _settle_place(self) -> None:
        """Rows are what counts where they can be counted: batches may have another size than those of a checkpoint.

        The batches that are left of an epoch get the last numbers in it.
        """
        place, batching = self.place, self._batching
        if batching is None:
            now, before = stream_rows_per_batch(self.loader), place.rows_per_batch
            if now is None:
                place.row = None
                return
            place.row = place.batch * (before or now) if place.row is None else place.row
            place.batch = place.batch if before in (None, now) else place.row // now
            return
        if place.row is None:
            place.row = place.batch * (place.rows_per_batch or batching.rows_per_batch)
            place.row = min(place.row, batching.rows) if batching.rows else place.row
        left = place.course(batching, self.plan.accumulation, 0).batches_left(place.row, place.epoch)
        place.batch = max(self.plan.batches_in(place.epoch) - left, 0)

    def _inspected(self, batches: Iterator[Batch], epoch: int, number: int) -> Iterator[Batch]:
        """The same batches, the very first of the run looked at."""
        if self.inspect is None:
            return batches
        inspect, self.inspect = self.inspect, None
        batch = next(batches, _NOTHING)
        if batch is _NOTHING:
            return batches
        for part in micro_batches([batch]):
            inspect(part, epoch, number)
        return itertools.chain([batch], batches)

    def number_of_current_batch(self) -> int:
        """The number within its epoch of the micro-batch in hand."""
        assert self.update is not None
        position = next((at for at, batch in enumerate(self.update.batches) if batch is self.current_batch), 0)
        return self.update.number_of(position)

    def _put_streams_back(self) -> None:
        if self.restore_streams is not None:
            restore, self.restore_streams = self.restore_streams, None
            restore()

    @contextmanager
    def streams_to_go_on_with(self) -> Iterator[None]:
        """While entered, the random streams are those of the next step, also where they wait to be put back."""
        if self.restore_streams is None:
            yield
            return
        with undisturbed():
            self.restore_streams()
            yield

    def _ended_early(self, trainer: TrainHooks, seen: int) -> None:
        """A stream that gives nothing at all would be asked forever."""
        if seen == 0:
            note_once(
                f"the training data gave no batch at all at step {trainer.state.global_step} of "
                f"{self.plan.max_steps}: stopping. An iterable data set must start anew each time it is iterated over."
            )
            trainer.control.should_training_stop = True

    def _find_padding_batches(self, count: int) -> list[bool]:
        """Which of the next batches only keep this process in step with the others; their rows count nowhere."""
        if self.processes == 1:
            return [False] * count
        sizes = self.taken.sizes if self.cuts else [1] * count
        unread = self.taken.padding_batches if self.cuts else [False] * count
        void = [self._real_rows(self.place.batch + index) == 0 or unread[index] for index in range(len(sizes))]
        return [is_void for is_void, size in zip(void, sizes, strict=True) for _ in range(size)]

    def _has_rows(self, trainer: TrainHooks, samples: list[Batch], skipped: SkippedRows) -> bool:
        """Whether there is anything to compute a step from; takes note of rows that could not be read."""
        bad = tuple(self.taken.skipped)
        if self.processes == 1:
            skipped.add(bad)
            return bool(samples)
        own = torch.tensor([float(not all(self._void)), float(len(bad))], dtype=torch.float64)
        any_rows, any_bad = trainer.strategy.sum(own).tolist()
        if any_bad:
            skipped.add(bad, gather=trainer.strategy.gather_objects)
        return any_rows > 0

    def without_padding_batches(self, batches: list[Batch]) -> list[Batch]:
        """The next batches that count."""
        return [
            batch for batch, void in zip(batches, self._find_padding_batches(len(batches)), strict=True) if not void
        ]

    def refresh_parameters(self, model: nn.Module) -> None:
        """Note the model's parameters. Walking over its modules twice a step would cost more than clipping does.

        Done at the start of an epoch and after every report, so that a module added by a callback is soon known.
        """
        present = _parameters_in(model)
        if len(present) != len(self._met) or any(map(is_not, present, self._met)):
            self.parameters, self._met = list(model.parameters()), present

    def gradients(self) -> list[Tensor]:
        """The gradients there are."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def clear_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def progress(self, strategy: Strategy) -> dict[str, Any]:
        """What a resumed run has to know besides the trainer's state: running sums, and the place in the data."""
        return {
            "place": self._place_to_save().saved(),
            "pending_loss": strategy.mean(self.meter.pending).detach().cpu(),
            "sources": None if self.sources is None else self.sources.progress(strategy.mean),
            "tracked": add_totals(strategy.gather_objects(self.tracked.totals())),
            "window": None if self.window is None else strategy.gather_objects(self.window.states()),
            "total_loss": self.meter.total,
            "last_logged_step": self.meter.last_step,
            "window_has_nonfinite": self.meter.poisoned,
            "steps_without_loss": self.steps_without_loss,
            "owed": None if self.interrupted_evaluation is None else dataclasses.asdict(self.interrupted_evaluation),
            "forked_from": self.forked_from,
            "skipped_rows": None if self.skipped is None else self.skipped.progress(),
            "nonfinite": {
                "in_a_row": self.guard.in_a_row,
                "first_step": self.guard.first_step,
                "all": self.guard.refused,
                "overflows": self.guard.overflows,
            },
        }

    def _place_to_save(self) -> Place:
        """The place as a resumed run has to know it. Saving changes nothing of the run's own."""
        if self.reader is None and self.place.inside:
            return self.place  # as a checkpoint has it: nothing was read since
        return dataclasses.replace(
            self.place,
            before_read=getattr(self.reader, "before_read", None),
            processes=self.processes,
            rows_per_batch=stream_rows_per_batch(self.loader),
            data=stream_state_of(self.loader) if self.place.inside else None,
            workers=getattr(self.loader, "num_workers", None),
        )

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Go on where a saved run stood."""
        self.place = Place.of(progress["place"], self._batching)
        self._settle_place()
        self.meter.pending += progress["pending_loss"].to(self.meter.pending.device)
        self.meter.total, self.meter.last_step = progress["total_loss"], progress["last_logged_step"]
        self.meter.poisoned = progress["window_has_nonfinite"]
        self.steps_without_loss = progress.get("steps_without_loss", 0)
        self.interrupted_evaluation = InterruptedEvaluation(**progress["owed"]) if progress.get("owed") else None
        self.forked_from = progress.get("forked_from")
        if self.sources is not None and progress.get("sources") is not None:
            self.sources.restore(progress["sources"])
        if self.counts_for_all and progress.get("tracked"):
            self.tracked.restore(progress["tracked"])
        if self.window is not None and self.counts_for_all and progress.get("window"):
            self.window.restore(progress["window"])
        if self.skipped is not None and progress.get("skipped_rows"):
            self.skipped.restore(progress["skipped_rows"])
        bad = progress["nonfinite"]
        self.guard.in_a_row, self.guard.first_step, self.guard.refused = bad["in_a_row"], bad["first_step"], bad["all"]
        self.guard.overflows = bad.get("overflows", 0)

    def _commit_tracked(self) -> None:
        """Let the numbers of the update count; its named losses add up to it, and weigh as one step."""
        parts = self.objective.parts
        for more in parts[1:]:
            for name, share in more.items():
                parts[0][name] = _as_double(share) + parts[0][name] if name in parts[0] else share
        self.tracked.commit(parts[0] if parts else None)
        parts.clear()

    def is_finite(self, trainer: TrainHooks, update: Update) -> bool:
        """Whether the update at hand may reach the weights; its losses are counted, or left out and named."""
        finite = self.guard.passes(self.grad_norm, self.meter.held)
        if finite or self._overflowed(trainer):
            self._count_losses(update)
        else:
            self._refuse(trainer.state, update)
        return finite

    def _overflowed(self, trainer: TrainHooks) -> bool:
        """Whether the gradients alone are not finite, and only because of their scale. All processes answer alike."""
        if not trainer.precision.overflowed(trainer.optimizer):
            return False
        bad = sum(not math.isfinite(loss) for loss in self.meter.held)
        if self.processes > 1:
            bad = int(trainer.strategy.sum(torch.tensor(bad, device=self.meter.device)))
        if not bad:
            self.guard.let_overflow(trainer.state.global_step + 1)
        return not bad

    def _count_losses(self, update: Update) -> None:
        if self.sources is not None and len(update.sources) == len(self.meter.held):
            for source, loss, divisor in zip(update.sources, self.meter.held, update.divisors, strict=True):
                self.sources.hold(source, loss, 1 / divisor)
            self.sources.commit()
        self.meter.commit()
        if self.objective.parts or self.tracked.held:
            self._commit_tracked()

    def _refuse(self, state: TrainerState, update: Update) -> None:
        self.objective.parts.clear()
        self.tracked.reject()
        losses = [float(loss) for loss in self.meter.held]
        self.meter.reject()
        self.guard.refuse(
            step=state.global_step + 1,
            losses=losses,
            grad_norm=float(self.grad_norm) if self.grad_norm is not None else math.nan,
            epoch=update.epoch,
            batches=update.numbers,
            contents=update.batches,
        )


def _parameters_in(model: nn.Module) -> list[Any]:
    """What its modules have in the places of parameters, to be compared. `parameters()` takes many times as long."""
    found: list[Any] = []
    seen = {model}  # modules may be shared
    waiting = [model]
    while waiting:
        module = waiting.pop()
        found += module._parameters.values()
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)
    return found


def _as_double(number: Number) -> Number:
    return number.double() if isinstance(number, Tensor) else number
