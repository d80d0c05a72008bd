"""Going on from a checkpoint: which one, what it says of the run, and putting it all back."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint import identity
from ..checkpoint.layouts import open_checkpoint
from ..config import mistakes
from ..core.choices import SaveStrategy
from ..core.notices import note
from ..core.random import set_seed
from ..core.state import ExportableState
from ..data.position import batching_of
from ..loops.resume import Resumed
from ..loops.run import Plan, Run

if TYPE_CHECKING:
    from ..trainer import Trainer


def checkpoint_to_resume(trainer: Trainer, wanted: str | bool | None) -> str | None:
    """The directory behind `resume_from_checkpoint`; None starts afresh."""
    if wanted is None or wanted is False:
        return None
    if wanted is not True:
        if not Path(wanted).is_dir():
            raise mistakes.no_such_checkpoint(str(wanted), trainer._home)
        return str(wanted)
    found = identity.latest_run_checkpoint(trainer._home)
    if found is None:
        raise mistakes.no_checkpoint(trainer._home)
    return str(found)


def read_checkpoint(trainer: Trainer, checkpoint: str, plan: Plan, loader: Any) -> Resumed:
    """What a checkpoint tells of the run, and how long the run will be from there on."""
    opened = open_checkpoint(checkpoint)
    state = opened.state()
    progress = opened.loop_state(
        batches_per_epoch=plan.batches_per_epoch,
        accumulation=plan.accumulation,
        epoch_closed=saves_after_epochs(trainer),
    )
    return Resumed.at(
        checkpoint,
        state,
        progress,
        plan,
        batching_of(loader),
        epochs=trainer.args.num_train_epochs,
        max_steps=trainer.args.max_steps,
        processes=trainer.args.world_size,
    )


def resume(trainer: Trainer, resumed: Resumed, run: Run) -> None:
    """Load everything; the random streams come last, when the data stand where they stood."""
    checkpoint = resumed.checkpoint
    trainer._load_from_checkpoint(checkpoint)
    trainer._load_optimizer_and_scheduler(checkpoint)
    trainer._load_scaler(checkpoint)
    trainer._load_callback_state()
    run.restore(resumed.progress)
    if trainer.args.ignore_data_skip:
        run.place.restart_epoch()
        note("ignore_data_skip=True: the epoch starts again with its first batch; this is not the same run any more")
    if resumed.has_other_processes:
        run.restore_streams = partial(set_seed, trainer.args.seed + trainer.state.global_step)
    else:
        run.restore_streams = partial(trainer._load_rng_state, checkpoint)
    note(f"resuming from {checkpoint}: step {trainer.state.global_step} of {trainer.state.max_steps}")
    for change in resumed.changes:
        note(change)


def saves_after_epochs(trainer: Trainer) -> bool:
    """Whether checkpoints are written when an epoch has ended, after its last step."""
    args = trainer.args
    return (args.eval_strategy if args.save_strategy == SaveStrategy.BEST else args.save_strategy) == "epoch"


def load_callback_state(trainer: Trainer) -> None:
    """Callbacks with a state go on where they were."""
    saved = copy.deepcopy(trainer.state.stateful_callbacks)
    for callback in trainer.callback_handler.callbacks:
        if not isinstance(callback, ExportableState):
            continue
        states = saved.get(type(callback).__name__)
        state = states.pop(0) if isinstance(states, list) and states else states
        if isinstance(state, dict):
            for name, value in {**state["args"], **state["attributes"]}.items():
                setattr(callback, name, value)
