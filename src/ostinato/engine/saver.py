"""When and how checkpoints and the best weights are written during training, and what follows from it.

A save takes one of three ways. *Later*: the tensors are copied, and written while training continues; of several
processes the first does this, or each does it with its parts if the model is divided. *Now*: the directory is read
next, so they are written first. *By hooks*: a method that writes a part is overridden, or several processes write now,
and every part is written by its method. The files are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ..arguments.settings import SaveSettings
from ..callbacks.events import IGNORED
from ..callbacks.handler import CallbackHandler
from ..checkpoint import atomic, retention, save_errors, space
from ..checkpoint.background import Saves
from ..checkpoint.disk import is_disk_failure
from ..checkpoint.file_names import BEST_MODEL_NAME, TRAINER_STATE_NAME
from ..checkpoint.save_parts import gather_progress, write_parts, write_weights
from ..checkpoint.snapshot import Snapshot
from ..checkpoint.tensors import TensorWriter, write_tensors
from ..checkpoint.written_files import WrittenFiles
from ..core.choices import SaveStrategy
from ..core.notices import note, warn
from ..core.state import TrainerState
from ..journal import run_journal
from .plan import Plan
from .run_host import SaverHost

WRITE_PARTS = ("save_model", "_save", "_save_optimizer_and_scheduler", "_save_scaler", "_save_rng_state")
LOOK_AFTER = ("_save_checkpoint", "_maybe_log_save_evaluate", "_determine_best_metric")
# Packages whose callbacks do not read the files of a checkpoint in `on_save`.
_OURS = tuple(f"{__name__.partition('.')[0]}.{room}." for room in ("callbacks", "progress", "journal"))
_LONG_WAIT = 1.0  # seconds
_WORTH_PREPARING = 64 * 2**20  # bytes
_SLACK = 2**20  # a forecast that is slightly too small would cost the memory of a whole file


# ---- the directory of a run ----------------------------------------------------------------------------------------


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
    if not is_saving_enabled(trainer) or not _leads(trainer) or trainer.strategy.is_sharded:
        return
    if any(map(trainer._is_overridden, WRITE_PARTS)) or is_read_immediately(trainer):
        return
    only_model = settings.only_model or settings.strategy == SaveStrategy.NO
    saves = run.saves

    def reserve() -> None:
        size = _forecast(trainer, only_model=only_model)
        if size >= _WORTH_PREPARING:
            saves.start(partial(saves.memory.reserve, size + size // 100 + _SLACK), _raise, "memory for checkpoints")

    saves.prepare(reserve)


def _forecast(trainer: SaverHost, *, only_model: bool) -> int:
    return space.forecast_size(trainer.model, None if only_model else space.estimate_state_factor(trainer.optimizer))


# ---- saves ---------------------------------------------------------------------------------------------------------


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

    _find_saves(trainer).checkpoint = target
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


# ---- ways of writing -----------------------------------------------------------------------------------------------


def execute_save(trainer: SaverHost, save: Save) -> None:
    """Write a directory, or begin to. A disk that does not accept it is reported as `save_errors` says."""
    saves = _find_saves(trainer)
    saves.failed_step = None
    if _can_wait_everywhere(trainer, saves, save):
        (_write_in_all if trainer.strategy.is_sharded else _write_in_first)(trainer, saves, save)
    elif _has_write_hooks(trainer):
        with _show_large_save(trainer, saves, save):
            _write_with_hooks(trainer, saves, save)
    elif saves.allows_background and trainer.is_in_train and not is_read_immediately(trainer):
        _write_snapshot(trainer, saves, save, later=True)
    else:
        with _show_large_save(trainer, saves, save):
            _write_snapshot(trainer, saves, save, later=False)


def _find_saves(trainer: SaverHost) -> Saves:
    """Return the saves of the run. A loop that a subclass has written has no run, and waits for each save."""
    return Saves() if trainer._run is None else trainer._run.saves


def _show_large_save(trainer: SaverHost, saves: Saves, save: Save) -> AbstractContextManager[Any]:
    """Return a context that shows a large save, for which training waits."""
    large = saves.show is not None and _forecast(trainer, only_model=save.only_model) >= _WORTH_PREPARING
    return saves.show_save(save.target.name) if large else nullcontext()


def _has_write_hooks(trainer: SaverHost) -> bool:
    return trainer.strategy.processes > 1 or any(map(trainer._is_overridden, WRITE_PARTS))


def is_read_immediately(trainer: SaverHost) -> bool:
    """Return whether code other than the library's own may read a checkpoint right after it was saved."""
    handler = trainer.callback_handler
    if any(map(trainer._is_overridden, LOOK_AFTER)):
        return True
    if SaveSettings.of(trainer.args).push_to_hub and trainer._is_overridden("_push_from_checkpoint"):
        return True
    if type(handler) is not CallbackHandler or {"on_save", "call_event"} & vars(handler).keys():
        return True
    ignored = IGNORED["on_save"]
    for callback in handler.callbacks:
        listener = getattr(callback, "on_save", ignored)
        function = getattr(listener, "__func__", listener)
        if function is not ignored and not str(getattr(function, "__module__", "")).startswith(_OURS):
            return True
    return False


