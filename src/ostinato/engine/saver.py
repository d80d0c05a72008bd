"""When checkpoints and the best weights are written in a run, into which directory, and what is then deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..arguments.settings import SaveSettings
from ..checkpoint import atomic, retention
from ..checkpoint.file_names import BEST_MODEL_NAME, TRAINER_STATE_NAME
from ..checkpoint.save_parts import gather_progress, write_parts, write_weights
from ..checkpoint.tensors import TensorWriter
from ..core.choices import SaveStrategy
from ..core.notices import warn
from .plan import Plan
from .run_host import SaverHost
from .save_outcome import (
    WORTH_PREPARING,
    Save,
    find_saves,
    forecast_save,
    raise_if_failed,
    wait_before_exit,
    wait_for_last_everywhere,
    writes_here,
)
from .save_writer import WRITE_PARTS, execute_save, is_read_immediately

_SLACK = 2**20  # a forecast that is slightly too small would cost the memory of a whole file


def is_saving_enabled(trainer: SaverHost) -> bool:
    """Return whether this run writes anything into its directory."""
    settings = SaveSettings.of(trainer.args)
    return settings.strategy != SaveStrategy.NO or settings.load_best_at_end or settings.just_in_time


@contextmanager
def lock_run_directory(trainer: SaverHost, trial: Any) -> Iterator[None]:
    """Hold the lock of the run's directory while entered.

    The directory is writable, no other run uses it, and no save is in progress on exit.
    """
    if trainer._run is not None:
        trainer._run.saves.wait_for_forgotten()
    with ExitStack() as stack:
        if is_saving_enabled(trainer) and trainer.is_world_process_zero():
            stack.enter_context(trainer._run_directory.lock(Path(trainer._get_output_dir(trial))))
        trainer.strategy.barrier()  # checkpoints must not be looked for while leftovers are deleted
        try:
            yield
        finally:
            wait_before_exit(trainer)
            if trainer._run is not None:
                trainer._run.saves.memory.clear()


def check_space(trainer: SaverHost, plan: Plan, trial: Any) -> None:
    """Compare the size of the expected checkpoints with the free space on the disk."""
    settings, state = SaveSettings.of(trainer.args), trainer.state
    if settings.strategy == SaveStrategy.NO or not trainer.is_world_process_zero():
        return
    by_steps = settings.strategy == SaveStrategy.STEPS and state.save_steps
    trainer._run_directory.check_space(
        Path(trainer._get_output_dir(trial)),
        trainer.model,
        None if settings.only_model else trainer.optimizer,
        saves=-(-(plan.max_steps - state.global_step) // state.save_steps) if by_steps else None,
        limit=settings.total_limit,
    )


def reserve_memory(trainer: SaverHost) -> None:
    """Reserve the memory for snapshots before the first of them, if any will be taken."""
    run, settings = trainer._run, SaveSettings.of(trainer.args)
    assert run is not None
    if not is_saving_enabled(trainer) or not writes_here(trainer) or trainer.strategy.is_sharded:
        return
    if any(map(trainer._is_overridden, WRITE_PARTS)) or is_read_immediately(trainer):
        return
    only_model = settings.only_model or settings.strategy == SaveStrategy.NO
    saves = run.saves

    def reserve() -> None:
        size = forecast_save(trainer, only_model=only_model)
        if size >= WORTH_PREPARING:
            saves.start(
                partial(saves.memory.reserve, size + size // 100 + _SLACK), raise_if_failed, "memory for checkpoints"
            )

    saves.prepare(reserve)


def make_room(trainer: SaverHost, trial: Any) -> None:
    """Move another run's checkpoint away before a subclass may write files of its own under the same name."""
    if not trainer._is_overridden("_save_checkpoint"):
        return
    if SaveSettings.of(trainer.args).writes_here:
        name = f"{retention.PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
        trainer._run_directory.move_other_run(Path(trainer._get_output_dir(trial=trial)) / name)
    trainer.strategy.barrier()


def save_checkpoint(trainer: SaverHost, trial: Any) -> None:
    """Write `checkpoint-N`, which appears whole or not at all."""
    if trainer._run is not None:
        trainer._run.step.settle()
    wait_for_last_everywhere(trainer)
    settings, run_dir = SaveSettings.of(trainer.args), Path(trainer._get_output_dir(trial=trial))
    trainer.store_flos()
    step = trainer.state.global_step
    target = run_dir / f"{retention.PREFIX_CHECKPOINT_DIR}-{step}"
    best = str(target) if trainer.state.best_global_step == step else trainer.state.best_model_checkpoint

    progress = gather_progress(trainer)

    def parts(directory: Path, write: TensorWriter | None) -> None:
        write_parts(trainer, directory, settings, write, progress)

    find_saves(trainer).checkpoint = target
    drops_best = best == str(target) and trainer._run_directory.owns(run_dir / BEST_MODEL_NAME)
    tidy = partial(_tidy, trainer, run_dir, settings.total_limit, best, drops_best=drops_best)
    needs_tidying = drops_best or settings.total_limit is not None
    publish = partial(trainer._push_from_checkpoint, str(target)) if settings.push_to_hub else None
    execute_save(
        trainer, Save(target, step, best, settings.only_model, parts, tidy if needs_tidying else None, publish)
    )


def mark_as_best(trainer: SaverHost, trial: Any) -> None:
    """Record the checkpoint of this step as the best, if it was written before the step was evaluated.

    This happens when evaluation is due at the end of an epoch, and a checkpoint at its last step.
    """
    run, run_dir = trainer._run, Path(trainer._get_output_dir(trial))
    target = run_dir / f"{retention.PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    if run is None or run.saves.checkpoint is None:
        return
    if os.path.realpath(run.saves.checkpoint) != os.path.realpath(target):
        return
    wait_for_last_everywhere(trainer)
    if run.saves.failed_step is not None:  # the disk did not accept it
        return
    trainer.state.best_model_checkpoint = str(target)
    if SaveSettings.of(trainer.args).writes_here:
        drops_best = trainer._run_directory.owns(run_dir / BEST_MODEL_NAME)
        _tidy(trainer, run_dir, SaveSettings.of(trainer.args).total_limit, str(target), drops_best=drops_best)


def keep_best_weights(trainer: SaverHost, trial: Any) -> None:
    """Write the best weights to a directory of their own when no checkpoint is due.

    The best model is not a resume point.
    """
    wait_for_last_everywhere(trainer)
    target = Path(trainer._get_output_dir(trial)) / BEST_MODEL_NAME

    def parts(directory: Path, write: TensorWriter | None) -> None:
        write_weights(trainer, directory, write, as_evaluated=True)
        if SaveSettings.of(trainer.args).writes_here:
            trainer.state.save_to_json(directory / TRAINER_STATE_NAME)

    execute_save(
        trainer, Save(target, trainer.state.global_step, str(target), only_model=True, parts=parts, tidy=None)
    )


def _tidy(trainer: SaverHost, run_dir: Path, limit: int | None, best: str | None, *, drops_best: bool) -> None:
    """Delete what a new checkpoint replaces."""
    try:
        if drops_best:  # it is the best now: weights kept for an earlier best are no longer needed
            atomic.discard(run_dir / BEST_MODEL_NAME)
        retention.rotate(run_dir, limit, keep=[best or ""], run_id=trainer._run_directory.run_id)
    except OSError as error:  # surplus checkpoints must not stop a run
        warn(f"could not delete what is not needed any more in {run_dir}: {error}")
