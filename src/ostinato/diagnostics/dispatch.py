"""Explain failures of a trainer's training and evaluation, and check its first batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from ..arguments.settings import BatchSettings, SaveSettings
from ..core import accelerator
from ..core.notices import note_once
from ..core.out_of_memory import is_out_of_memory
from ..core.protocols import Batch
from ..core.tree import has_no_rows
from ..data import columns
from ..data import loader as data_loader
from ..data.batching.split_by_length import PaddingMeter
from ..data.dataset_errors import find_batch_fault
from ..data.empty_batches import describe_empty_batch
from ..data.epoch_position import find_batch_rows
from ..data.mixture import Mixture
from ..data.sizes import is_iterable
from ..engine.run import Run
from ..engine.updates import Update
from ..evaluation import request
from ..evaluation.metric_run import CurrentBatch
from .column_errors import find_left_out_columns
from .context import FailureContext
from .exception_notes import MemorySettings, has_memory_note, note_checkpoint
from .failures import explain_failure
from .hosts import BatchHost
from .late_errors import MAX_QUEUED, Suspect, explain_late_failure
from .metric_errors import explain_evaluation, report_labels
from .model_heads import find_certain_mistake


def check_first_batch(trainer: BatchHost, loader: Any, batch: Batch, epoch: int, number: int) -> None:
    """Raise if the first batch cannot work; note how much of it is padding."""
    if batch is None and (mistake := find_batch_fault(batch, trainer.data_collator)):
        raise mistake
    if epoch == number == 0 and has_no_rows(batch):
        raise describe_empty_batch(loader, "training set", batch, epoch, number)
    mistake = find_certain_mistake(build_context(trainer, batch, loader, "training set", epoch, number))
    if mistake is not None:
        raise mistake
    settings = BatchSettings.of(trainer.args)
    if not (settings.splits_by_length or settings.packs):
        padding = PaddingMeter(batches=1)
        padding.add_batch(batch)
        if advice := padding.advise():
            note_once(f"in the first batch {advice}", key="padding")


def build_context(trainer: BatchHost, batch: Any, loader: Any, data: str, epoch: int, number: int) -> FailureContext:
    """Return what is known of a batch: where it came from and what is done with it."""
    settings = BatchSettings.of(trainer.args)
    return FailureContext(
        model=trainer.model,
        batch=batch,
        data=data,
        label_names=tuple(trainer.label_names),
        rows=partial(find_batch_rows, loader, epoch, range(number, number + 1)),
        left_out=partial(
            find_dropped_columns, loader, trainer._signature_columns or [], removes=settings.removes_columns
        ),
        own_loss=_uses_model_loss(trainer),
        loss_func=trainer.compute_loss_func,
        drops_columns=settings.removes_columns and isinstance(loader, data_loader.Loader),
        gradient_checkpointing=settings.gradient_checkpointing,
        dataset=getattr(loader, "dataset", None),
        collator=trainer.data_collator,
    )


def _uses_model_loss(trainer: BatchHost) -> bool:
    given = trainer.compute_loss_func is not None or trainer.label_smoother is not None
    return not given and not trainer._is_overridden("compute_loss")


def find_dropped_columns(loader: Any, taken: list[str], *, removes: bool) -> list[str]:
    """Return the columns of a data set that do not reach the model."""
    dataset = getattr(loader, "dataset", None)
    if not isinstance(loader, data_loader.Loader) or isinstance(dataset, Mixture):
        return []
    if columns.has_columns(dataset):
        return list(columns.find_removed_columns(dataset))
    return find_left_out_columns(dataset, taken) if removes else []


def explain_training_failure(trainer: BatchHost, error: Exception, run: Run) -> Exception:
    """Return what to raise when training has failed: a named error, or the user's exception with notes."""
    update, reason = run.updates.current, error
    if update is not None and run.step.micro_batch is not None:
        given = list_given_batches(trainer, run, update, run.step.micro_batch.index)
        if accelerator.has_failed(error):
            reason = explain_late_failure(error, given, trainer.compute_loss)
        elif run.step.is_computing or (is_out_of_memory(error) and not has_memory_note(error)):
            failed = given[-1]
            reason = explain_failure(error, failed.context, failed.where, describe_training_memory(trainer))
    checkpoint = find_newest_checkpoint(trainer)
    if checkpoint is not None:
        note_checkpoint(reason, checkpoint)
    return reason


