"""Checkpoints that Ray Tune keeps: whole ones, so that a trial goes on from them in another process.

Population based training goes on from the checkpoint of a better trial, with other values. The optimizer's options are
then those of the present arguments, although the checkpoint holds others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checkpoint.retention import PREFIX_CHECKPOINT_DIR

Options = list[dict[str, Any]]


def save(trainer: Any, checkpoint_dir: str) -> None:
    """Write `checkpoint-N` into a directory of Ray's, as the run would write it into its own."""
    before = trainer._trial_directory, trainer.state.best_model_checkpoint
    trainer._trial_directory = Path(checkpoint_dir)
    try:
        trainer._save_checkpoint(trainer.model, trainer._trial)
        if trainer._run is not None:
            trainer._run.saves.wait()
    finally:
        trainer._trial_directory, trainer.state.best_model_checkpoint = before


def find(directory: str | Path) -> Path | None:
    """Return the checkpoint in a directory of Ray's."""
    return next(Path(directory).glob(f"{PREFIX_CHECKPOINT_DIR}-*"), None)


def read_options(optimizer: Any) -> Options:
    """Return the options of the groups of an optimizer that has just been made from the arguments."""
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def use_options(optimizer: Any, scheduler: Any, options: Options) -> None:
    """Give an optimizer that was loaded these options; the schedule keeps its place."""
    for group, wanted in zip(optimizer.param_groups, options, strict=True):
        peak = wanted.get("initial_lr", wanted["lr"])
        loaded = group.get("initial_lr", peak)
        rate = group["lr"] * peak / loaded if loaded else wanted["lr"]
        group.update({**wanted, "lr": rate, **({"initial_lr": peak} if "initial_lr" in group else {})})
    if scheduler is not None and hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [wanted.get("initial_lr", wanted["lr"]) for wanted in options]
        scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]