def _write_with_hooks(trainer: SaverHost, saves: Saves, save: Save) -> None:
    leads = SaveSettings.of(trainer.args).writes_here
    try:
        with (
            _preset_best(trainer.state, save.best),
            atomic.atomic_directory(save.target, leader=leads, barrier=trainer.strategy.barrier) as directory,
        ):
            save.parts(directory, None)
            if leads:
                trainer._run_directory.claim(directory, save.target)
    except Exception as error:
        _handle_failure(trainer, saves, save, error)
        return
    _record_success(trainer, saves, save)
    if leads and save.tidy is not None:
        save.tidy()


@dataclass(frozen=True)
class _Writing:
    """A directory whose large files are copied first, and written when training goes on.

    Of several processes, one leads: it makes the directory, completes it when the files of all are on the disk, and
    gives it its name.
    """

    trainer: SaverHost
    saves: Saves
    save: Save
    files: Snapshot | WrittenFiles
    leads: bool = True

    def take(self) -> None:
        """Make the directory, and copy what is to be written."""
        with _abandon_on_error(self.save.target):
            atomic.create_scratch(self.save.target)
            self.copy()

    def copy(self) -> None:
        """Copy what is to be written, and write what is small."""
        with _preset_best(self.trainer.state, self.save.best):
            self.save.parts(atomic.find_scratch(self.save.target), self.files)
            self.files.receive()

    def write(self) -> None:
        target = self.save.target
        if not self.leads:
            self.files.write()
            return
        with _abandon_on_error(target):
            self.files.write()
            self.trainer._run_directory.complete(atomic.find_scratch(target), target)
            atomic.seal(target, self.files.sealed)
            if self.saves.is_forgotten:
                atomic.abandon(target)
            elif not os.path.lexists(target):
                atomic.publish(target)

    def start(self, finish: Callable[[BaseException | None], None]) -> None:
        """Write in the background; `finish` is called between two steps."""
        files = self.files
        self.saves.start(self.write, finish, self.save.target.name, lambda: (files.written, files.size))

    def start_together(self) -> None:
        """Write in the background, while other processes do; `share_outcome` tells all how it ended."""
        self.saves.share = partial(_share_outcome, self.trainer, self.saves, self.save)

        def finish(error: BaseException | None) -> None:
            try:
                _raise(error)
                replaced = self.publish() if self.leads else None
            except Exception as failure:
                self.saves.failure_to_share = failure
                return
            if self.leads:
                self.conclude(replaced, later=True)

        self.start(finish)

    def publish(self) -> Path | None:
        """Publish the directory between two steps, not during one: an existing one of that name may be in use."""
        target = self.save.target
        if not atomic.find_scratch(target).exists():
            return None
        with _abandon_on_error(target):
            self.trainer._run_directory.move_other_run(target)
            return atomic.publish(target)

    def conclude(self, replaced: Path | None, *, later: bool) -> None:
        """Do what follows once the directory exists."""
        _record_success(self.trainer, self.saves, self.save)
        tidy = partial(_clean_up, self.save, replaced)
        if later and (replaced or self.save.tidy):
            self.saves.start(tidy, _raise, "tidying")
        else:
            tidy()


def _write_snapshot(trainer: SaverHost, saves: Saves, save: Save, *, later: bool) -> None:
    writing = _Writing(trainer, saves, save, Snapshot(saves.memory if later else None))

    def finish(error: BaseException | None) -> None:
        try:
            _raise(error)
            replaced = writing.publish()
        except Exception as failure:
            _handle_failure(trainer, saves, save, failure)
            return
        writing.conclude(replaced, later=later)

    try:
        writing.take()
        if not later:
            writing.write()
    except Exception as error:
        finish(error)
        return
    if later:
        writing.start(finish)
    else:
        finish(None)


def _write_in_all(trainer: SaverHost, saves: Saves, save: Save) -> None:
    """Let each process write its parts, and flush them to the disk in the background."""
    leads, strategy = _leads(trainer), trainer.strategy
    files = WrittenFiles(atomic.find_scratch(save.target), strategy.open_background_gather())
    writing = _Writing(trainer, saves, save, files, leads=leads)
    for action in (partial(atomic.create_scratch, save.target) if leads else None, writing.copy):
        failure = None if action is None else atomic.catch_error(action)
        if strategy.any(failure is not None):
            if leads:
                atomic.abandon(save.target)
            _handle_failure(trainer, saves, save, failure or atomic.build_other_process_error(save.target))
            return
    writing.start_together()


