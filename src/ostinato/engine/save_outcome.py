"""A save, the wait for its end, and what follows from it: success, or a disk that did not accept it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from ..arguments.settings import SaveSettings
from ..checkpoint import atomic, save_errors, space
from ..checkpoint.background import Saves
from ..checkpoint.disk import is_disk_failure
from ..checkpoint.file_names import TRAINER_STATE_NAME
from ..checkpoint.tensors import TensorWriter
from ..core.notices import note, warn
from ..core.state import TrainerState
from ..journal import run_journal
from .run_host import SaverHost

_LONG_WAIT = 1.0  # seconds
WORTH_PREPARING = 64 * 2**20  # bytes


@dataclass(frozen=True)
class Save:
    """One directory to write, and the actions that follow once it exists."""

    target: Path
    step: int
    best: str | None  # the directory of the best model once this one exists
    only_model: bool
    parts: Callable[[Path, TensorWriter | None], None]
    tidy: Callable[[], None] | None  # deletes what is no longer needed
    publish: Callable[[], None] | None = None  # starts its upload
    begun: float = field(default_factory=perf_counter)

    @property
    def is_best(self) -> bool:
        return self.best == str(self.target)


def find_saves(trainer: SaverHost) -> Saves:
    """Return the saves of the run. A loop that a subclass has written has no run, and waits for each save."""
    return Saves() if trainer._run is None else trainer._run.saves


def wait_for_last(trainer: SaverHost) -> None:
    """Return once no save is in progress; report a long wait."""
    run = trainer._run
    if run is None:
        return
    waited = run.saves.wait()
    if waited >= _LONG_WAIT and not run.saves.has_reported_wait:
        run.saves.has_reported_wait = True
        note(
            f"step {trainer.state.global_step}: training stood still for {waited:.1f} s until the last checkpoint was "
            "on the disk; it takes longer to write than the steps between two saves (this is reported once)"
        )


def wait_for_last_everywhere(trainer: SaverHost) -> None:
    """Return once no save is in progress in any process, and all know how the last one ended."""
    wait_for_last(trainer)
    if trainer._run is not None:
        trainer._run.saves.agree()


def find_best_step(trainer: SaverHost) -> int | None:
    """Return the step of the best weights on the disk; a later, better model may not have fitted there."""
    state, run = trainer.state, trainer._run
    if run is None or run.saves.lost_best is None:
        return state.best_global_step
    warn(f"the best model, of step {state.best_global_step}, could not be written: this is the best of those before")
    return TrainerState.load_from_json(Path(state.best_model_checkpoint or "") / TRAINER_STATE_NAME).global_step


def wait_before_exit(trainer: SaverHost) -> None:
    """Wait for a save before `train()` ends for any reason; a failure of the save does not hide that reason."""
    run = trainer._run
    if run is None:
        return
    try:
        run.saves.wait()
        raise_if_failed(run.saves.failure_to_share)
    except Exception as error:
        warn(f"while the last checkpoint was awaited: {error}")


def record_success(trainer: SaverHost, saves: Saves, save: Save) -> None:
    trainer.state.best_model_checkpoint = save.best
    saves.failure = saves.failed_step = None
    if save.is_best:
        saves.lost_best = None
    if save.publish is not None:
        save.publish()
    run_journal.record_save(
        trainer.callback_handler.callbacks, save.target, save.step, perf_counter() - save.begun, is_best=save.is_best
    )


def handle_failure(trainer: SaverHost, saves: Saves, save: Save, error: BaseException) -> None:
    """Report a disk that does not accept a checkpoint, so that training continues; raise any other error."""
    if not _is_refusal_everywhere(trainer, error):
        raise error
    refusal = save_errors.build_save_error(
        save.target, error, needed=forecast_save(trainer, only_model=save.only_model)
    )
    saves.failure, saves.failed_step = refusal, save.step
    if save.is_best:
        saves.lost_best = refusal
    if SaveSettings.of(trainer.args).errors == "raise":
        raise refusal from error
    before = None
    with suppress(OSError):
        before = next(reversed(trainer._run_directory.list_checkpoints(save.target.parent)), None)
    warn(save_errors.format_warning(refusal, before))


def share_outcome(trainer: SaverHost, saves: Saves, save: Save) -> None:
    """Tell all processes how a save in the background ended."""
    error, saves.failure_to_share = saves.failure_to_share, None
    if trainer.strategy.any(error is not None):
        handle_failure(trainer, saves, save, error or atomic.build_other_process_error(save.target))
    elif not writes_here(trainer):
        record_success(trainer, saves, save)


def _is_refusal_everywhere(trainer: SaverHost, error: BaseException) -> bool:
    """Return whether no process failed for another reason than its disk; all processes get the same answer."""
    refused = is_disk_failure(error)
    if trainer.strategy.processes == 1:
        return refused
    return not trainer.strategy.any(not refused and not isinstance(error, atomic.OtherProcessError))


def forecast_save(trainer: SaverHost, *, only_model: bool) -> int:
    return space.forecast_size(trainer.model, None if only_model else space.estimate_state_factor(trainer.optimizer))


def writes_here(trainer: SaverHost) -> bool:
    return SaveSettings.of(trainer.args).writes_here


def raise_if_failed(error: BaseException | None) -> None:
    if error is not None:
        raise error
