"""The training loop. Start reading here.

    on_train_begin
    for each epoch still to do:
        on_epoch_begin
        for each update (the micro-batches of one optimizer step):
            on_step_begin
            for each micro-batch: forward, backward          on_substep_end in between
            clip                                             on_pre_optimizer_step
            optimizer step                                   on_optimizer_step
            schedule step, clear gradients                   on_step_end
            log, evaluate, save if asked                     on_log, on_evaluate, on_save
        on_epoch_end
        log, evaluate, save if asked

The loop does not decide where to start: `run.epochs` and `run.updates` begin where the state left off.
"""

from __future__ import annotations

from ..callbacks.handler import emit
from ..core.protocols import TrainHooks
from . import guarded_step
from .batch_size_search import RestartPoint
from .report import log_save_evaluate
from .run import Run
from .step_weights import correct_weight
from .updates import Update


def train(trainer: TrainHooks, run: Run) -> None:
    """Take optimizer steps until the plan is complete or a callback requests a stop."""
    for epoch in run.epochs(trainer.state):
        emit(trainer, "on_epoch_begin")
        run.parameters.refresh(trainer.model_wrapped)
        for update in run.updates.read(trainer, epoch):
            emit(trainer, "on_step_begin")
            if not accumulate_gradients(trainer, run, update):
                break
            update_weights(trainer, run, update)
            trainer.state.global_step += 1
            trainer.state.epoch = update.epoch_progress
            end_step(trainer, run)
            report(trainer, run, epoch)
            if trainer.control.should_epoch_stop or trainer.control.should_training_stop or run.stop.stopping:
                break
        if run.stop.stopping:  # the epoch is not over: a resumed run continues inside it
            break
        emit(trainer, "on_epoch_end")
        run.updates.position.close_epoch()
        report(trainer, run, epoch)
        if trainer.control.should_training_stop or run.stop.stopping:
            break
    run.step.settle()


def accumulate_gradients(trainer: TrainHooks, run: Run, update: Update) -> bool:
    """Run forward and backward for every micro-batch; processes exchange gradients on the last one.

    Return False if a callback requested a stop in between: the update is then discarded.
    """
    trainer.current_gradient_accumulation_steps = len(update.batches)
    run.updates.begin(update)
    count = (update.num_items,) if run.options.step_takes_count else ()
    for micro_batch, inputs in zip(update.micro_batches(), run.transfer.stay_ahead(update.batches), strict=True):
        run.step.micro_batch, run.step.is_computing = micro_batch, True
        with trainer.strategy.accumulate(trainer.model_wrapped, sync=micro_batch.is_last):
            loss = trainer.training_step(trainer.model_wrapped, inputs, *count)
        run.step.is_computing = False
        run.meters.loss.hold(loss)
        run.meters.flops.add(micro_batch.batch)
        if not micro_batch.is_last:
            emit(trainer, "on_substep_end")
            if trainer.control.should_epoch_stop or trainer.control.should_training_stop:
                run.meters.loss.held.clear()
                run.parameters.clear_gradients()
                return False
    if run.updates.weights.ballot is not None:
        trainer.model_wrapped = trainer.strategy.finish_backward(trainer.model_wrapped)
    if run.meters.count_tokens is not None:
        run.meters.count_tokens(update)
    return True


def update_weights(trainer: TrainHooks, run: Run, update: Update) -> None:
    """Clip gradients, take the optimizer step, step the schedule, and clear gradients."""
    run.step.settle()  # the update before, while the device computes the gradients of this one
    trainer.precision.unscale(trainer.optimizer)
    if run.updates.weights.ballot is not None:
        correct_weight(run.updates.weights.ballot, run.parameters.list_gradients(), run.meters.loss.held)
    run.step.grad_norm = trainer._clip_grad_norm(trainer.model_wrapped)
    emit(trainer, "on_pre_optimizer_step")
    outcome = guarded_step.take_step(trainer, run, update)
    emit(trainer, "on_optimizer_step")
    run.step.learning_rate = trainer._get_learning_rate()  # before the schedule steps
    if run.options.steps_schedule:
        outcome.step_schedule(trainer.lr_scheduler)
    run.parameters.clear_gradients()


def end_step(trainer: TrainHooks, run: Run) -> None:
    """Tell callbacks that a step was taken; memory that runs out there does not undo it (`auto_find_batch_size`)."""
    if run.options.can_restart:
        run.step.settle()
        run.restart_point = RestartPoint.of(trainer, run)
    run.step.is_ending = True
    emit(trainer, "on_step_end")
    run.step.is_ending = False


def report(trainer: TrainHooks, run: Run, epoch: int) -> None:
    """Log, evaluate and save, if a callback requested it."""
    if run.saves.landed:
        run.saves.settle()
    control = trainer.control
    if run.options.report_always or run.options.can_restart:
        run.step.settle()
    if control.should_log or control.should_evaluate or control.should_save or run.options.report_always:
        log_save_evaluate(trainer, run, epoch)
        run.parameters.refresh(trainer.model_wrapped)
    if run.stop.follow is not None:
        run.stop.follow()
    if run.options.can_restart:
        run.restart_point = RestartPoint.of(trainer, run)