def _write_in_first(trainer: SaverHost, saves: Saves, save: Save) -> None:
    """Let the first process write in the background; each of the others writes its own, which is small, first."""
    writing = _Writing(trainer, saves, save, Snapshot(saves.memory)) if _leads(trainer) else None
    failure: Exception | None = None
    try:
        if writing is not None:
            writing.take()
    except Exception as error:
        failure = error
    if not (failed := trainer.strategy.any(failure is not None)):
        try:
            if writing is None:
                save.parts(atomic.find_scratch(save.target), write_tensors)
        except Exception as error:
            failure = error
        failed = trainer.strategy.any(failure is not None)
    if failed:
        if writing is not None:
            atomic.abandon(save.target)
        _handle_failure(trainer, saves, save, failure or atomic.build_other_process_error(save.target))
        return
    if writing is None:
        saves.share = partial(_share_outcome, trainer, saves, save)
    else:
        writing.start_together()


def _share_outcome(trainer: SaverHost, saves: Saves, save: Save) -> None:
    """Tell all processes how a save in the background ended."""
    error, saves.failure_to_share = saves.failure_to_share, None
    if trainer.strategy.any(error is not None):
        _handle_failure(trainer, saves, save, error or atomic.build_other_process_error(save.target))
    elif not _leads(trainer):
        _record_success(trainer, saves, save)


def _leads(trainer: SaverHost) -> bool:
    return SaveSettings.of(trainer.args).writes_here


def _can_wait_everywhere(trainer: SaverHost, saves: Saves, save: Save) -> bool:
    """Return whether there are several processes and they may write later; all get the same answer."""
    if trainer.strategy.processes == 1 or SaveSettings.of(trainer.args).on_each_node:
        return False
    is_own = any(map(trainer._is_overridden, WRITE_PARTS)) or is_read_immediately(trainer)
    restarts = trainer._run is not None and trainer._run.options.can_restart
    can_wait = saves.allows_background and trainer.is_in_train and not restarts
    return not trainer.strategy.any(is_own or not can_wait or save.publish is not None)


def _clean_up(save: Save, replaced: Path | None) -> None:
    if replaced is not None:
        atomic.discard_hidden(replaced)
    if save.tidy is not None:
        save.tidy()


@contextmanager
def _abandon_on_error(target: Path) -> Iterator[None]:
    """Delete what was written for `target` if the block fails."""
    try:
        yield
    except BaseException:
        atomic.abandon(target)
        raise


@contextmanager
def _preset_best(state: TrainerState, best: str | None) -> Iterator[None]:
    """Set the state, while entered, to what it will be once the directory exists: this is what is written into it."""
    before, state.best_model_checkpoint = state.best_model_checkpoint, best
    try:
        yield
    finally:
        state.best_model_checkpoint = before


# ---- after a save --------------------------------------------------------------------------------------------------


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
        _raise(run.saves.failure_to_share)
    except Exception as error:
        warn(f"while the last checkpoint was awaited: {error}")


def _record_success(trainer: SaverHost, saves: Saves, save: Save) -> None:
    trainer.state.best_model_checkpoint = save.best
    saves.failure = saves.failed_step = None
    if save.is_best:
        saves.lost_best = None
    if save.publish is not None:
        save.publish()
    run_journal.record_save(
        trainer.callback_handler.callbacks, save.target, save.step, perf_counter() - save.begun, is_best=save.is_best
    )


def _handle_failure(trainer: SaverHost, saves: Saves, save: Save, error: BaseException) -> None:
    """Report a disk that does not accept a checkpoint, so that training continues; raise any other error."""
    if not _is_refusal_everywhere(trainer, error):
        raise error
    refusal = save_errors.build_save_error(save.target, error, needed=_forecast(trainer, only_model=save.only_model))
    saves.failure, saves.failed_step = refusal, save.step
    if save.is_best:
        saves.lost_best = refusal
    if SaveSettings.of(trainer.args).errors == "raise":
        raise refusal from error
    before = None
    with suppress(OSError):
        before = next(reversed(trainer._run_directory.list_checkpoints(save.target.parent)), None)
    warn(save_errors.format_warning(refusal, before))


def _is_refusal_everywhere(trainer: SaverHost, error: BaseException) -> bool:
    """Return whether no process failed for another reason than its disk; all processes get the same answer."""
    refused = is_disk_failure(error)
    if trainer.strategy.processes == 1:
        return refused
    return not trainer.strategy.any(not refused and not isinstance(error, atomic.OtherProcessError))


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
