"""The set-up of a run before its first step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ..arguments import usage_errors
from ..arguments.settings import ReportSettings, RunSettings
from ..checkpoint.background import Saves
from ..checkpoint.run_directory import best_of_run
from ..core.logged_numbers import hearing
from ..core.protocols import Batch
from ..core.state import TrainerState
from ..core.timing import TimeLedger
from ..data import loader as data_loader
from ..data.bad_rows import SkippedRows
from ..data.batching.split_by_length import cuts_batches, cuts_updates
from ..data.empty_batches import report_empty_batch
from ..data.epoch_position import rows_of
from ..data.mixture import Mixture
from ..data.mixture_loss import SourceLosses
from ..data.nonfinite_inputs import not_finite
from ..data.row_random import RowStreams
from ..data.sizes import has_length
from ..data.user_loaders import check_equal_batches, is_dealt_out
from ..evaluation import train_metrics
from ..loss.neftune import noisy_embeddings
from ..loss.scale_probe import Scale
from ..optim import schedulers
from . import agreement, resume, run_summary, saver
from .finite_guard import NonFiniteGuard
from .meters import LossMeter, Meters
from .plan import Plan
from .resume_plan import Resumed
from .run import Run, RunOptions
from .run_host import RunHost
from .special_tokens import align_special_tokens
from .updates import UpdateReader
from .utilization import peak_of


def open_run(
    trainer: RunHost,
    checkpoint: str | None,
    trial: Any,
    ignore_keys: list[str] | None,
    while_training: ExitStack,
    inspect: Callable[[Any, Batch, int, int], None],
) -> Run:
    """Build everything that the first step needs: loader, plan, placement, optimizer, schedule, state.

    `inspect` is called with the loader, the first batch, its epoch and its number, before anything is computed from
    it.
    """
    align_special_tokens(trainer.model, trainer.processing_class)
    loader = trainer.get_train_dataloader()
    settings = RunSettings.of(trainer.args)
    if settings.isolate_rng and isinstance(loader, data_loader.Loader):
        loader.row_streams = RowStreams(settings.data_seed, settings.rank)
    plan = plan_for(trainer, loader)
    resumed = None
    if checkpoint is not None and not resume.forks(trainer):
        resumed = resume.read_checkpoint(trainer, checkpoint, plan, loader)
    if resumed is not None:
        plan = resumed.plan
    enable_gradient_checkpointing(trainer)
    while_training.enter_context(noisy_embeddings(trainer.model, trainer.neftune_noise_alpha))
    while_training.enter_context(trainer.precision.forward(trainer.model))
    trainer.model_wrapped = trainer._wrap_model(trainer.model)
    if trainer._created_lr_scheduler:
        trainer.lr_scheduler, trainer._created_lr_scheduler = None, False
    trainer.create_optimizer_and_scheduler(num_training_steps=plan.max_steps)
    trainer.state = opening_state(trainer, plan, resumed, trial)
    saver.check_space(trainer, plan, trial)
    trainer._initial_num_input_tokens_seen = trainer.state.num_input_tokens_seen
    trainer.objective.stated = trainer.loss_is_scaled_for_ga is not None
    trainer.objective.scale = opening_scale(trainer)
    trainer.objective.source = trainer._loss_source()
    trainer.objective.overridden, trainer.objective.is_multiplied = trainer._is_overridden("compute_loss"), False
    trainer._train_window = train_metrics.open_window(trainer)
    ledger = TimeLedger()
    trainer._run = run = Run(
        plan=plan,
        options=RunOptions(
            ReportSettings.of(trainer.args),
            steps_schedule=not schedulers.steps_on_metric(trainer.lr_scheduler),
            report_always=trainer._is_overridden("_maybe_log_save_evaluate"),
            trial=trial,
            ignore_keys=ignore_keys,
            peak_flops=peak_of(trainer),
        ),
        updates=UpdateReader(
            plan,
            loader,
            weigh=trainer._divisors,
            processes=trainer.strategy.size,
            ledger=ledger,
            cuts=cuts_batches(loader),
            skipped=SkippedRows() if settings.skip_bad_rows else None,
            inspect=partial(inspect, loader),
            report_empty=partial(report_empty_batch, loader, "training set"),
            show_skipping=run_summary.skipping(trainer),
        ),
        meters=Meters(
            LossMeter(trainer.strategy.device),
            trainer.objective,
            trainer._flop_counter(),
            count_tokens=counting_tokens(trainer),
            sources=source_losses(trainer, loader),
            window=trainer._train_window,
            counts_for_all=trainer.is_world_process_zero(),
        ),
        guard=NonFiniteGuard(
            patience=settings.nonfinite_patience,
            rows_of=partial(rows_of, loader),
            blame=not_finite,
            judges_loss=trainer.strategy.size == 1,
        ),
        saves=Saves(run_summary.saving(trainer)),
        ledger=ledger,
    )
    while_training.enter_context(hearing(run.meters.tracked))
    if resumed is not None:
        resume.resume(trainer, resumed, run)
    elif checkpoint is not None:
        resume.fork(trainer, checkpoint, run)
    run.origin.step = trainer.state.global_step
    handler = trainer.callback_handler
    handler.model, handler.train_dataloader = trainer.model, loader
    handler.optimizer, handler.lr_scheduler = trainer.optimizer, trainer.lr_scheduler
    trainer.model_wrapped.zero_grad()
    trainer.model_wrapped.train()  # always: its flag may be set although parts loaded for inference are in eval mode
    run_summary.attach_progress(trainer, run)
    agreement.attach_control_file(trainer, run)
    return run


def counting_tokens(trainer: RunHost) -> Callable[[list[Batch]], None] | None:
    """Return a function that counts the input tokens of an update; None if they are not counted."""
    if not RunSettings.of(trainer.args).counts_tokens:
        return None
    count, alone = trainer._token_counter(), trainer.strategy.size == 1

    def each(batches: list[Batch]) -> None:
        for batch in batches:
            trainer._track_num_input_tokens(batch)

    def together(batches: list[Batch]) -> None:
        # Summed first: processes may split their batches into different numbers of micro-batches.
        own = sum(map(count, batches))
        trainer.state.num_input_tokens_seen += own if alone else int(trainer.strategy.sum(torch.tensor(own)))

    return each if trainer._is_overridden("_track_num_input_tokens") else together


def source_losses(trainer: RunHost, loader: Any) -> SourceLosses | None:
    """Return the meter for the losses of each set of a mixture; None without a mixture."""
    mixture = getattr(loader, "dataset", None)
    return SourceLosses(mixture.sets, trainer.strategy.device) if isinstance(mixture, Mixture) else None


def opening_scale(trainer: RunHost) -> Scale:
    """Return the scale of the loss as far as it is known before the first forward."""
    if trainer.loss_is_scaled_for_ga is not None:
        return "share" if trainer.loss_is_scaled_for_ga else "mean"
    return "unknown" if trainer._loss_signature().takes_num_items else "mean"


def plan_for(trainer: RunHost, loader: Any) -> Plan:
    """Return the plan for a loader: the number of steps, and their batches."""
    settings, batches = RunSettings.of(trainer.args), len(loader) if has_length(loader) else None
    if batches is None and settings.max_steps <= 0:
        raise usage_errors.no_number_of_batches(loader)
    if (
        batches is not None
        and trainer.strategy.size > 1
        and (has_own_batches(trainer, loader) or trainer.sampler is not None)
    ):
        check_equal_batches(batches, trainer.strategy.sum, trainer.strategy.size)
    return Plan.for_length(
        batches,
        epochs=settings.epochs,
        max_steps=settings.max_steps,
        accumulation=1 if cuts_updates(loader) else settings.accumulation,
        max_grad_norm=settings.max_grad_norm,
        rows_per_update=rows_per_update(trainer, loader, batches),
        rows_per_epoch=rows_per_epoch(trainer, loader) if batches is not None else None,
        varying=getattr(loader, "batches_in", None),
    )


def has_own_batches(trainer: RunHost, loader: Any) -> bool:
    """Return whether batches are the user's, or hold as many rows as fit, instead of a fixed number of rows."""
    own = trainer.batch_sampler is not None or RunSettings.of(trainer.args).max_tokens_per_batch is not None
    return own or loader is trainer.train_dataset


