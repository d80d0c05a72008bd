"""Try a training batch, two evaluation batches, a save and a load, and restore everything.

The trainer's own override points are called, in the run's own directory. What they change is saved before and restored
after: weights, buffers, gradients, modes, optimizer, schedule, random streams, the trainer's attributes, and the state
of collators, metric functions and data sets.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments.settings import DryRunSettings, SaveSettings
from ..checkpoint.atomic import atomic_directory, discard
from ..checkpoint.run_directory import RunDirectory
from ..checkpoint.save_parts import write_parts
from ..checkpoint.state_objects import build_object, describe_object
from ..core import accelerator
from ..core.calls import fit_arguments
from ..core.errors import CheckpointError
from ..core.notices import note
from ..core.state_guard import can_restore
from ..core.tree import tree_map
from ..data import loader as data_loader
from ..data.batching.split_by_length import flatten_micro_batches
from ..engine import saver, setup
from ..engine.run import Run
from ..optim.schedule_free import use_averaged_weights
from . import dispatch, eval_dry_run
from .failures import explain_failure
from .hosts import DryRunHost
from .late_errors import Suspect, explain_late_failure, prefer_explanation

DIRECTORY = ".rehearsal"  # inside the run's directory, so that its disk and permissions are tried
EVALUATION_BATCHES = 2


@dataclass(frozen=True)
class Rehearsal:
    """The times and sizes that a rehearsal measured; a part that was not tried is None."""

    train_seconds: float | None  # forward and backward of one micro-batch
    eval_seconds: float | None  # of the batches that were evaluated, with the metric function
    save_seconds: float | None
    load_seconds: float | None
    checkpoint_bytes: int | None
    left_out: tuple[str, ...] = ()  # what could not be tried, and why

    def __str__(self) -> str:
        parts = [
            (self.train_seconds, "a training batch"),
            (self.eval_seconds, "an evaluation"),
            (self.save_seconds, f"a save of {(self.checkpoint_bytes or 0) / 1e6:.1f} MB"),
            (self.load_seconds, "a load"),
        ]
        tried = ", ".join(f"{what} {seconds:.2f} s" for seconds, what in parts if seconds is not None)
        return "; ".join([f"rehearsed: {tried or 'nothing'}", *self.left_out])


def rehearse_new_run(trainer: DryRunHost) -> Rehearsal:
    """Open a run as `train` would, rehearse it, and restore everything."""
    settings = DryRunSettings.of(trainer.args)
    output_path = Path(trainer._get_output_dir(None))
    was_there = output_path.is_dir()
    with prefer_explanation(), preserve_trainer(trainer), ExitStack() as while_open:
        trainer.is_in_train, trainer._run_directory = True, RunDirectory()
        trainer._train_batch_size = settings.train_batch_size
        while_open.enter_context(saver.lock_run_directory(trainer, None))
        trainer._run_directory.begin(output_path, None, writes=False)
        run = setup.open_run(trainer, None, None, None, while_open, partial(dispatch.check_first_batch, trainer))
        result = _try_all(trainer, run)
    if not was_there and settings.writes_here and output_path.is_dir() and not any(output_path.iterdir()):
        output_path.rmdir()
    return result


def rehearse_run(trainer: DryRunHost, run: Run) -> Rehearsal:
    """Rehearse a run that is open and has taken no step."""
    with prefer_explanation(), preserve_trainer(trainer, run.updates.loader):
        return _try_all(trainer, run)


def _try_all(trainer: DryRunHost, run: Run) -> Rehearsal:
    left_out: list[str] = []
    trained = _measure_seconds(lambda: _try_training(trainer, run, left_out))
    evaluated = _measure_seconds(lambda: _try_evaluation(trainer, run, left_out))
    saved = _try_save(trainer, run) if saver.is_saving_enabled(trainer) else (None, None, None)
    result = Rehearsal(trained, evaluated, *saved, left_out=tuple(left_out))
    note(str(result))
    return result


def _measure_seconds(attempt: Any) -> float | None:
    """Return the seconds that an attempt took; None if there was nothing to try."""
    started = time.perf_counter()
    return time.perf_counter() - started if attempt() else None


# ---- a training batch


def _try_training(trainer: DryRunHost, run: Run, left_out: list[str]) -> bool:
    reading = (
        trainer.train_dataset,
        trainer.data_collator,
        trainer.sampler,
        trainer.batch_sampler,
        run.updates.loader,
    )
    if not can_restore(*reading):
        left_out.append("no training batch: the data set cannot be rewound, and one batch would be lost")
        return False
    loader = _disable_workers(trainer.get_train_dataloader())
    batch = next(iter(loader), None)
    if batch is None:
        return False
    trainer._run = None  # a run counts its batches
    try:
        parts = flatten_micro_batches([batch]) if run.updates.cuts else [batch]
        for part in parts[:1] if trainer.strategy.is_sharded else parts:  # all processes need the same number
            _try_micro_batch(trainer, loader, part)
    except Exception:
        run.step.is_computing = True  # as in the loop: it was a training batch that failed
        raise
    finally:
        trainer._run = run
    return True


def _try_micro_batch(trainer: DryRunHost, loader: Any, batch: Any) -> None:
    dispatch.check_first_batch(trainer, loader, batch, 0, 0)
    num_items = trainer._get_num_items_in_batch([batch], trainer.strategy.device)
    try:
        with trainer.strategy.accumulate(trainer.model_wrapped, sync=True):
            trainer.training_step(*fit_arguments(trainer.training_step, trainer.model_wrapped, batch, num_items))
        trainer.model_wrapped = trainer.strategy.finish_backward(trainer.model_wrapped)
        accelerator.wait_for(trainer.strategy.device)
    except Exception as error:
        context = dispatch.build_context(trainer, batch, loader, "training set", 0, 0)
        if accelerator.has_failed(error):
            reason = explain_late_failure(error, [Suspect(context, "in the rehearsal")], trainer.compute_loss)
        else:
            reason = explain_failure(error, context, "in the rehearsal", dispatch.describe_training_memory(trainer))
        if reason is error:
            raise
        raise reason from reason.__cause__


def _disable_workers(loader: Any) -> Any:
    """Return the loader without workers, which start slower than one batch is read; a user's loader unchanged."""
    if isinstance(loader, data_loader.Loader):
        loader.num_workers, loader.pin_memory = 0, False
    return loader


