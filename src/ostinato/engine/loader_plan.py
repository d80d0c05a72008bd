"""The plan of a run, computed from its loader."""

from __future__ import annotations

from typing import Any

from ..arguments import usage_errors
from ..arguments.settings import RunSettings
from ..data.batching.split_by_length import splits_steps
from ..data.sizes import has_length
from ..data.user_loaders import check_equal_batches, is_sharded
from .plan import Plan
from .run_host import LengthHost


def plan_run(trainer: LengthHost, loader: Any) -> Plan:
    """Return the plan for a loader: the number of steps, and their batches."""
    settings, batches = RunSettings.of(trainer.args), len(loader) if has_length(loader) else None
    if batches is None and settings.max_steps <= 0:
        raise usage_errors.unknown_number_of_batches(loader)
    chooses_rows = has_own_batches(trainer, loader) or trainer.sampler is not None
    if batches is not None and trainer.strategy.size > 1 and chooses_rows:
        check_equal_batches(batches, trainer.strategy.sum, trainer.strategy.size)
    return Plan.for_length(
        batches,
        epochs=settings.epochs,
        max_steps=settings.max_steps,
        accumulation=1 if splits_steps(loader) else settings.accumulation,
        max_grad_norm=settings.max_grad_norm,
        rows_per_update=count_rows_per_update(trainer, loader, batches),
        rows_per_epoch=count_rows_per_epoch(trainer, loader) if batches is not None else None,
        varying=getattr(loader, "batches_in", None),
    )


def has_own_batches(trainer: LengthHost, loader: Any) -> bool:
    """Return whether batches are the user's, or hold as many rows as fit, instead of a fixed number of rows."""
    own = trainer.batch_sampler is not None or RunSettings.of(trainer.args).max_tokens_per_batch is not None
    return own or loader is trainer.train_dataset


def count_rows_per_epoch(trainer: LengthHost, loader: Any) -> int:
    """Return the number of rows in one epoch."""
    if trainer.sampler is not None and not is_sharded(trainer.sampler):
        return len(trainer.sampler)
    return trainer.num_examples(loader)


def count_rows_per_update(trainer: LengthHost, loader: Any, batches: int | None) -> int:
    """Return the number of rows of one optimizer step; the average, if batches differ."""
    if not batches or not has_own_batches(trainer, loader):
        return trainer.get_total_train_batch_size(trainer.args)
    return round(count_rows_per_epoch(trainer, loader) / batches * RunSettings.of(trainer.args).accumulation)
