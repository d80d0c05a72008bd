"""What an evaluation tells a search: the objective, recorded, reported to the library, and used to end bad trials."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

from ..callbacks.handler import emit
from ..core.choices import HPSearchBackend
from . import objective_value
from .host import SearchHost


def report(trainer: SearchHost, trial: Any, step: int, metrics: dict[str, float]) -> None:
    """Compute the objective of an evaluation, record and report it; end the trial if it is not worth going on."""
    session = trainer._search
    if session is None:  # a subclass calls it outside of a search
        trainer.objective = trainer.compute_objective(dict(metrics))
        return
    session.metrics = dict(metrics)
    trainer.objective = objective_value.compute(trainer.compute_objective, metrics, session.directions)
    values = objective_value.list_values(trainer.objective)
    if session.is_leader:
        session.writer.write("value", number=session.number, step=step, epoch=trainer.state.epoch, values=values)
    if trainer.hp_search_backend == HPSearchBackend.OPTUNA:
        _report_to_optuna(trainer, trial, step, values)
    elif trainer.hp_search_backend == HPSearchBackend.RAY:
        _report_to_ray(trainer, metrics, values)
    elif trainer.hp_search_backend == HPSearchBackend.WANDB:
        from .wandb_engine import report_metric  # noqa: PLC0415 - optional

        report_metric(session, metrics, values)


def _report_to_optuna(trainer: SearchHost, trial: Any, step: int, values: Sequence[float]) -> None:
    """Report a single objective, and end the trial if the pruner says so."""
    session = trainer._search
    if len(values) > 1 or not callable(getattr(trial, "should_prune", None)):
        return  # Optuna prunes studies of one objective only
    # A trial that is resumed reports again what is known; the pruner was asked about all but the last of it.
    if step not in session.reported:
        trial.report(values[0], step)
    if step >= max(session.reported, default=step) and trial.should_prune():
        emit(trainer, "on_train_end")
        raise session.pruned[0](f"pruned at step {step}")


def name_objectives(count: int) -> list[str]:
    """Return the names under which Ray Tune gets the objectives."""
    return ["objective"] if count == 1 else [f"objective_{index}" for index in range(count)]


def _report_to_ray(trainer: SearchHost, metrics: dict[str, float], values: tuple[float, ...]) -> None:
    """Report the objective to Ray Tune, with a checkpoint if one is due."""
    from ray import tune  # noqa: PLC0415 - optional

    named = dict(zip(name_objectives(len(values)), values, strict=True))
    reported = {**metrics, **named, "step": trainer.state.global_step}
    session = trainer._search
    session.has_reported = True
    if session.is_stopped_by_library and trainer.state.global_step >= trainer.state.max_steps:
        session.conclude()  # a scheduler may end the process at the last report
    if not trainer.control.should_save:
        tune.report(reported)
        return
    with tempfile.TemporaryDirectory() as directory:
        trainer._tune_save_checkpoint(checkpoint_dir=directory)
        tune.report(reported, checkpoint=tune.Checkpoint.from_directory(directory))