# ---- evaluation batches


def _try_evaluation(trainer: DryRunHost, run: Run, left_out: list[str]) -> bool:
    sets, settings = eval_dry_run.list_eval_sets(trainer.eval_dataset), DryRunSettings.of(trainer.args)
    if not settings.evaluates or not any(part is not None for part in sets.values()):
        return False
    if settings.batch_metrics:
        left_out.append(
            "no evaluation: batch_eval_metrics accumulates over calls, and the last call is not known here"
        )
        return False
    if not can_restore(*eval_dry_run.list_stateful_objects(trainer, list(sets.values()))):
        left_out.append("no evaluation: the evaluation set or the metric function cannot be rewound")
        return False
    check = eval_dry_run.build_metric_check(trainer, sets, run.options.ignore_keys, first=EVALUATION_BATCHES)
    eval_dry_run.check_metrics(check)
    return True


# ---- a save and a load


def _try_save(trainer: DryRunHost, run: Run) -> tuple[float, float, int]:
    """Write a checkpoint where checkpoints will be written, read it back, compare, remove it."""
    settings, barrier = SaveSettings.of(trainer.args), trainer.strategy.barrier
    stage = Path(trainer._get_output_dir(run.options.trial)) / DIRECTORY
    leads, target = settings.writes_here, stage / "checkpoint-0"
    started = time.perf_counter()
    try:
        if leads:
            _remove_directory(stage)  # left by a rehearsal that was killed
            stage.mkdir(parents=True)
        barrier()
        with atomic_directory(target, leader=leads, barrier=barrier) as directory:
            write_parts(trainer, directory, settings)
        saved = time.perf_counter()
        _check_load(trainer, str(target), only_model=settings.only_model)
        loaded = time.perf_counter()
        size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file()) if leads else 0
    finally:
        barrier()
        if leads:
            _remove_directory(stage)
    return saved - started, loaded - saved, size


