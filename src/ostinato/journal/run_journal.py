"""Open and close the journal of a trainer's run, and write its report afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..arguments.describe import describe_arguments
from ..arguments.settings import JournalSettings
from ..core.notices import listen_to_notices, warn
from ..core.protocols import JournalHost
from ..core.tree import has_length
from ..data.columns import has_columns
from ..data.eval_set import unwrap_eval_set
from .environment import MemoryGauge, describe_command, describe_environment, find_code_version
from .journal_callback import JournalCallback


def find_journal(callbacks: Sequence[Any]) -> JournalCallback | None:
    """Return the journal among the callbacks, if there is one."""
    return next((callback for callback in callbacks if isinstance(callback, JournalCallback)), None)


@contextmanager
def write_journal(
    trainer: JournalHost, trial: Any, checkpoint: str | None, write_page: Callable[..., Any]
) -> Iterator[None]:
    """Record the run inside, also how it fails; then write its report."""
    journal = find_journal(trainer.callback_handler.callbacks)
    if journal is None or not trainer.is_world_process_zero():
        yield
        return
    view = _RunView(trainer, Path(trainer._get_output_dir(trial)), checkpoint)
    journal.open(view)
    try:
        with listen_to_notices(journal.record_notice):
            try:
                yield
            except BaseException as error:
                journal.record_failure(error, trainer.state.global_step)
                raise
    finally:
        journal.close()
        if JournalSettings.of(trainer.args).writes_report and journal.has_begun and not view.is_abandoned:
            _try_to_write_page(write_page, view.directory, view.run_id)


def _try_to_write_page(write_page: Callable[..., Any], directory: Path, run_id: str) -> None:
    """Write the report of the run from its journal; warn if that fails."""
    try:
        write_page(directory, run_id=run_id)
    except Exception as error:
        warn(f"the report of the run could not be written: {error}")


def record_save(callbacks: Sequence[Any], target: Path, step: int, seconds: float, *, is_best: bool) -> None:
    """Record that a checkpoint or the best weights are complete on the disk."""
    journal = find_journal(callbacks)
    if journal is not None:
        journal.record_save(target.name, step, _measure_size(target), seconds, is_best=is_best)


def _measure_size(directory: Path) -> int:
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:  # it may be deleted already
        return 0


class _RunView:
    """What a journal reads from a run, through its trainer."""

    def __init__(self, trainer: JournalHost, directory: Path, checkpoint: str | None) -> None:
        self.trainer, self.directory, self.checkpoint = trainer, directory, checkpoint
        self.run_id = trainer._run_directory.run_id
        self.gauge = MemoryGauge(trainer.strategy.device)

    @property
    def run(self) -> Any:
        """The run; None in a loop that a subclass has written."""
        return self.trainer._run

    @property
    def is_abandoned(self) -> bool:
        """Whether the user pressed Ctrl-C twice: then nothing is waited for."""
        return self.trainer._run is not None and self.trainer._run.saves.is_forgotten

    def describe_start(self) -> dict[str, Any]:
        """Return all that is known before the first step."""
        trainer, run = self.trainer, self.run
        arguments, settings = describe_arguments(trainer.args), JournalSettings.of(trainer.args)
        return {
            "name": settings.run_name or self.directory.name or str(self.directory),
            "resumed_from": self._describe_origin(),
            "forked_from": None if run is None else run.origin.forked_from,
            "arguments": {one.name: one.value for one in arguments},
            "origins": {one.name: str(one.origin) for one in arguments if one.origin.kind != "default"},
            "plan": self._describe_plan(settings),
            "environment": describe_environment(trainer.strategy.device),
            "processes": settings.world_size,
            "command": describe_command(),
            "code": find_code_version(),
        }

    def _describe_origin(self) -> dict[str, Any] | None:
        run = self.run
        if self.checkpoint is None or run is None or run.origin.forked_from is not None:
            return None
        return {"step": run.origin.step, "checkpoint": Path(self.checkpoint).name}

    def _describe_plan(self, settings: JournalSettings) -> dict[str, Any]:
        trainer, plan = self.trainer, None if self.run is None else self.run.plan
        parameters = list(trainer.model.parameters())
        train, evaluated = trainer.train_dataset, trainer.eval_dataset
        sets = evaluated if isinstance(evaluated, dict) else {"eval": evaluated}
        columns = trainer.model_columns() if has_columns(train) else None  # of others a row would have to be read
        return {
            "model": trainer._model_name,
            "parameters": sum(one.numel() for one in parameters),
            "trainable": sum(one.numel() for one in parameters if one.requires_grad),
            "precision": settings.mixed_precision,
            "steps": trainer.state.max_steps if plan is None else plan.max_steps,
            "epochs": settings.epochs,
            "batches_per_epoch": None if plan is None else plan.batches_per_epoch,
            "accumulation": None if plan is None else plan.accumulation,
            "rows_per_step": trainer.get_total_train_batch_size(trainer.args),
            "train_rows": _count_rows(train),
            "eval_rows": {
                name: len(one) if has_length(one) else None for name, one in sets.items() if one is not None
            },
            "metric": settings.metric,
            "greater_is_better": settings.greater_is_better,
            "columns": None if columns is None else columns.kept,
            "columns_left_out": None if columns is None else columns.left_out,
        }

    def read_seconds(self) -> dict[str, float]:
        """Return the seconds spent so far, by purpose."""
        return {} if self.run is None else self.run.ledger.seconds()

    def read_memory(self) -> dict[str, int]:
        """Return the bytes in use."""
        return self.gauge.read()

    def read_coverage(self) -> dict[str, Any]:
        """Return how many rows of the current epoch are done, if that is known."""
        run = self.run
        if run is None:
            return {}
        counted = {
            "epoch": run.updates.position.epoch,
            "done": run.updates.position.row,
            "of": _count_rows(self.trainer.train_dataset),
        }
        return {
            **counted,
            "batches": run.updates.position.batch,
            "skipped": len(run.updates.skipped.reasons) if run.updates.skipped is not None else 0,
        }


def _count_rows(dataset: Any) -> int | None:
    dataset = unwrap_eval_set(dataset)
    return len(dataset) if has_length(dataset) else None
