"""How a directory of a run is written: a checkpoint, or the best weights.

A save takes one of three ways. *Later*: the tensors are copied, and written while training continues; of several
processes the first does this, or each does it with its parts if the model is divided. *Now*: the directory is read
next, so they are written first. *By hooks*: a method that writes a part is overridden, or several processes write now,
and every part is written by its method. The files are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..arguments.settings import SaveSettings
from ..callbacks.events import IGNORED
from ..callbacks.handler import CallbackHandler
from ..checkpoint import atomic
from ..checkpoint.background import Saves
from ..checkpoint.snapshot import Snapshot
from ..checkpoint.tensors import write_tensors
from ..checkpoint.written_files import WrittenFiles
from ..core.state import TrainerState
from .run_host import SaverHost
from .save_outcome import (
    WORTH_PREPARING,
    Save,
    find_saves,
    forecast_save,
    handle_failure,
    raise_if_failed,
    record_success,
    share_outcome,
    writes_here,
)

WRITE_PARTS = ("save_model", "_save", "_save_optimizer_and_scheduler", "_save_scaler", "_save_rng_state")
LOOK_AFTER = ("_save_checkpoint", "_maybe_log_save_evaluate", "_determine_best_metric")
# Packages whose callbacks do not read the files of a checkpoint in `on_save`.
_OURS = tuple(f"{__name__.partition('.')[0]}.{room}." for room in ("callbacks", "progress", "journal"))


def execute_save(trainer: SaverHost, save: Save) -> None:
    """Write a directory, or begin to. A disk that does not accept it is reported as `save_errors` says."""
    saves = find_saves(trainer)
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


def _show_large_save(trainer: SaverHost, saves: Saves, save: Save) -> AbstractContextManager[Any]:
    """Return a context that shows a large save, for which training waits."""
    large = saves.show is not None and forecast_save(trainer, only_model=save.only_model) >= WORTH_PREPARING
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
        handle_failure(trainer, saves, save, error)
        return
    record_success(trainer, saves, save)
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
        self.saves.share = partial(share_outcome, self.trainer, self.saves, self.save)

        def finish(error: BaseException | None) -> None:
            try:
                raise_if_failed(error)
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
        record_success(self.trainer, self.saves, self.save)
        tidy = partial(_clean_up, self.save, replaced)
        if later and (replaced or self.save.tidy):
            self.saves.start(tidy, raise_if_failed, "tidying")
        else:
            tidy()


def _write_snapshot(trainer: SaverHost, saves: Saves, save: Save, *, later: bool) -> None:
    writing = _Writing(trainer, saves, save, Snapshot(saves.memory if later else None))

    def finish(error: BaseException | None) -> None:
        try:
            raise_if_failed(error)
            replaced = writing.publish()
        except Exception as failure:
            handle_failure(trainer, saves, save, failure)
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
    leads, strategy = writes_here(trainer), trainer.strategy
    files = WrittenFiles(atomic.find_scratch(save.target), strategy.open_background_gather())
    writing = _Writing(trainer, saves, save, files, leads=leads)
    for action in (partial(atomic.create_scratch, save.target) if leads else None, writing.copy):
        failure = None if action is None else atomic.catch_error(action)
        if strategy.any(failure is not None):
            if leads:
                atomic.abandon(save.target)
            handle_failure(trainer, saves, save, failure or atomic.build_other_process_error(save.target))
            return
    writing.start_together()


def _write_in_first(trainer: SaverHost, saves: Saves, save: Save) -> None:
    """Let the first process write in the background; each of the others writes its own, which is small, first."""
    writing = _Writing(trainer, saves, save, Snapshot(saves.memory)) if writes_here(trainer) else None
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
        handle_failure(trainer, saves, save, failure or atomic.build_other_process_error(save.target))
        return
    if writing is None:
        saves.share = partial(share_outcome, trainer, saves, save)
    else:
        writing.start_together()


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
