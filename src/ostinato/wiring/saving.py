"""What is written while a model trains: checkpoints, the best weights, and room for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint import checkpointer, retention
from ..checkpoint.layouts import add_transformers_files
from ..checkpoint.names import TRAINER_STATE_NAME
from ..checkpoint.store import atomic_directory, discard
from ..config.plan import SaveSettings
from ..core.choices import SaveStrategy
from ..loops.run import Plan

if TYPE_CHECKING:
    from ..trainer import Trainer

BEST_MODEL = "best-model"  # the directory of the best weights, where no checkpoint was due when they were found


def writes_checkpoints(trainer: Trainer) -> bool:
    """Whether this run leaves anything in its directory."""
    return trainer.args.save_strategy != SaveStrategy.NO or trainer.args.load_best_model_at_end


@contextmanager
def at_home(trainer: Trainer, trial: Any) -> Iterator[None]:
    """The directory can be written to, and this is the only run in it."""
    with ExitStack() as at_home:
        if writes_checkpoints(trainer) and trainer.is_world_process_zero():
            at_home.enter_context(trainer._run_home.occupied(Path(trainer._get_output_dir(trial))))
        trainer.strategy.barrier()  # nobody looks for checkpoints while leftovers are swept
        yield


def check_space(trainer: Trainer, plan: Plan, trial: Any) -> None:
    """Compare what the checkpoints will take with what the disk has."""
    settings, state = SaveSettings.of(trainer.args), trainer.state
    if settings.strategy == SaveStrategy.NO or not trainer.is_world_process_zero():
        return
    by_steps = settings.strategy == SaveStrategy.STEPS and state.save_steps
    trainer._run_home.check_space(
        Path(trainer._get_output_dir(trial)),
        trainer.model,
        None if settings.only_model else trainer.optimizer,
        saves=-(-(plan.max_steps - state.global_step) // state.save_steps) if by_steps else None,
        limit=settings.total_limit,
    )


def save_checkpoint(trainer: Trainer, trial: Any) -> None:
    """`checkpoint-N`, which appears whole or not at all."""
    settings, run_dir = SaveSettings.of(trainer.args), Path(trainer._get_output_dir(trial=trial))
    trainer.store_flos()
    target = run_dir / f"{retention.PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    if trainer.state.best_global_step == trainer.state.global_step:
        trainer.state.best_model_checkpoint = str(target)
    with atomic_directory(target, leader=trainer.args.should_save, barrier=trainer.strategy.barrier) as directory:
        trainer.save_model(str(directory), _internal_call=True)
        if not settings.only_model:
            trainer._save_optimizer_and_scheduler(str(directory))
            trainer._save_scaler(str(directory))
            trainer._save_rng_state(str(directory))
            if settings.for_transformers:
                save_for_transformers(trainer, directory)
        assert trainer._run is not None
        progress = trainer._run.progress(trainer.strategy.mean)  # asked of all processes: what they have summed up
        if trainer.args.should_save:
            save_progress(trainer, directory, progress)
            trainer._run_home.stamp(directory, target)
    if trainer.args.should_save:
        if trainer.state.best_model_checkpoint == str(target):
            drop_best_weights(trainer, run_dir / BEST_MODEL)
        retention.rotate(
            run_dir,
            settings.total_limit,
            keep=[trainer.state.best_model_checkpoint or ""],
            run_id=trainer._run_home.run_id,
        )


def save_for_transformers(trainer: Trainer, directory: Path) -> None:
    """The files by which stock transformers goes on."""
    add_transformers_files(
        directory,
        optimizer=trainer._existing_optimizer(),
        scheduler=trainer.lr_scheduler,
        scaler=getattr(trainer.precision, "scaler", None),
        rank=trainer.args.process_index,
        world_size=trainer.args.world_size,
        leads=trainer.args.should_save,
    )


def save_progress(trainer: Trainer, directory: Path, progress: dict[str, Any]) -> None:
    """How far the run is: state, callbacks, sums, position in the data."""
    trainer.state.stateful_callbacks = trainer._callback_states()
    trainer.state.save_to_json(directory / TRAINER_STATE_NAME)
    checkpointer.save_loop_state(directory, progress)


def keep_best_weights(trainer: Trainer, trial: Any) -> None:
    """The best model is not a resume point: its weights are kept apart when no checkpoint is due."""
    target = Path(trainer._get_output_dir(trial)) / BEST_MODEL
    with atomic_directory(target, leader=trainer.args.should_save, barrier=trainer.strategy.barrier) as directory:
        trainer.save_model(str(directory), _internal_call=True)
        if trainer.args.should_save:
            trainer.state.save_to_json(directory / TRAINER_STATE_NAME)
            trainer._run_home.stamp(directory, target)
    trainer.state.best_model_checkpoint = str(target)


def drop_best_weights(trainer: Trainer, kept_apart: Path) -> None:
    """A checkpoint is the best now: the weights kept apart for an earlier one are not needed any more."""
    if trainer._run_home.owns(kept_apart):
        discard(kept_apart)