def _remove_directory(directory: Path) -> None:
    if directory.exists():
        discard(directory)


def _check_load(trainer: DryRunHost, checkpoint: str, *, only_model: bool) -> None:
    with use_averaged_weights(trainer.optimizer):  # as it was saved
        before = {name: value.detach().clone() for name, value in _list_saved_tensors(trainer.model)}
        trainer._load_from_checkpoint(checkpoint)
        changed = [name for name, value in _list_saved_tensors(trainer.model) if not _is_same(value, before.get(name))]
    if changed:
        raise _build_changed_weights_error(trainer.model, changed)
    if not only_model:
        trainer._load_optimizer_and_scheduler(checkpoint)
        trainer._load_scaler(checkpoint)
        trainer._load_rng_state(checkpoint)


def _list_saved_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    persistent = set(model.state_dict())
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in persistent)


def _is_same(value: Tensor, other: Tensor | None) -> bool:
    if other is None or value.shape != other.shape:
        return False
    return bool(((value == other) | ((value != value) & (other != other))).all())  # NaN is not equal to itself


def _build_changed_weights_error(model: nn.Module, changed: list[str]) -> CheckpointError:
    listed = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return CheckpointError(
        what=f"a checkpoint of {type(model).__name__} does not load as it was saved: {listed} differ after loading",
        why="resuming, or loading the best model, would use other weights",
        fix="check state_dict, load_state_dict and their hooks in the model, or at _save and _load_from_checkpoint",
    )


# ---- restoring the state


@contextmanager
def preserve_trainer(trainer: DryRunHost, *stateful: Any) -> Iterator[None]:
    """Restore trainer, model, optimizer, schedule, random streams and `stateful` objects on exit."""
    model, handler, objective = trainer.model, trainer.callback_handler, trainer.loss_objective
    if trainer.strategy.is_sharded:
        trainer._wrap_model(model)  # its parameters are other objects afterwards
    attributes = [(thing, dict(vars(thing))) for thing in (trainer, handler, objective)]
    parameters = [(one, one.detach().clone(), one.grad) for one in model.parameters()]
    checkpointing = getattr(model, "is_gradient_checkpointing", None)
    parts = (trainer.optimizer, trainer.lr_scheduler, getattr(trainer.precision, "scaler", None))
    states = [(part, _copy_state(part.state_dict())) for part in parts if part is not None]
    objects = [
        *eval_dry_run.list_stateful_objects(trainer, list(eval_dry_run.list_eval_sets(trainer.eval_dataset).values()))
    ]
    objects += [trainer.train_dataset, trainer.sampler, trainer.batch_sampler, trainer.control, trainer.state]
    objects += [getattr(model, "generation_config", None)]
    objects += stateful
    try:
        for one in model.parameters():
            one.grad = None
        with eval_dry_run.preserve_state(model, *objects):
            yield
    finally:
        with torch.no_grad():
            for one, value, gradient in parameters:
                one.grad = gradient
                if not _is_same(one, value):
                    one.copy_(value)
        for thing, before in attributes:
            vars(thing).clear()
            vars(thing).update(before)
        for part, state in states:
            if not _is_same_state(part.state_dict(), state):
                part.load_state_dict(state)
        if checkpointing is False and getattr(model, "is_gradient_checkpointing", None):
            model.gradient_checkpointing_disable()  # type: ignore[operator]


def _is_same_state(one: Any, other: Any) -> bool:
    """Return whether two states are equal, bit for bit."""
    described, other_described = describe_object(one), describe_object(other)
    if described is not None and other_described is not None:
        return _is_same_state(described.fields, other_described.fields)
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and _is_same(one, other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_is_same_state(one[k], other[k]) for k in one)
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same_state, one, other))
    return bool(one == other)


def _copy_state(state: Any) -> Any:
    """Return a deep copy of a state."""
    return tree_map(_copy_leaf, state)


def _copy_leaf(leaf: Any) -> Any:
    if (described := describe_object(leaf)) is not None:  # it may not know how to copy itself
        return build_object(described.name, _copy_state(described.fields))
    return leaf.detach().clone() if isinstance(leaf, Tensor) else copy.deepcopy(leaf)
