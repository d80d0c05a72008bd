"""Verify that a run can be resumed: train, save, load, train again, and compare bit by bit.

Both runs use `train`, with the trainer's own methods, data and callbacks, in a temporary directory. In between
everything is restored, as a new process that loads the checkpoint would begin.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..arguments import usage_errors
from ..arguments.settings import SaveSettings
from ..arguments.verification import build_verification_arguments
from ..callbacks.events import QuietCallback
from ..callbacks.time_limit import TimeLimitCallback
from ..checkpoint.atomic import discard
from ..checkpoint.callback_tensors import collect_tensor_states
from ..checkpoint.run_directory import RunDirectory
from ..core.notices import silence_notices
from ..core.random import preserve_rng
from ..core.run_files import VERIFY_DIRECTORY
from ..core.state import TrainerControl, TrainerState, export_callbacks
from ..core.state_guard import can_restore, preserve_objects
from ..engine import loader_plan
from ..journal.journal_callback import JournalCallback
from ..progress.callback import ProgressCallback
from ..progress.notebook import NotebookProgressCallback
from ..progress.plain import PrinterCallback
from ..trackers.base import TrackerCallback
from .dry_run import preserve_trainer
from .fingerprint import Difference, StepRecord, find_first_difference, fingerprint_tree
from .hosts import VerifyHost

_GENERATOR_TYPES = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
_PLAIN_TYPES = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class ResumeReport:
    """Whether a resumed run repeats the run that was never stopped."""

    equal: bool  # bit for bit
    steps: int  # that were taken twice, and compared
    first_difference: str | None
    seconds: float

    def __str__(self) -> str:
        if self.equal:
            text = (
                f"resuming repeats the run bit for bit: {self.steps} steps after a checkpoint, taken twice, are equal"
            )
        else:
            text = f"resuming does not repeat the run: {self.first_difference}"
        return f"{text} ({self.seconds:.1f} s)"


def verify_resume(trainer: VerifyHost, steps: int) -> ResumeReport:
    """Train `steps`, save, train as many more; load, train these again, compare, and restore everything."""
    if steps < 1:
        raise usage_errors.no_steps_to_verify(steps)
    if not can_restore(trainer.train_dataset, trainer.data_collator, trainer.sampler, trainer.batch_sampler):
        raise usage_errors.resume_not_verifiable()
    started = time.perf_counter()
    with _temporary_directory(trainer) as directory:
        whole = _train_once(trainer, directory, steps, checkpoint=None)
        if len(whole) < 2:
            raise usage_errors.training_ended_early(steps)
        repeated = _train_once(trainer, directory, steps, checkpoint=directory / f"checkpoint-{steps}")
    difference = _agree_on_difference(trainer, find_first_difference(whole, repeated))
    return ResumeReport(difference is None, len(whole) - 1, difference, time.perf_counter() - started)


def _agree_on_difference(trainer: VerifyHost, own: Difference | None) -> str | None:
    """Return the first difference that any process found; later ones follow from it."""
    found = [(one, rank) for rank, one in enumerate(trainer.strategy.gather_from_all(own)) if one is not None]
    if not found:
        return None
    first, rank = min(found)
    return first.text if trainer.strategy.processes == 1 else f"in process {rank}, {first.text}"


# ---- one of the two runs


def _train_once(trainer: VerifyHost, directory: Path, steps: int, checkpoint: Path | None) -> list[StepRecord]:
    """Train to the end of the comparison, from the start or the checkpoint; return the records since then."""
    with _preserve_run(trainer), silence_notices():
        longest = max(_count_planned_steps(trainer), 2 * steps)
        trainer.args = build_verification_arguments(trainer.args, directory, steps, longest)
        trainer._run_directory = _TemporaryRunDirectory()
        recorder = _StepRecorder(trainer, first=steps + 1)
        others = [one for one in trainer.callback_handler.callbacks if not isinstance(one, _REPORTERS)]
        trainer.callback_handler.callbacks = [recorder, *others, _SaveAndStop(recorder, save=steps, stop=2 * steps)]
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return recorder.records


_REPORTERS = (ProgressCallback, NotebookProgressCallback, PrinterCallback, TrackerCallback, JournalCallback)
_CLOCKS = (TimeLimitCallback,)  # the duration of a run is never the same


def _count_planned_steps(trainer: VerifyHost) -> int:
    with preserve_rng():
        return loader_plan.plan_run(trainer, trainer.get_train_dataloader()).max_steps


class _TemporaryRunDirectory(RunDirectory):
    """Offers no checkpoints to resume from: they are temporary."""

    def list_checkpoints(self, directory: Path) -> list[Path]:
        return []


class _StepRecorder(QuietCallback):
    """Records every step from `first` on. The first callback: what others change shows in the next record."""

    def __init__(self, trainer: VerifyHost, first: int) -> None:
        self.trainer, self.first = trainer, first
        self.records: list[StepRecord] = []

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step + 1 >= self.first:
            self.record_step(state.global_step + 1)

    def record_step(self, step: int) -> None:
        trainer = self.trainer
        parts = {"the schedule": _remove_lambdas(trainer.lr_scheduler.state_dict())}
        scaler = getattr(trainer.precision, "scaler", None)
        if scaler is not None:
            parts["the gradient scaler"] = scaler.state_dict()
        callbacks = [one for one in trainer.callback_handler.callbacks if not isinstance(one, _CLOCKS)]
        states = export_callbacks(callbacks)
        tensors = {f"tensors of {name}": state for name, state in collect_tensor_states(trainer).items()}
        record = StepRecord(step)
        record.begin(trainer.model, trainer.optimizer, parts, {**states, **tensors})
        self.records.append(record)

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        run = self.trainer._run
        if not self.records or run is None or run.updates.current is None:
            return
        record, batches = self.records[-1], run.updates.current.batches
        for number, batch in enumerate(batches):
            where = f"micro-batch {number}, " if len(batches) > 1 else ""
            record.batch.update((f"{where}{name or 'it'}", one) for name, one in fingerprint_tree(batch))
        record.loss = math.fsum(float(loss) for loss in run.meters.loss.held)


def _remove_lambdas(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "lr_lambdas"}


class _SaveAndStop(QuietCallback):
    """Saves once and stops the run. The last callback, so that its decisions hold."""

    def __init__(self, recorder: _StepRecorder, save: int, stop: int) -> None:
        self.recorder, self.save, self.stop = recorder, save, stop

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        control.should_save = state.global_step == self.save
        if state.global_step >= self.stop:
            control.should_training_stop = True
            self.recorder.record_step(state.global_step + 1)


# ---- restoring the state


@contextmanager
def _temporary_directory(trainer: VerifyHost) -> Iterator[Path]:
    """Provide an empty, locked directory inside the output directory, and remove it on exit."""
    output_dir, leads = Path(trainer._get_output_dir(None)), SaveSettings.of(trainer.args).writes_here
    directory, existed = output_dir / VERIFY_DIRECTORY, output_dir.is_dir()
    with ExitStack() as while_locked:
        if leads:
            while_locked.enter_context(RunDirectory().lock(output_dir))
            _remove_directory(directory)  # of a verification that was killed
            directory.mkdir(parents=True)
        trainer.strategy.barrier()
        try:
            yield directory
        finally:
            trainer.strategy.barrier()
            if leads:
                _remove_directory(directory)
    if leads and not existed and output_dir.is_dir() and not any(output_dir.iterdir()):
        output_dir.rmdir()


def _remove_directory(directory: Path) -> None:
    if directory.exists():
        discard(directory)


@contextmanager
def _preserve_run(trainer: VerifyHost) -> Iterator[None]:
    """Restore what `preserve_trainer` does, and the state of callbacks, modules and a subclass of Trainer."""
    callbacks = [one for one in trainer.callback_handler.callbacks if not isinstance(one, _REPORTERS)]
    containers = [one for one in vars(trainer).values() if isinstance(one, (list, dict, set, deque))]
    modules = list(trainer.model.modules())
    numbers = [(module, _list_attributes(module, _PLAIN_TYPES)) for module in modules]
    generators = [one for module in modules for one in _list_attributes(module, _GENERATOR_TYPES).values()]
    with preserve_trainer(trainer), preserve_objects(*callbacks, *containers, *generators, trainer.compute_loss_func):
        try:
            yield
        finally:
            for module, before in numbers:
                vars(module).update(before)


def _list_attributes(module: nn.Module, kinds: tuple[type, ...]) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if isinstance(value, kinds) and name != "training"}
