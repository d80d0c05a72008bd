"""Resuming from a checkpoint: find it, read the state of its run, and restore everything."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..arguments import usage_errors
from ..arguments.resume_diff import Change, find_changes, format_changes, summarize_changes
from ..arguments.resume_rules import ResumeContext
from ..arguments.settings import RunSettings, format_arguments_json
from ..checkpoint import identity
from ..checkpoint.callback_tensors import load_tensor_states
from ..checkpoint.layouts import open_checkpoint
from ..core.choices import ResumeMode
from ..core.errors import CheckpointError
from ..core.notices import note
from ..core.random import set_seed
from ..core.state import TrainerControl, TrainerState, has_state
from ..data.epoch_position import find_batching
from ..data.sizes import is_iterable
from ..journal.writer import to_plain
from ..optim import schedulers
from .plan import Plan
from .resume_plan import Resumed
from .run import Run
from .run_host import CheckpointHost, ResumeHost


def find_checkpoint(trainer: CheckpointHost, wanted: str | bool | None, mode: ResumeMode) -> str | None:
    """Return the directory that `resume_from_checkpoint` names; None for a new run."""
    trainer._run_directory.verified = None
    if wanted is None or wanted is False:
        if mode != ResumeMode.RESUME:
            raise usage_errors.resume_mode_without_checkpoint(mode)
        return _find_interrupted(trainer) if wanted is None else None
    if wanted is not True:
        if not Path(wanted).is_dir():
            raise usage_errors.no_such_checkpoint(str(wanted), trainer._output_path)
        return str(wanted)
    found = _find_newest(trainer)
    if found is None:
        raise usage_errors.no_checkpoint(trainer._output_path, trainer._run_directory.damage)
    return found


def record_attempt(trainer: CheckpointHost) -> None:
    """Write down which run torchrun has started, so that a restart goes on with this run and with no older one."""
    if "TORCHELASTIC_RUN_ID" in os.environ and trainer.is_world_process_zero():
        record = _find_attempt_record(trainer)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(trainer._run_directory.run_id)


def _find_attempt_record(trainer: CheckpointHost) -> Path:
    return trainer._output_path / ".ostinato" / "attempt"


def _find_interrupted(trainer: CheckpointHost) -> str | None:
    """Return the newest checkpoint of this run if torchrun has restarted it, on whatever node."""
    if not trainer.strategy.any(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0):
        return None
    record, found = _find_attempt_record(trainer), _find_newest(trainer)
    own = record.read_text() if trainer.is_world_process_zero() and record.is_file() else ""
    own = trainer.strategy.broadcast_object(own)
    if found is None or identity.read_run_id(found) != own:
        note("restarted by torchrun before its first checkpoint: the run begins anew")
        return None
    note(f"restarted by torchrun: the run goes on from {Path(found).name}")
    return found


def _find_newest(trainer: CheckpointHost) -> str | None:
    """Return the newest complete checkpoint.

    One process reads them all and broadcasts the result, unless each node has its own.
    """
    settings, run_directory = RunSettings.of(trainer.args), trainer._run_directory
    if trainer.strategy.processes == 1 or settings.save_on_each_node:
        found = run_directory.find_newest_whole(trainer._output_path)
        return None if found is None else str(found)
    answer, failure = "-", None
    if trainer.is_world_process_zero():
        try:
            found = run_directory.find_newest_whole(trainer._output_path)
            answer = "-" if found is None else f"+{found}"
        except Exception as error:  # the other processes are waiting
            failure = error
    chosen = trainer.strategy.broadcast_object(answer)
    if failure is not None:
        raise failure
    if chosen == "-":
        return None
    run_directory.verified = Path(chosen[1:])
    return chosen[1:]


def is_fork(mode: ResumeMode) -> bool:
    """Return whether a new run starts from the checkpoint's weights."""
    return mode in (ResumeMode.FORK, ResumeMode.FORK_WITH_OPTIMIZER)


