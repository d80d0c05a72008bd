"""The set-up of a run before its first step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ..arguments import usage_errors
from ..arguments.settings import ReportSettings, RunSettings
from ..checkpoint.background import Saves
from ..checkpoint.run_directory import find_best_model
from ..core import accelerator
from ..core.calls import takes
from ..core.logged_numbers import collect_numbers
from ..core.protocols import Batch
from ..core.state import TrainerState
from ..core.timing import TimeLedger
from ..data import loader as data_loader
from ..data.bad_rows import SkippedRows
from ..data.batching.split_by_length import splits_batches
from ..data.empty_batches import report_empty_batch
from ..data.epoch_position import find_batch_rows
from ..data.mixture import Mixture
from ..data.mixture_loss import SourceLosses
from ..data.nonfinite_inputs import describe_nonfinite_inputs
from ..data.row_random import RowStreams
from ..evaluation import train_metrics
from ..loss.neftune import add_embedding_noise
from ..loss.scale_probe import Scale
from ..optim import schedulers
from ..optim.hidden_state import show_hidden_state
from ..strategies.batch_transfer import BatchTransfer
from . import agreement, resume, run_summary, saver, utilization
from .ballot import Ballot
from .batch_size_search import Restart
from .finite_guard import NonFiniteGuard
from .liger_kernels import apply_liger_kernels
from .loader_plan import plan_run
from .meters import LossMeter, Meters
from .module_watch import watch_modules
from .plan import Plan
from .resume_plan import Resumed
from .run import Run, RunOptions
from .run_host import MeterHost, ModelHost, ObjectiveHost, RunHost
from .special_tokens import align_special_tokens
from .step_weights import StepWeights
from .updates import Update, UpdateReader


def open_run(
    trainer: RunHost,
    checkpoint: str | None,
    trial: Any,
    ignore_keys: list[str] | None,
    while_training: ExitStack,
    inspect: Callable[[Any, Batch, int, int], None],
    restart: Restart | None = None,
) -> Run:
    """Build everything that the first step needs: loader, plan, placement, optimizer, schedule, state.

    `inspect` is called with the loader, the first batch, its epoch and its number, before anything is computed from
    it. With `restart`, the run continues one that failed in this process.
    """
    align_special_tokens(trainer.model, trainer.processing_class)
    loader = open_loader(trainer)
    plan, resumed = plan_run(trainer, loader), None
    if restart is not None:
        resumed = restart.plan_rest(trainer, plan, loader)
    elif checkpoint is not None and not resume.is_fork(trainer._resume_mode):
        resumed = resume.read_checkpoint(trainer, checkpoint, plan, loader)
    plan = plan if resumed is None else resumed.plan
    trainer.strategy.has_unused = resumed is not None and bool(resumed.progress.get("has_unused"))
    prepare_model(trainer, while_training)
    if RunSettings.of(trainer.args).watches_modules:
        while_training.enter_context(watch_modules(trainer.model, partial(describe_position, trainer)))
    prepare_optimizer(trainer, plan)
    trainer.state = open_state(trainer, plan, resumed, trial)
    trainer._initial_num_input_tokens_seen = trainer.state.num_input_tokens_seen
    saver.check_space(trainer, plan, trial)
    prepare_objective(trainer)
    trainer._train_window = train_metrics.open_window(trainer)
    trainer._run = run = build_run(trainer, loader, plan, trial, ignore_keys, inspect)
    while_training.enter_context(collect_numbers(run.meters.tracked))
    if restart is not None and resumed is not None:
        restart.restore(trainer, resumed, run)
    elif resumed is not None:
        resume.resume(trainer, resumed, run)
    elif checkpoint is not None:
        resume.fork(trainer, checkpoint, run)
    if restart is None:
        run.origin.step = trainer.state.global_step
    trainer.model_wrapped.zero_grad()
    trainer.model_wrapped.train()  # always: its flag may be set although parts loaded for inference are in eval mode
    attach_callbacks(trainer, run)
    return run


# ---- the stages ----------------------------------------------------------------------------------------------------


def open_loader(trainer: RunHost) -> Any:
    """Return the loader of the training rows; a row that is read at random draws from streams of its own."""
    loader, settings = trainer.get_train_dataloader(), RunSettings.of(trainer.args)
    if settings.isolate_rng and isinstance(loader, data_loader.Loader):
        loader.row_streams = RowStreams(settings.data_seed, settings.rank)
    return loader


def describe_position(trainer: RunHost) -> str:
    """Return the step that is being computed, and its batches."""
    step, run = f"step {trainer.state.global_step + 1}", trainer._run
    if run is None or run.updates.current is None:
        return step
    return f"{step}, batches {list(run.updates.current.numbers)} of its epoch"


def prepare_model(trainer: ModelHost, while_training: ExitStack) -> None:
    """Enable what the arguments request of the model, and place it."""
    apply_liger_kernels(trainer.model, RunSettings.of(trainer.args))
    enable_gradient_checkpointing(trainer)
    while_training.enter_context(add_embedding_noise(trainer.model, trainer.neftune_noise_alpha))
    while_training.enter_context(trainer.precision.forward(trainer.model))
    trainer.model_wrapped = trainer._wrap_model(trainer.model)


def enable_gradient_checkpointing(trainer: ModelHost) -> None:
    """Enable the recomputation of activations in the backward pass, if requested."""
    settings = RunSettings.of(trainer.args)
    if not settings.gradient_checkpointing:
        return
    enable = getattr(trainer.model, "gradient_checkpointing_enable", None)
    if not callable(enable):
        raise usage_errors.no_gradient_checkpointing(trainer.model)
    enable(gradient_checkpointing_kwargs=settings.gradient_checkpointing_kwargs)


def prepare_optimizer(trainer: ModelHost, plan: Plan) -> None:
    """Create the optimizer, unless there is one, and a schedule as long as the plan, unless the user gave one."""
    if trainer._created_lr_scheduler:
        trainer.lr_scheduler, trainer._created_lr_scheduler = None, False
    trainer.create_optimizer_and_scheduler(num_training_steps=plan.max_steps)
    show_hidden_state(trainer.optimizer)


def open_state(trainer: RunHost, plan: Plan, resumed: Resumed | None, trial: Any) -> TrainerState:
    """Return a new state, or the one in a checkpoint or before a restart."""
    state = TrainerState(stateful_callbacks=trainer._export_callback_states()) if resumed is None else resumed.state
    if resumed is not None and resumed.checkpoint and state.best_model_checkpoint is not None:
        state.best_model_checkpoint = find_best_model(resumed.checkpoint, state.best_model_checkpoint)
    state.train_batch_size = trainer._train_batch_size
    state.is_hyper_param_search = trial is not None
    state.compute_steps(trainer.args, plan.max_steps)
    state.init_training_references(trainer, plan.max_steps, plan.epochs, trial)
    if trial is not None and state.trial_name is None:
        state.trial_name = Path(trainer._get_output_dir(trial)).name
    if state.epoch is None:
        state.epoch = 0
    return state


def prepare_objective(trainer: ObjectiveHost) -> None:
    """Set what is known of the loss before the first forward."""
    objective = trainer.loss_objective
    objective.stated = trainer.loss_is_scaled_for_ga is not None or objective.is_left_alone
    objective.scale = find_scale(trainer)
    objective.source = trainer._name_loss_source()
    objective.overridden = trainer._is_overridden("compute_loss")
    objective.is_multiplied = objective.is_left_alone


def find_scale(trainer: ObjectiveHost) -> Scale:
    """Return the scale of the loss as far as it is known before the first forward."""
    if trainer.loss_is_scaled_for_ga is not None:
        return "share" if trainer.loss_is_scaled_for_ga else "mean"
    if trainer.loss_objective.is_left_alone:
        return "share"
    return "unknown" if trainer._get_loss_signature().takes_num_items else "mean"


def attach_callbacks(trainer: RunHost, run: Run) -> None:
    """Give the callbacks the parts of the run."""
    handler = trainer.callback_handler
    handler.model, handler.train_dataloader = trainer.model, run.updates.loader
    handler.optimizer, handler.lr_scheduler = trainer.optimizer, trainer.lr_scheduler
    run_summary.attach_progress(trainer, run)
    agreement.attach_control_file(handler.callbacks, trainer.strategy, run)


# ---- the parts of a run --------------------------------------------------------------------------------------------


def build_run(
    trainer: RunHost,
    loader: Any,
    plan: Plan,
    trial: Any,
    ignore_keys: list[str] | None,
    inspect: Callable[[Any, Batch, int, int], None],
) -> Run:
    """Return the run with all its parts."""
    settings, callbacks, ledger = RunSettings.of(trainer.args), trainer.callback_handler.callbacks, TimeLedger()
    options = RunOptions(
        ReportSettings.of(trainer.args, begins=trainer._restart is None),
        steps_schedule=not schedulers.is_metric_schedule(trainer.lr_scheduler),
        report_always=trainer._is_overridden("_maybe_log_save_evaluate"),
        can_restart=settings.finds_batch_size,
        step_takes_count=takes(trainer.training_step, trainer.model, {}, None),
        trial=trial,
        ignore_keys=ignore_keys,
        peak_flops=utilization.find_peak(settings, trainer.model, trainer.strategy),
    )
    updates = UpdateReader(
        plan,
        loader,
        StepWeights(
            trainer._weigh_batches,
            ballot=build_ballot(trainer, loader),
            averaged=trainer.loss_objective.processes,
            label_column=trainer._labels_are,
            in_step=trainer.strategy.is_sharded,
            count_tokens=build_own_token_count(trainer),
        ),
        processes=trainer.strategy.size,
        ledger=ledger,
        cuts=splits_batches(loader),
        skipped=SkippedRows() if settings.skip_bad_rows else None,
        inspect=partial(inspect, loader),
        report_empty=partial(report_empty_batch, loader, "training set"),
        show_skipping=run_summary.find_skip_display(callbacks),
    )
    guard = NonFiniteGuard(
        patience=settings.nonfinite_patience,
        rows_of=partial(find_batch_rows, loader),
        blame=describe_nonfinite_inputs,
        judges_loss=trainer.strategy.size == 1,
    )
    saves = Saves(run_summary.find_save_display(callbacks))
    saves.memory.is_pinned = accelerator.is_accelerator(trainer.strategy.device) and accelerator.can_pin_memory()
    saves.make_room = partial(saver.make_room, trainer, trial)
    transfer = BatchTransfer(trainer.strategy.device, non_blocking=settings.non_blocking)
    return Run(plan, options, updates, build_meters(trainer, loader), guard, saves, ledger, transfer=transfer)


def build_meters(trainer: MeterHost, loader: Any) -> Meters:
    """Return the running numbers of a run, all zero."""
    mixture = getattr(loader, "dataset", None)
    device = trainer.strategy.device
    return Meters(
        LossMeter(device),
        trainer.loss_objective,
        trainer._build_flop_counter(),
        count_tokens=build_token_count(trainer),
        sources=SourceLosses(mixture.sets, device) if isinstance(mixture, Mixture) else None,
        window=trainer._train_window,
        counts_for_all=trainer.is_world_process_zero(),
    )


def build_ballot(trainer: RunHost, loader: Any) -> Ballot | None:
    """Return what the processes exchange in every step; None if there is one process."""
    strategy, settings = trainer.strategy, RunSettings.of(trainer.args)
    if strategy.processes == 1:
        return None
    return Ballot(
        strategy,
        strategy.size,
        strategy.processes // strategy.size,
        averages=trainer.loss_objective.processes > 1,
        needs_every_step=settings.counts_tokens or settings.skip_bad_rows or splits_batches(loader),
        finds_unused=lambda: strategy.has_unused,
    )


def build_own_token_count(trainer: MeterHost) -> Callable[[list[Batch]], int] | None:
    """Return a function that counts the input tokens of this process; None if they are not counted in the ballot."""
    if not RunSettings.of(trainer.args).counts_tokens or trainer._is_overridden("_track_num_input_tokens"):
        return None
    count = trainer._build_token_counter()
    return lambda batches: sum(map(count, batches))


def build_token_count(trainer: MeterHost) -> Callable[[Update], None] | None:
    """Return a function that counts the input tokens of an update; None if they are not counted."""
    if not RunSettings.of(trainer.args).counts_tokens:
        return None
    if trainer._is_overridden("_track_num_input_tokens"):

        def count_each(update: Update) -> None:
            for batch in update.batches:
                trainer._track_num_input_tokens(batch)

        return count_each
    count = trainer._build_token_counter()

    def count_own(update: Update) -> None:
        trainer.state.num_input_tokens_seen += (
            sum(map(count, update.batches)) if update.find_tokens is None else update.find_tokens()
        )

    return count_own