def list_given_batches(trainer: BatchHost, run: Run, update: Update, last: int) -> list[Suspect]:
    """Return the batches that the device was given in this step, up to micro-batch `last`, and in the one before."""
    is_applied = trainer.state.epoch == update.epoch_progress  # the step is counted, and its error comes late
    step, steps = trainer.state.global_step + (0 if is_applied else 1), trainer.state.max_steps
    previous: Update | None = getattr(run.updates, "previous", None)
    given = [(previous, step - 1, len(previous.batches))] if previous is not None else []
    suspects = []
    for one, number, count in [*given, (update, step, last + 1)]:
        for index in range(count):
            at, batch = one.find_batch_number(index), one.batches[index]
            context = build_context(trainer, batch, run.updates.loader, "training set", one.epoch, at)
            suspects.append(Suspect(context, f"at step {number} of {steps}"))
    return suspects


def describe_training_memory(trainer: BatchHost) -> MemorySettings:
    """Return what decides how much memory a training batch takes."""
    settings = BatchSettings.of(trainer.args)
    return MemorySettings(
        trainer._train_batch_size, settings.accumulation, settings.gradient_checkpointing, settings.half_precision
    )


def find_newest_checkpoint(trainer: BatchHost) -> str | None:
    """Return the name of the newest checkpoint of this run that can be resumed from."""
    own = (
        trainer._run_directory.list_checkpoints(trainer._output_path)
        if not SaveSettings.of(trainer.args).only_model
        else []
    )
    return own[-1].name if own else None


def explain_evaluation_failure(
    trainer: BatchHost, error: Exception, current_batch: CurrentBatch, loader: Any, data: str
) -> Exception:
    """Return what to raise when an evaluation or a prediction has failed."""
    if accelerator.has_failed(error):
        suspects = read_evaluated_batches(trainer, current_batch, loader, data)
        return explain_late_failure(error, suspects, trainer.compute_loss)
    return explain_evaluation(
        error,
        build_context(trainer, current_batch.batch, loader, data, 0, current_batch.number),
        doing=current_batch.doing,
        given=current_batch.given,
        functions={"metrics": current_batch.function, "logits": trainer.preprocess_logits_for_metrics},
        number=current_batch.number,
        memory=MemorySettings(BatchSettings.of(trainer.args).eval_batch_size, None),
    )


def read_evaluated_batches(
    trainer: BatchHost, current_batch: CurrentBatch, loader: Any, data: str
) -> Iterator[Suspect]:
    """Yield the last batches that the device was given. They are read again: only the current one is kept."""
    last, first = current_batch.number, max(0, current_batch.number + 1 - MAX_QUEUED)
    batches = islice(data_loader.copy_without_workers(loader), first, last + 1)
    if is_iterable(getattr(loader, "dataset", None)):  # a stream may not begin anew
        batches, first = [current_batch.batch], last
    for number, batch in enumerate(batches, first):
        yield Suspect(build_context(trainer, batch, loader, data, 0, number), f"in batch {number + 1}")


def report_missing_labels(trainer: BatchHost, loader: Any, data: str, batch: Batch) -> None:
    """Raise or note that metrics are wanted and the batches have no labels."""
    by_name = request.get_requested_metrics(trainer, request.read_request(loader).options).function is None
    context = build_context(trainer, batch, loader, data, 0, 0)
    report_labels(context, is_mistake=data != "prediction set", by_name=by_name)


@contextmanager
def explain_evaluation_errors(
    trainer: BatchHost, current_batch: CurrentBatch, loader: Any, data: str
) -> Iterator[None]:
    """Raise a named error for what fails inside the block, or the exception itself with notes on where it happened."""
    try:
        yield
    except Exception as error:
        reason = explain_evaluation_failure(trainer, error, current_batch, loader, data)
        if reason is not error:
            raise reason from reason.__cause__
        raise
