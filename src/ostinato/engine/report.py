"""The work after a step: logs, evaluation, checkpoints."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..arguments.settings import ReportSettings
from ..callbacks.handler import emit
from ..core import accelerator
from ..core.calls import fit_arguments, takes
from ..core.host_copy import HostCopy
from ..core.protocols import ReportHooks, TrainHooks
from ..core.random import isolate
from ..core.stop_request import Interrupted
from .run import InterruptedEvaluation, Run
from .run_host import OwnLoopHost


def report_step(
    trainer: ReportHooks,
    run: Run,
    tr_loss: Tensor,
    grad_norm: Tensor | float | None,
    model: nn.Module,
    learning_rate: float | None,
) -> None:
    """Carry out the control's requests, in the order log, evaluate, save."""
    if trainer.control.should_log and trainer.state.global_step > run.meters.loss.last_step:
        log(trainer, collect_logs(trainer, run, tr_loss, grad_norm, learning_rate), run.started)
    if trainer.control.should_evaluate:
        evaluate_step(trainer, run, model)
    if trainer.control.should_save:
        save_step(trainer, run, model)


def log(trainer: ReportHooks, logs: dict[str, float], started: float) -> None:
    """Call the method that logs. Until transformers 4.46, it had no parameter for the start of the run."""
    trainer.log(*fit_arguments(trainer.log, logs, started))


def log_save_evaluate(trainer: TrainHooks, run: Run, epoch: int) -> None:
    """Call the method that reports. Until transformers 4.50, it had no parameter for the learning rate."""
    loss, norm, options = run.meters.loss.pending, run.step.grad_norm, run.options
    numbers = (loss, norm, trainer.model_wrapped, options.trial, epoch, options.ignore_keys, run.started)
    rate = {"learning_rate": run.step.learning_rate}
    if takes(trainer._maybe_log_save_evaluate, *numbers, **rate):
        trainer._maybe_log_save_evaluate(*numbers, **rate)
    else:
        trainer._maybe_log_save_evaluate(*numbers)


def report_own_step(
    trainer: OwnLoopHost,
    tr_loss: Tensor,
    grad_norm: Tensor | float | None,
    model: nn.Module,
    trial: Any,
    ignore_keys: list[str] | None,
    started: float,
    learning_rate: float | None,
) -> None:
    """Do the same in a loop that a subclass has written, where there is no run.

    `tr_loss` is the sum of the losses since the last log, and is emptied.
    """
    control, meter, step = trainer.control, trainer._loss_meter, trainer.state.global_step
    if control.should_log and step > meter.last_step:
        tr_loss = tr_loss.detach()
        logs = {"loss": meter.drain(tr_loss, float(trainer.strategy.mean(tr_loss)), step)}
        if grad_norm is not None:
            logs["grad_norm"] = float(grad_norm)
        logs["learning_rate"] = learning_rate if learning_rate is not None else trainer._get_learning_rate()
        trainer.store_flos()
        log(trainer, logs, started)
    if control.should_evaluate:
        metrics = trainer._evaluate(trial, ignore_keys)
        is_new_best = trainer._determine_best_metric(metrics=metrics, trial=trial)
        if ReportSettings.of(trainer.args).best_decides_saving:
            control.should_save = is_new_best
    if control.should_save:
        trainer._save_checkpoint(model, trial)
        emit(trainer, "on_save")


def collect_logs(
    trainer: ReportHooks, run: Run, tr_loss: Tensor, grad_norm: Tensor | float | None, learning_rate: float | None
) -> dict[str, float]:
    """Return the numbers of the steps since the last log."""
    run.step.settle()
    meters, mean = run.meters, trainer.strategy.mean
    meters.tracked.begin_read()
    # All numbers leave the device before the first is read: there is one wait.
    by_source = None if meters.sources is None else mean(meters.sources.pending)
    leaving = HostCopy([mean(tr_loss), grad_norm, by_source])
    tracked = meters.tracked.drain(trainer.strategy.gather_objects)
    amount, norm, by_source = leaving.get()
    logs = {"loss": meters.loss.drain(tr_loss, float(amount), trainer.state.global_step)}
    if meters.sources is not None:
        losses = meters.sources.drain(lambda pending: by_source)
        logs.update({f"loss_{name}": each.loss for name, each in losses.items()})
    logs.update(tracked)
    if norm is not None:
        logs["grad_norm"] = float(norm)
    logs["learning_rate"] = learning_rate if learning_rate is not None else trainer._get_learning_rate()
    if run.meters.window is not None:
        logs.update(run.meters.window.drain(trainer.strategy.gather_objects if run.updates.processes > 1 else None))
    return logs


def evaluate_step(trainer: ReportHooks, run: Run, model: nn.Module) -> None:
    """Evaluate and record the best metric. If the evaluation fails, a checkpoint that was due is still written."""
    run.step.settle()
    try:
        with isolate(enabled=run.options.settings.isolate_rng), run.ledger.measure("evaluation"):
            metrics = trainer._evaluate(run.options.trial, run.options.ignore_keys)
        with run.saves.allow_background():
            is_new_best = trainer._determine_best_metric(metrics=metrics, trial=run.options.trial)
    except Interrupted:
        run.origin.interrupted_evaluation = InterruptedEvaluation(save=trainer.control.should_save)
        raise
    except Exception as error:
        is_due = trainer.control.should_save and not run.options.settings.best_decides_saving
        if is_due and not accelerator.follows_failure(error):  # else there are no weights to read
            save_step(trainer, run, model)
        raise
    if run.options.settings.best_decides_saving:
        trainer.control.should_save = is_new_best


def evaluate_at_start(trainer: ReportHooks, run: Run) -> None:
    """Evaluate before the first step, if requested, or if the run was stopped inside an evaluation."""
    if run.options.settings.evaluates_first:
        with isolate(enabled=run.options.settings.isolate_rng), run.ledger.measure("evaluation"):
            trainer._evaluate(run.options.trial, run.options.ignore_keys, skip_scheduler=True)
    if run.origin.interrupted_evaluation is not None:
        interrupted_evaluation, run.origin.interrupted_evaluation = run.origin.interrupted_evaluation, None
        trainer.control.should_evaluate, trainer.control.should_save = True, interrupted_evaluation.save
        report_step(trainer, run, run.meters.loss.pending, None, trainer.model_wrapped, None)
        run.stop.is_over = trainer.control.should_training_stop


def save_step(trainer: ReportHooks, run: Run, model: nn.Module) -> None:
    """Write a checkpoint, or begin to, and emit `on_save`; no event follows if the disk did not accept it."""
    run.step.settle()
    with (
        isolate(enabled=run.options.settings.isolate_rng),
        run.ledger.measure("saving"),
        run.saves.allow_background(),
    ):
        run.saves.make_room()
        trainer._save_checkpoint(model, run.options.trial)
    if run.saves.failed_step is None:
        emit(trainer, "on_save")
    else:
        trainer.control.should_save = False