def rows_per_epoch(trainer: RunHost, loader: Any) -> int:
    """Return the number of rows in one epoch."""
    if trainer.sampler is not None and not is_dealt_out(trainer.sampler):
        return len(trainer.sampler)
    return trainer.num_examples(loader)


def rows_per_update(trainer: RunHost, loader: Any, batches: int | None) -> int:
    """Return the number of rows of one optimizer step; the average, if batches differ."""
    if not batches or not has_own_batches(trainer, loader):
        return trainer.get_total_train_batch_size(trainer.args)
    return round(rows_per_epoch(trainer, loader) / batches * RunSettings.of(trainer.args).accumulation)


def opening_state(trainer: RunHost, plan: Plan, resumed: Resumed | None, trial: Any) -> TrainerState:
    """Return a new state, or the one in a checkpoint."""
    state = TrainerState(stateful_callbacks=trainer._callback_states()) if resumed is None else resumed.state
    if resumed is not None and state.best_model_checkpoint is not None:
        state.best_model_checkpoint = best_of_run(resumed.checkpoint, state.best_model_checkpoint)
    state.train_batch_size = trainer._train_batch_size
    state.is_hyper_param_search = trial is not None
    state.compute_steps(trainer.args, plan.max_steps)
    state.init_training_references(trainer, plan.max_steps, plan.epochs, trial)
    if state.epoch is None:
        state.epoch = 0
    return state


def enable_gradient_checkpointing(trainer: RunHost) -> None:
    """Enable the recomputation of activations in the backward pass, if requested."""
    settings = RunSettings.of(trainer.args)
    if not settings.gradient_checkpointing:
        return
    enable = getattr(trainer.model, "gradient_checkpointing_enable", None)
    if not callable(enable):
        raise usage_errors.no_gradient_checkpointing(trainer.model)
    enable(gradient_checkpointing_kwargs=settings.gradient_checkpointing_kwargs)
