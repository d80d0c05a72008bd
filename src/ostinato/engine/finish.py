"""The end of a run: final numbers, the best model, the last event."""

from __future__ import annotations

import time

import torch

from ..callbacks.handler import emit
from ..core.notices import note
from ..core.outputs import TrainOutput
from ..core.timing import speed_metrics
from ..optim import schedule_free
from .run import Run
from .run_host import FinishHost


def finish(trainer: FinishHost, run: Run) -> TrainOutput:
    """Compute the final numbers, load the best model if requested, log, and emit `on_train_end`."""
    run.saves.wait()
    run.saves.agree()
    schedule_free.end_training(trainer.optimizer)
    if run.options.settings.load_best_at_end and trainer.state.best_model_checkpoint is not None:
        trainer._load_best_model()
    train_loss = compute_mean_loss(
        run, trainer.state.global_step, keep_bad=run.options.settings.nonfinite_in_train_loss
    )
    steps = trainer.state.global_step - run.origin.step  # of this call, as the time is: a resumed run did the rest
    rows = round(run.plan.rows * steps / max(run.plan.max_steps, 1))
    metrics = speed_metrics("train", run.started, num_samples=rows, num_steps=steps, now=time.time())
    trainer.store_flos()
    metrics["total_flos"] = trainer.state.total_flos
    metrics["train_loss"] = train_loss
    trainer._memory_tracker.stop_and_update_metrics(metrics)
    if run.updates.skipped is not None and (line := run.updates.skipped.summarize()):
        note(line)
    empty = int(trainer.strategy.sum(torch.tensor(run.updates.empty_batches)))  # the first process reports for all
    if empty:
        note(f"batches without rows, which counted for nothing: {empty}")
    if run.guard.overflows:
        note(
            f"fp16: {run.guard.overflows} of {trainer.state.global_step} updates were skipped, as gradients overflowed"
        )
    trainer.is_in_train = False
    trainer.log(metrics)
    emit(trainer, "on_train_end")
    unsaved = run.saves.build_unsaved_error(wants_best=run.options.settings.load_best_at_end)
    if unsaved is not None:
        raise unsaved
    return TrainOutput(trainer.state.global_step, train_loss, metrics)


def compute_mean_loss(run: Run, steps: int, *, keep_bad: bool) -> float:
    """Return the mean loss over all steps. Skipped steps make it NaN with `keep_bad`, and are left out otherwise."""
    if keep_bad and run.guard.refused:
        return float("nan")
    finite = steps - run.guard.refused - run.meters.steps_without_loss
    return (run.meters.loss.total + run.meters.loss.pending.item()) / max(finite, 0.001)