def read_checkpoint(trainer: ResumeHost, checkpoint: str, plan: Plan, loader: Any) -> Resumed:
    """Return the state of the run in a checkpoint, and its plan from there on."""
    opened = open_checkpoint(checkpoint, verified=trainer._run_directory.verified == Path(checkpoint))
    state = opened.read_state()
    progress = opened.read_loop_state(
        batches_per_epoch=plan.batches_per_epoch,
        accumulation=plan.accumulation,
        epoch_closed=RunSettings.of(trainer.args).saves_after_epochs,
    )
    if "place" not in progress:
        raise CheckpointError(
            what=f"{checkpoint} does not tell where its run stands in the data",
            why="it was written by a training loop of a subclass, which does not record it",
            fix="resume with that loop, or pass resume_mode='fork' to begin a new run with these weights",
        )
    arguments = opened.read_arguments()
    resumed = Resumed.build(
        checkpoint,
        state,
        progress,
        plan,
        find_batching(loader),
        epochs=RunSettings.of(trainer.args).epochs,
        max_steps=RunSettings.of(trainer.args).max_steps,
        processes=trainer.strategy.processes,
        keeps_order=not any(one.reorders for one in _find_changed_arguments(trainer, arguments, state, plan)),
    )
    if trainer._resume_mode == ResumeMode.EXTEND and resumed.plan.max_steps <= state.max_steps:
        raise usage_errors.nothing_to_extend(checkpoint, planned=state.max_steps, now=resumed.plan.max_steps)
    return dataclasses.replace(resumed, arguments=_find_changed_arguments(trainer, arguments, state, resumed.plan))


def _find_changed_arguments(
    trainer: ResumeHost, before: dict[str, Any], state: TrainerState, plan: Plan
) -> tuple[Change, ...]:
    """Return the arguments that differ from the checkpoint's. Called before optimizer and schedule are created."""
    schedule_is_theirs = trainer.lr_scheduler is not None and not trainer._created_lr_scheduler
    optimizer_is_theirs = trainer.optimizer is not None and trainer._run is None
    context = ResumeContext(
        steps_before=state.max_steps,
        steps_now=plan.max_steps,
        processes=trainer.strategy.size,
        own_optimizer=optimizer_is_theirs
        or trainer.optimizer_cls_and_kwargs is not None
        or trainer._is_overridden("create_optimizer"),
        own_schedule=schedule_is_theirs or trainer._is_overridden("create_scheduler"),
        is_stream=is_iterable(trainer.train_dataset),
        own_order=trainer.sampler is not None or trainer.batch_sampler is not None,
        best=state.best_metric,
    )
    return tuple(find_changes(type(trainer.args), before, json.loads(format_arguments_json(trainer.args)), context))


def resume(trainer: ResumeHost, resumed: Resumed, run: Run) -> None:
    """Load everything. The random streams come last, once the data are at their earlier position."""
    checkpoint, state = resumed.checkpoint, trainer.state
    trainer._load_from_checkpoint(checkpoint)
    trainer._load_optimizer_and_scheduler(checkpoint)
    trainer._load_scaler(checkpoint)
    trainer._load_callback_state()
    load_tensor_states(trainer, checkpoint)
    run.restore(resumed.progress)
    run.saves.checkpoint = Path(checkpoint)
    if RunSettings.of(trainer.args).ignore_data_skip:
        run.updates.position.restart_epoch()
        note("ignore_data_skip=True: the epoch starts again with its first batch; this is not the same run any more")
    if resumed.has_other_processes:
        run.updates.restore_streams = partial(set_seed, RunSettings.of(trainer.args).seed + state.global_step)
    else:
        run.updates.restore_streams = partial(trainer._load_rng_state, checkpoint)
    extends = trainer._resume_mode == ResumeMode.EXTEND
    note(f"{'extending' if extends else 'resuming'} from {checkpoint}: step {state.global_step} of {state.max_steps}")
    told = [*format_changes(resumed.arguments), *resumed.changes, *_describe_other_rate(trainer, at_once=extends)]
    if told:
        header = f"not everything is as it was in {Path(checkpoint).name}:"
        note("\n  ".join([header, *told, *summarize_changes(resumed.arguments)]))
    if state.global_step >= state.max_steps:
        note("nothing is left to do; resume_mode='extend' with a larger max_steps or num_train_epochs goes on")


