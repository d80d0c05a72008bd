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

Where to start is not a question here: `run.epochs` and `run.updates` begin where the state left off.
"""

from __future__ import annotations

from ..callbacks.handler import emit
from ..core.protocols import TrainHooks
from .run import Run, Update

AGREE_EVERY = 10  # steps: processes have to ask one another whether to stop, and asking takes time


def train(trainer: TrainHooks, run: Run) -> None:
    """Take optimizer steps until the plan is fulfilled or a callback asks to stop."""
    for epoch in run.epochs(trainer.state):
        emit(trainer, "on_epoch_begin")
        run.refresh_parameters(trainer.model_wrapped)
        for update in run.updates(trainer, epoch):
            emit(trainer, "on_step_begin")
            if not accumulate_gradients(trainer, run, update):
                break
            update_weights(trainer, run, update)
            trainer.state.global_step += 1
            trainer.state.epoch = update.epoch_progress
            emit(trainer, "on_step_end")
            report(trainer, run, epoch)
            if trainer.control.should_epoch_stop or trainer.control.should_training_stop or run.stopping:
                break
        if run.stopping:  # the epoch is not over: a resumed run goes on inside it
            return
        emit(trainer, "on_epoch_end")
        run.place.close_epoch()
        report(trainer, run, epoch)
        if trainer.control.should_training_stop or run.stopping:
            break


def accumulate_gradients(trainer: TrainHooks, run: Run, update: Update) -> bool:
    """Forward and backward over every micro-batch; processes exchange gradients on the last one.

    False if a callback asked to stop in between: the update is given up.
    """
    trainer.current_gradient_accumulation_steps = len(update.batches)
    run.update = update
    for batch, divisor, is_last in update.micro_batches():
        run.current_batch, run.objective.divisor, run.is_last_micro_batch = batch, divisor, is_last
        with trainer.strategy.accumulate(trainer.model_wrapped, sync=is_last):
            loss = trainer.training_step(trainer.model_wrapped, batch, update.num_items)
        run.current_batch = None
        run.meter.hold(loss)
        run.flops.add(batch)
        if not is_last:
            emit(trainer, "on_substep_end")
            if trainer.control.should_epoch_stop or trainer.control.should_training_stop:
                run.meter.held.clear()
                run.clear_gradients()
                return False
    if run.count_tokens is not None:
        run.count_tokens(update.batches)
    return True


def update_weights(trainer: TrainHooks, run: Run, update: Update) -> None:
    """Clip, step, schedule, clear."""
    trainer.precision.unscale(trainer.optimizer)
    run.grad_norm = trainer._clip_grad_norm(trainer.model_wrapped)
    emit(trainer, "on_pre_optimizer_step")
    # A number that is not finite must not reach the weights.
    step_or_skip = trainer.precision.step if run.is_finite(trainer, update) else trainer.precision.skip
    stepped = step_or_skip(trainer.optimizer)
    emit(trainer, "on_optimizer_step")
    run.learning_rate = trainer._get_learning_rate()  # the rate this step used, not the next one's
    if stepped and run.steps_schedule:
        trainer.lr_scheduler.step()
    run.clear_gradients()


def report(trainer: TrainHooks, run: Run, epoch: int) -> None:
    """Log, evaluate and save, if a callback asked for it."""
    if run.saves.landed:
        run.saves.settle()
    control = trainer.control
    if control.should_log or control.should_evaluate or control.should_save or run.report_always:
        trainer._maybe_log_save_evaluate(
            run.meter.pending,
            run.grad_norm,
            trainer.model_wrapped,
            run.trial,
            epoch,
            run.ignore_keys,
            run.started,
            learning_rate=run.learning_rate,
        )
        run.refresh_parameters(trainer.model_wrapped)
    if run.agree_to_stop is not None and trainer.state.global_step % AGREE_EVERY == 0:
        run.agree_to_stop()