def _describe_other_rate(trainer: ResumeHost, *, at_once: bool) -> list[str]:
    """Return a line about a learning rate that is not the present schedule's; `at_once` sets the schedule's rate.

    The rate of the next step is part of the optimizer's state. Without `at_once`, the present schedule takes over one
    step later, as it does in transformers.
    """
    jump = schedulers.find_schedule_rate(trainer.lr_scheduler, trainer.optimizer)
    if jump is None:
        return []
    before, now = jump
    step = trainer.state.global_step + 1
    if at_once:
        schedulers.follow_schedule(trainer.lr_scheduler, trainer.optimizer)
        steps = trainer.state.max_steps
        return [f"learning rate of step {step}: {before:.4g} → {now:.4g}, as in a run planned for {steps} steps"]
    return [f"learning rate: step {step} still has {before:.4g}; the present schedule, {now:.4g} there, follows it"]


def fork(trainer: ResumeHost, checkpoint: str, run: Run) -> None:
    """Start a new run with the weights of a checkpoint and, if requested, with its optimizer's averages."""
    opened = open_checkpoint(checkpoint, verified=trainer._run_directory.verified == Path(checkpoint))
    step, owner = opened.read_state().global_step, identity.read_run_id(checkpoint)
    trainer._load_from_checkpoint(checkpoint)
    with_optimizer = trainer._resume_mode == ResumeMode.FORK_WITH_OPTIMIZER
    if with_optimizer:
        groups = trainer._require_optimizer().param_groups
        settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        opened.load_optimizer(trainer.optimizer, trainer.strategy.load_optimizer_state)
        for group, own in zip(trainer.optimizer.param_groups, settings, strict=True):
            group.update(own)
    run.origin.forked_from = {
        "checkpoint": Path(checkpoint).name,
        "run_id": owner,
        "step": step,
        "optimizer": with_optimizer,
    }
    what = "weights and the optimizer's averages" if with_optimizer else "weights"
    run_id = trainer._run_directory.run_id
    note(f"forked from {checkpoint}, step {step}: its {what}; everything else begins anew, as run {run_id}")


def load_callback_state(callbacks: Sequence[Any], state: TrainerState, *, rebuilds: bool) -> None:
    """Restore the states of callbacks; report those in the checkpoint that no callback takes.

    With `rebuilds`, their constructors' arguments are restored too.
    """
    saved = {
        name: states if isinstance(states, list) else [states]
        for name, states in copy.deepcopy(state.stateful_callbacks).items()
        if name != TrainerControl.__name__
    }
    for callback in callbacks:
        states = saved.get(type(callback).__name__)
        if states and has_state(callback):
            _restore_callback(callback, states.pop(0), rebuilds=rebuilds)
    missing = [name for name, states in saved.items() if states]
    if missing:
        note(
            f"not restored: the checkpoint holds the state of {', '.join(missing)}, and there is no such callback now"
        )


def _restore_callback(callback: Any, state: dict[str, Any], *, rebuilds: bool) -> None:
    """Restore one callback.

    The callback stays the same object, since others may hold it. One whose state has another shape knows by itself how
    to rebuild it.
    """
    arguments, attributes = state.get("args", {}), state.get("attributes", {})
    has_known_shape = isinstance(arguments, dict) and isinstance(attributes, dict) and ("args" in state or attributes)
    if not has_known_shape or (rebuilds and arguments):
        vars(callback).update(vars(type(callback).from_state(state)))
        return
    for name, value in attributes.items():
        setattr(callback, name, value)
    for name, value in arguments.items():
        if to_plain(now := getattr(callback, name, value)) != value:
            note(f"{type(callback).__name__}: {name}={now!r} counts, not {value!r} as in the checkpoint")
