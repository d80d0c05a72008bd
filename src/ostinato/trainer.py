"""The public Trainer: a switchboard. Each method names an override point and says where its default lives."""

from __future__ import annotations

import copy
import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Sampler

from .callbacks.base import CallbackHandler, TrainerCallback
from .callbacks.flow import DefaultFlowCallback
from .callbacks.printer import PrinterCallback
from .callbacks.progress import ProgressCallback
from .checkpoint import checkpointer, identity, retention, weights
from .checkpoint.layouts import add_transformers_files, open_checkpoint
from .checkpoint.names import TRAINER_STATE_NAME, TRAINING_ARGS_JSON_NAME
from .checkpoint.run_home import RunHome, best_of_run
from .checkpoint.store import atomic_directory, discard
from .checkpoint.tensors import write_tree
from .compat.accelerator import AcceleratorView
from .config import mistakes
from .config.adopt import adopt
from .config.check_trainer import (
    check_metric_name,
    check_model,
    check_optimizers,
    check_order,
    check_trainer,
    check_types,
)
from .config.making import TrainerType
from .config.plan import (
    LoaderSettings,
    OptimizerSettings,
    PrecisionSettings,
    ReplicaSettings,
    ReportSettings,
    SaveSettings,
    ScheduleSettings,
)
from .config.training_args import TrainingArguments
from .core import metrics_text
from .core.choices import IntervalStrategy, SaveStrategy
from .core.notices import note, note_once
from .core.outputs import EvalLoopOutput, PredictionOutput, TrainOutput
from .core.protocols import Batch, Precision, Strategy
from .core.random import enable_full_determinism, set_seed, undisturbed
from .core.state import ExportableState, TrainerControl, TrainerState, export_callbacks
from .core.tracebacks import ShortTraceback
from .core.tree import tree_map
from .core.world import World
from .data import columns, loaders, samplers
from .data.bad_rows import SkippedRows, SkippingCollator, SkippingRows
from .data.budget import token_batches
from .data.collators.default import default_data_collator
from .data.collators.padding import DataCollatorWithPadding
from .data.cutting import PaddingMeter, SplitCollator, cuts_batches, cuts_updates, micro_batches, pads_to_multiple_of
from .data.given import check_equal_batches, check_loader, is_dealt_out, shared_batches, shared_order
from .data.mistakes import wrong_batch
from .data.mixture import Mixture, MixtureSampler, mixed
from .data.packing_check import packing_for
from .data.position import batching_of, first_course, real_rows_of, rows_of, samples_at
from .data.row_streams import RowStreams
from .data.sizes import has_length, is_iterable, num_examples
from .data.sources import SourceCollator, SourceLosses
from .explain import rehearsal
from .explain.columns import left_out
from .explain.failures import explained
from .explain.heads import certain_mistake_in
from .explain.memory import can_be_put_back
from .explain.metrics import explained_evaluation, tell_no_labels
from .explain.notes import Memory, note_checkpoint
from .explain.numbers import not_finite
from .explain.scene import Scene, evaluated_set
from .explain.weights import check_weights
from .loops import evaluate as evaluating
from .loops import predict as predicting
from .loops import report
from .loops.evaluate import EvalPlan, InHand, speed_metrics
from .loops.finish import finish
from .loops.flops import FlopCounter, input_that_decides, operations, tells_operations
from .loops.nonfinite import NonFiniteGuard
from .loops.resume import Resumed
from .loops.run import LossMeter, Plan, Run
from .loops.tokens import count_tokens
from .loops.train import emit, train
from .objective.counting import count_targets, loss_shifts_labels, observe_shift, weigh
from .objective.independence import check_rows_keep_apart
from .objective.neftune import noisy_embeddings
from .objective.objective import LossSignature, Objective, Scale, no_loss, takes_num_items
from .objective.outputs import BareTensorError, loss_and_outputs
from .objective.smoothing import LabelSmoother
from .optim import groups, optimizers, schedulers
from .strategies.choose import choose_strategy
from .strategies.precision import choose_precision, half_precision_weights

# Where a subclass may compute metrics of its own, under any name.
_MAY_ADD_METRICS = ("evaluate", "_evaluate", "evaluation_loop", "prediction_step", "compute_loss", "log")

# Where client libraries keep state from call to call: a rehearsal would be one call too many.
_KEEP_STATE = (
    "evaluate",
    "evaluation_loop",
    "prediction_step",
    "compute_loss",
    "get_eval_dataloader",
    "_get_dataloader",
    "_get_eval_sampler",
    "_prepare_inputs",
)
BEST_MODEL = "best-model"  # the directory of the best weights, where no checkpoint was due when they were found


class Trainer(metaclass=TrainerType):
    """Trains, evaluates and predicts with any `nn.Module`.

    >>> trainer = Trainer(model, TrainingArguments("out"), train_dataset=rows)  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP

    Subclass it and override a method to change one thing; every method may call `super()`.
    """

    # What a subclass states of its loss. True: divided for accumulation already; False: a mean; None: found out.
    loss_is_scaled_for_ga: bool | None = None

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[Any]], dict[str, Any]] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., nn.Module] | None = None,
        compute_loss_func: Callable[..., Tensor] | None = None,
        compute_metrics: Callable[..., dict[str, Any]] | None = None,
        callbacks: list[TrainerCallback | type[TrainerCallback]] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        *,
        tokenizer: Any = None,
        strategy: Strategy | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
    ) -> None:
        self.args = args = adopt(args)
        args.apply_log_level()
        check_types(
            model=model,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            model_init=model_init,
            compute_loss_func=compute_loss_func,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
            preprocess_logits_for_metrics=preprocess_logits_for_metrics,
            sampler=sampler,
            batch_sampler=batch_sampler,
        )
        check_model(model, model_init)
        check_optimizers(optimizers, optimizer_cls_and_kwargs, model_init, model)
        check_trainer(args, train_dataset, eval_dataset)
        is_mixture = isinstance(mixed(train_dataset), Mixture)
        check_order(args, train_dataset, sampler, batch_sampler, is_mixture=is_mixture)
        self._seed()
        self.model_init = model_init
        self.hp_name: Callable[[Any], str] | None = None
        self.hp_search_backend: Any = None
        self._trial: Any = None
        self.model: nn.Module = model if model is not None else self.call_model_init()
        self.world = World.from_environment()
        self.strategy = strategy or choose_strategy(self.world, args.device, ReplicaSettings.of(args))
        self.precision: Precision = choose_precision(PrecisionSettings.of(args))
        self.create_accelerator_and_postprocess()

        self.processing_class = processing_class if tokenizer is None else self._renamed(tokenizer, processing_class)
        self.data_collator = data_collator if data_collator is not None else self._default_collator()
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.compute_metrics = compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.optimizer: Any = optimizers[0]
        self.lr_scheduler: Any = optimizers[1]
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.neftune_noise_alpha = args.neftune_noise_alpha

        self._adopt_model(compute_loss_func)
        default_callbacks: list[Any] = [DefaultFlowCallback, *(callbacks or [])]
        self.callback_handler = CallbackHandler(
            default_callbacks,
            self.model,
            self.processing_class,
            self.optimizer,
            self.lr_scheduler,
            isolate_rng=args.isolate_rng,
        )
        self.add_callback(PrinterCallback if args.disable_tqdm else ProgressCallback)

        self.control = TrainerControl()
        self.state = TrainerState(
            is_local_process_zero=self.is_local_process_zero(),
            is_world_process_zero=self.is_world_process_zero(),
            stateful_callbacks=self._callback_states(),
        )
        self.is_in_train = False
        self.current_flos = 0.0
        self.current_gradient_accumulation_steps = args.gradient_accumulation_steps
        self._train_batch_size = args.train_batch_size
        self._signature_columns: list[str] | None = None
        self._created_lr_scheduler = False
        self._eval_dataloaders: dict[str, DataLoader[Any]] = {}
        self._run: Run | None = None
        self._run_home = RunHome()
        emit(self, "on_init_end")

    def create_accelerator_and_postprocess(self) -> None:
        """`self.accelerator`, under which subclasses look for devices, gathering and unwrapping."""
        self.accelerator = AcceleratorView(self)

    # ---- what the constructor settles ------------------------------------------------------------

    def _seed(self) -> None:
        enable_full_determinism(self.args.seed) if self.args.full_determinism else set_seed(self.args.seed)

    @staticmethod
    def _renamed(tokenizer: Any, processing_class: Any) -> Any:
        if processing_class is not None:
            raise mistakes.tokenizer_twice()
        note_once("tokenizer= is now processing_class=")
        return tokenizer

    def _default_collator(self) -> Callable[[list[Any]], dict[str, Any]]:
        if callable(getattr(self.processing_class, "pad", None)):
            return DataCollatorWithPadding(self.processing_class)
        return default_data_collator

    def _adopt_model(self, compute_loss_func: Callable[..., Tensor] | None) -> None:
        """Place the model, and find out what it takes and what its loss is."""
        if self.place_model_on_device:
            self._move_model_to_device(self.model, self.args.device)
        config: Any = getattr(self.model, "config", None)
        if getattr(config, "use_cache", None) is not None:
            config.use_cache = self.args.use_cache  # keys and values kept for generation are of no use in training
        self.model_wrapped = self.model
        self.label_names: list[str] = (
            columns.default_label_names(self.model) if self.args.label_names is None else self.args.label_names
        )
        self.can_return_loss = columns.can_return_loss(type(self.model))
        inner = columns.bare_model(self.model)
        self._loss_shifts_labels = loss_shifts_labels(inner)
        smoothing = self.args.label_smoothing_factor
        self.objective = Objective(
            loss_func=compute_loss_func,
            smoother=LabelSmoother(epsilon=smoothing) if smoothing else None,
            model_takes_num_items=takes_num_items(inner),
            processes=self.args.world_size if self.args.average_tokens_across_devices else 1,
        )
        self.objective.smoother_shifts = bool(self._loss_shifts_labels)

    def _shifts_labels(self, batch: Batch) -> bool:
        """Whether the model's loss compares each position with the next label; tried out if it does not say."""
        if self._loss_shifts_labels is None:
            shifts = observe_shift(self.model, self._prepare_inputs(dict(batch)))
            self._loss_shifts_labels = self.objective.smoother_shifts = shifts
        return self._loss_shifts_labels

    @property
    def model_accepts_loss_kwargs(self) -> bool:
        """Whether `num_items_in_batch` is passed to the model's forward."""
        return self.objective.model_takes_num_items

    @model_accepts_loss_kwargs.setter
    def model_accepts_loss_kwargs(self, accepts: bool) -> None:
        self.objective.model_takes_num_items = accepts

    @property
    def compute_loss_func(self) -> Callable[..., Tensor] | None:
        return self.objective.loss_func

    @compute_loss_func.setter
    def compute_loss_func(self, function: Callable[..., Tensor] | None) -> None:
        self.objective.loss_func = function

    @property
    def label_smoother(self) -> LabelSmoother | None:
        return self.objective.smoother

    @label_smoother.setter
    def label_smoother(self, smoother: LabelSmoother | None) -> None:
        self.objective.smoother = smoother

    @property
    def tokenizer(self) -> Any:
        """The older name of `processing_class`."""
        return self.processing_class

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self.processing_class = tokenizer

    @property
    def place_model_on_device(self) -> bool:
        return getattr(self.args, "place_model_on_device", None) is not False

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Add a callback, as a class or an instance."""
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Take a callback out, by class or instance, and return it."""
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Take a callback out, by class or instance."""
        self.callback_handler.remove_callback(callback)

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        if getattr(model, "hf_device_map", None) is None:
            check_weights(model)
            model.to(device)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """A fresh model from `model_init`, which takes no argument or a trial."""
        assert self.model_init is not None
        count = len(inspect.signature(self.model_init).parameters)
        if count > 1:
            raise mistakes.model_init_takes(count)
        model = self.model_init() if count == 0 else self.model_init(trial)
        if model is None:
            raise mistakes.model_init_returns_nothing()
        return model

    # ---- running ---------------------------------------------------------------------------------

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train, from the beginning or from a checkpoint (`True`: the last one in `output_dir`)."""
        with ShortTraceback():
            self.args.validate()  # arguments may have been changed since they were made
            if self.compute_metrics is None and not self._may_add_metrics():
                check_metric_name(self.args, self.eval_dataset)
            self.is_in_train = True
            self._hp_search_setup(trial)
            self._train_batch_size = self.args.train_batch_size
            try:
                with self._at_home(trial):
                    checkpoint = self._checkpoint_to_resume(resume_from_checkpoint)
                    home = Path(self._get_output_dir(trial))
                    self._run_home.begin(home, checkpoint, writes=self._writes_checkpoints())
                    if self.model_init is not None:
                        self._seed()
                        self.model = self.call_model_init(trial)
                        self._adopt_model(self.compute_loss_func)
                        self.optimizer = self.lr_scheduler = None
                    return self._inner_training_loop(
                        batch_size=self._train_batch_size,
                        args=self.args,
                        resume_from_checkpoint=checkpoint,
                        trial=trial,
                        ignore_keys_for_eval=ignore_keys_for_eval,
                    )
            except BaseException:
                self._stop_progress()
                raise
            finally:
                self.is_in_train = False

    def _may_add_metrics(self) -> bool:
        """Whether a subclass or a callback of the user's may add metrics to an evaluation."""
        listening = [
            type(callback)
            for callback in self.callback_handler.callbacks
            if type(callback).on_evaluate is not TrainerCallback.on_evaluate
        ]
        theirs = [kind for kind in listening if not kind.__module__.startswith(f"{__package__}.")]
        return bool(theirs) or any(map(self._is_overridden, _MAY_ADD_METRICS))

    def _stop_progress(self) -> None:
        """No event tells callbacks that training broke off; a bar left running would garble what comes next."""
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, ProgressCallback):
                callback.stop()

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: TrainingArguments | None = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Open a run, take its steps, sum it up."""
        with ExitStack() as while_training:
            run = self._open_run(resume_from_checkpoint, trial, ignore_keys_for_eval, while_training)
            self._rehearse(ignore_keys_for_eval)
            emit(self, "on_train_begin")
            if self.args.eval_on_start:
                with report.isolation(run.settings):
                    self._evaluate(trial, ignore_keys_for_eval, skip_scheduler=True)
            try:
                train(self, run)
            except Exception as error:
                reason = self._explained(error, run)
                if reason is not error:
                    raise reason from reason.__cause__
                raise
            return finish(self, run)

    def _open_run(
        self, checkpoint: str | None, trial: Any, ignore_keys: list[str] | None, while_training: ExitStack
    ) -> Run:
        """Everything that is settled before the first step: loader, plan, placement, optimizer, schedule, state."""
        loader = self.get_train_dataloader()
        if self.args.isolate_rng and isinstance(loader, loaders.Loader):
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            loader.row_streams = RowStreams(seed, self.args.process_index)
        plan = self._plan(loader)
        resumed = None if checkpoint is None else self._read_checkpoint(checkpoint, plan, loader)
        if resumed is not None:
            plan = resumed.plan
        self._enable_gradient_checkpointing()
        while_training.enter_context(noisy_embeddings(self.model, self.neftune_noise_alpha))
        while_training.enter_context(self.precision.forward(self.model))
        self.model_wrapped = self._wrap_model(self.model)
        if self._created_lr_scheduler:
            self.lr_scheduler, self._created_lr_scheduler = None, False
        self.create_optimizer_and_scheduler(num_training_steps=plan.max_steps)
        self.state = self._opening_state(plan, resumed, trial)
        self._check_space(plan, trial)
        self._initial_num_input_tokens_seen = self.state.num_input_tokens_seen
        self.objective.stated = self.loss_is_scaled_for_ga is not None
        self.objective.scale = self._opening_scale()
        self.objective.source = self._loss_source()
        self._run = run = Run(
            plan=plan,
            loader=loader,
            meter=LossMeter(self.strategy.device),
            objective=self.objective,
            guard=NonFiniteGuard(
                patience=self.args.nonfinite_patience,
                rows_of=partial(rows_of, loader),
                blame=not_finite,
                judges_loss=self.args.world_size == 1,
            ),
            settings=ReportSettings.of(self.args),
            flops=self._flop_counter(),
            weigh=self._divisors,
            processes=self.args.world_size,
            count_tokens=self._count_tokens if self.args.include_num_input_tokens_seen != "no" else None,
            cuts=cuts_batches(loader),
            skipped=SkippedRows() if self.args.skip_bad_rows else None,
            sources=self._source_losses(loader),
            steps_schedule=not schedulers.steps_on_metric(self.lr_scheduler),
            report_always=self._is_overridden("_maybe_log_save_evaluate"),
            inspect=partial(self._inspect, loader),
            trial=trial,
            ignore_keys=ignore_keys,
        )
        if resumed is not None:
            self._resume(resumed, run)
        handler = self.callback_handler
        handler.model, handler.train_dataloader = self.model, loader
        handler.optimizer, handler.lr_scheduler = self.optimizer, self.lr_scheduler
        self.model_wrapped.zero_grad()
        self._has_surroundings = any(
            self._is_overridden(name)
            for name in (
                "_prepare_context_parallel_inputs",
                "compute_loss_context_manager",
                "autocast_smart_context_manager",
            )
        )
        return run

    def _source_losses(self, loader: Any) -> SourceLosses | None:
        """Where the losses of each set of a mixture are added up."""
        mixture = getattr(loader, "dataset", None)
        return SourceLosses(mixture.sets, self.strategy.device) if isinstance(mixture, Mixture) else None

    def _opening_scale(self) -> Scale:
        """What is known of the loss before it was ever computed."""
        if self.loss_is_scaled_for_ga is not None:
            return "share" if self.loss_is_scaled_for_ga else "mean"
        return "unknown" if self._loss_signature().takes_num_items else "mean"

    def _plan(self, loader: Any) -> Plan:
        args, batches = self.args, len(loader) if has_length(loader) else None
        if batches is None and args.max_steps <= 0:
            raise mistakes.no_number_of_batches(loader)
        if batches is not None and args.world_size > 1 and (self._has_own_batches(loader) or self.sampler is not None):
            check_equal_batches(batches, self.strategy.sum, args.world_size)
        return Plan.for_length(
            batches,
            epochs=args.num_train_epochs,
            max_steps=args.max_steps,
            accumulation=1 if cuts_updates(loader) else args.gradient_accumulation_steps,
            max_grad_norm=args.max_grad_norm,
            rows_per_update=self._rows_per_update(loader, batches),
            rows_per_epoch=self._rows_per_epoch(loader) if batches is not None else None,
            varying=getattr(loader, "batches_in", None),
        )

    def _has_own_batches(self, loader: Any) -> bool:
        """Whether batches are the user's, or as many rows as fit, and not so many rows each."""
        own = self.batch_sampler is not None or self.args.max_tokens_per_batch is not None
        return own or loader is self.train_dataset

    def _rows_per_epoch(self, loader: Any) -> int:
        if self.sampler is not None and not is_dealt_out(self.sampler):
            return len(self.sampler)
        return self.num_examples(loader)

    def _rows_per_update(self, loader: Any, batches: int | None) -> int:
        if not batches or not self._has_own_batches(loader):
            return self.get_total_train_batch_size(self.args)
        return round(self._rows_per_epoch(loader) / batches * self.args.gradient_accumulation_steps)

    def samples_at(self, step: int) -> list[int]:
        """The rows of the training set that an optimizer step is computed from, over all processes.

        Any step, past or future, of the present run (of the last, or of one that would start now): the order is
        arithmetic, nothing is read. `step` counts from 1, as `state.global_step` does once it is taken.

        >>> trainer.samples_at(1)  # doctest: +SKIP
        [7, 2, 5, 0]
        """
        run = self._run
        if run is None:
            with undisturbed():
                loader = self.get_train_dataloader()
            plan = self._plan(loader)
            return samples_at(loader, first_course(loader, plan.accumulation), step, plan.max_steps)
        if run.update is None:  # nothing taken yet
            run.chart(self.state.global_step)
        return samples_at(run.loader, run.place.courses, step, run.plan.max_steps)

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """The rows of one optimizer step over all processes."""
        return self._train_batch_size * args.gradient_accumulation_steps * args.world_size

    def _opening_state(self, plan: Plan, resumed: Resumed | None, trial: Any) -> TrainerState:
        """A fresh state, or the one a checkpoint holds."""
        state = TrainerState(stateful_callbacks=self._callback_states()) if resumed is None else resumed.state
        if resumed is not None and state.best_model_checkpoint is not None:
            state.best_model_checkpoint = best_of_run(resumed.checkpoint, state.best_model_checkpoint)
        state.train_batch_size = self._train_batch_size
        state.is_hyper_param_search = trial is not None
        state.compute_steps(self.args, plan.max_steps)
        state.init_training_references(self, plan.max_steps, plan.epochs, trial)
        if state.epoch is None:
            state.epoch = 0
        return state

    def _enable_gradient_checkpointing(self) -> None:
        if not self.args.gradient_checkpointing:
            return
        enable = getattr(self.model, "gradient_checkpointing_enable", None)
        if not callable(enable):
            raise mistakes.no_gradient_checkpointing(self.model)
        enable(gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs)

    # ---- one step (objective/, strategies/) --------------------------------------------------------

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]:
        """The micro-batches of one optimizer step, and how many targets they have together."""
        samples = list(itertools.islice(epoch_iterator, num_batches))
        if self._run is not None and self._run.cuts:
            samples = self._cut(samples)
        return samples, self._get_num_items_in_batch(samples, device)

    def _cut(self, samples: list[Batch]) -> list[Batch]:
        """Batches in their micro-batches; the first that is cut is compared with the same rows uncut."""
        parts = micro_batches(samples)
        if self.args.split_by_length and not self._split_is_checked and len(parts) > len(samples):
            self._split_is_checked = True
            check_rows_keep_apart(
                self.model,
                parts if len(samples) == 1 else micro_batches([max(samples, key=len)]),
                loss=lambda part: self.compute_loss(self.model, self._prepare_inputs(part)),
                weigh=lambda part: weigh(part, shifted=self._shifts_labels(part)),
                tolerance=1e-3 if self.args.mixed_precision == "no" else 5e-2,
                pad_token_id=getattr(self.processing_class, "pad_token_id", None) or 0,
            )
        return parts

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor | int | None:
        """The targets of the whole step over all processes; None if nobody wants to know."""
        if not self.objective.wants_count or not batch_samples or "labels" not in batch_samples[0]:
            return None
        shifted = self._shifts_labels(batch_samples[0])
        counted = batch_samples if self._run is None else self._run.without_stand_ins(batch_samples)
        counts = [count_targets(batch["labels"], shifted=shifted) for batch in counted]
        if any(count is None for count in counts):
            return None
        total = torch.as_tensor(sum(counts)).to(device)  # type: ignore[arg-type]
        return self.strategy.sum(total) if self.args.average_tokens_across_devices else total

    def _divisors(self, batches: list[Batch], stand_ins: list[bool]) -> list[float]:
        """What turns the mean of each micro-batch into its share of the optimizer step."""
        processes = self.objective.processes
        if len(batches) == 1 and not any(stand_ins) and processes == 1:
            return [1.0]
        shifted = bool(self._loss_shifts_labels)
        amounts = [
            0.0 if void else weigh(batch, shifted=shifted) for batch, void in zip(batches, stand_ins, strict=True)
        ]
        total = sum(amounts)
        if processes > 1:
            total = float(self.strategy.sum(torch.tensor(total, dtype=torch.float64)))
        return [total / (amount * processes) if amount else float("inf") for amount in amounts]

    def training_step(self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Forward and backward of one micro-batch; returns its share of the step's loss."""
        if not (model.training and self.model.training):
            model.train()
        inputs = self._prepare_inputs(inputs)
        objective = self.objective
        with self._surroundings(model, inputs) as inputs:
            if objective.must_settle(num_items_in_batch):
                loss = objective.settle(
                    lambda count: self.compute_loss(model, dict(inputs), num_items_in_batch=count),
                    num_items_in_batch,
                    self.model,
                )
            elif not self._loss_signature().takes_num_items:
                loss = self.compute_loss(model, inputs)
            else:
                loss = self.compute_loss(model, inputs, num_items_in_batch=objective.count_for(num_items_in_batch))
        loss = no_loss(model) if objective.weighs_nothing else objective.share_of(loss, num_items_in_batch)
        self.precision.backward(loss)
        return loss.detach()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of one batch, by default the model's own; with `return_outputs` also what the model returned."""
        loss, outputs = self.objective(model, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _surroundings(self, model: nn.Module, inputs: Batch) -> AbstractContextManager[Batch]:
        """What a subclass wants entered while a loss is computed, and the inputs it makes of these."""
        if not self._has_surroundings:
            return nullcontext(inputs)
        return self._entered(model, inputs)

    @contextmanager
    def _entered(self, model: nn.Module, inputs: Batch) -> Iterator[Batch]:
        parallel, inputs = self._prepare_context_parallel_inputs(model, inputs)
        with parallel(), self.compute_loss_context_manager():
            yield inputs

    def _prepare_context_parallel_inputs(self, model: nn.Module, inputs: Batch) -> tuple[Callable[..., Any], Batch]:
        """Sequences are not split over processes (yet): nothing to enter."""
        return nullcontext, inputs

    def compute_loss_context_manager(self) -> AbstractContextManager[Any]:
        """What surrounds a loss: `autocast_smart_context_manager`."""
        return self.autocast_smart_context_manager()

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager[Any]:
        """Nothing to enter: autocast surrounds the model's forward itself."""
        return nullcontext()

    def _prepare_inputs(self, inputs: Batch) -> Batch:
        """The batch on the device that computes."""
        return self._prepare_input(inputs)

    def _prepare_input(self, data: Any) -> Any:
        device = self.strategy.device
        if device.type == "cpu" and type(data) is dict:
            return dict(data)  # a copy: whoever computes the loss may take the labels out of it
        return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, data)

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        """Cut the gradient to `max_grad_norm`; returns the norm it had."""
        assert self._run is not None
        return self.strategy.clip(self._run.gradients(), self._run.plan.max_grad_norm)

    def _get_learning_rate(self) -> float:
        """The rate of the first parameter group."""
        if isinstance(self.lr_scheduler, ReduceLROnPlateau):
            return self.optimizer.param_groups[0]["lr"]
        rate = self.lr_scheduler.get_last_lr()[0]
        return rate.item() if isinstance(rate, Tensor) else rate

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        """The model as the loop calls it: on its device, replicated over the processes."""
        return self.strategy.place(model) if training else model

    def _loss_signature(self) -> LossSignature:
        function = self.compute_loss
        key = getattr(function, "__func__", function)
        if self._known_signature is None or self._known_signature[0] is not key:
            self._known_signature = (key, LossSignature.of(function))
        return self._known_signature[1]

    _split_is_checked = False
    _known_signature: tuple[Any, LossSignature] | None = None
    _has_surroundings = False
    _initial_num_input_tokens_seen = 0
    model_preparation_time: float = 0.0

    # ---- after a step (loops/report.py) ------------------------------------------------------------

    def _maybe_log_save_evaluate(
        self,
        tr_loss: Tensor,
        grad_norm: Tensor | float | None,
        model: nn.Module,
        trial: Any,
        epoch: float,
        ignore_keys_for_eval: list[str] | None,
        start_time: float,
        learning_rate: float | None = None,
    ) -> None:
        """Log, evaluate and save, as far as the control asks for it."""
        assert self._run is not None
        report.report_step(self, self._run, tr_loss, grad_norm, model, learning_rate)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add numbers to the history and tell the callbacks."""
        if self.state.epoch is not None:
            logs["epoch"] = self.state.epoch
        if self.args.include_num_input_tokens_seen != "no":
            logs["num_input_tokens_seen"] = self.state.num_input_tokens_seen
            if start_time is not None:
                tokens = self.state.num_input_tokens_seen - self._initial_num_input_tokens_seen
                logs.update(speed_metrics("train", start_time, num_tokens=tokens, now=time.time()))
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Evaluate in the middle of training."""
        metrics = self.evaluate(ignore_keys=ignore_keys_for_eval)
        self._report_to_hp_search(trial, self.state.global_step, metrics)
        if schedulers.steps_on_metric(self.lr_scheduler) and not skip_scheduler:
            self.lr_scheduler.step(self._metric_to_watch(metrics))
        return metrics

    def _metric_to_watch(self, metrics: dict[str, float]) -> float:
        name = self.args.metric_for_best_model or "loss"
        full_name = name if name.startswith("eval_") else f"eval_{name}"
        if full_name not in metrics:
            raise mistakes.no_such_metric(name, metrics)
        return metrics[full_name]

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Remember the best value so far; True if this evaluation is it."""
        if self.args.metric_for_best_model is None:
            return False
        value, best = self._metric_to_watch(metrics), self.state.best_metric
        if best is not None and not (value > best if self.args.greater_is_better else value < best):
            return False
        self.state.best_metric = value
        if self.args.save_strategy != SaveStrategy.NO or self.args.load_best_model_at_end:
            self.state.best_global_step = self.state.global_step
        if self.args.load_best_model_at_end and not self._saves_this_step():
            self._keep_best_weights(trial)
        return True

    # ---- evaluating (loops/evaluate.py) ------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Run over the evaluation set and return its metrics; a dict of sets is evaluated one by one."""
        chosen = eval_dataset if eval_dataset is not None else self.eval_dataset
        if isinstance(chosen, dict):
            merged: dict[str, float] = {}
            for name, part in chosen.items():
                merged.update(
                    self.evaluate(
                        eval_dataset=part if eval_dataset is not None else name,
                        ignore_keys=ignore_keys,
                        metric_key_prefix=f"{metric_key_prefix}_{name}",
                    )
                )
            return merged
        with ShortTraceback():
            loader = self.get_eval_dataloader(eval_dataset)
            started = time.time()
            output = self.evaluation_loop(
                loader,
                description="Evaluation",
                prediction_loss_only=True if self.compute_metrics is None else None,
                ignore_keys=ignore_keys,
                metric_key_prefix=metric_key_prefix,
            )
            metrics = self._with_speed(output, metric_key_prefix, started)
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Run over a set and return predictions, labels and metrics."""
        with ShortTraceback():
            loader = self.get_test_dataloader(test_dataset)
            started = time.time()
            output = self.evaluation_loop(
                loader, description="Prediction", ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
            )
            metrics = self._with_speed(output, metric_key_prefix, started)
            self.control = self.callback_handler.on_predict(self.args, self.state, self.control, metrics)
            return PredictionOutput(output.predictions, output.label_ids, metrics)

    def _with_speed(self, output: EvalLoopOutput, prefix: str, started: float) -> dict[str, float]:
        metrics = output.metrics if output.metrics is not None else {}
        rows = output.num_samples or 0
        steps = -(-rows // (self.args.eval_batch_size * self.args.world_size))
        metrics.update(speed_metrics(prefix, started, num_samples=rows, num_steps=steps, now=time.time()))
        return metrics

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The loop behind `evaluate` and `predict`."""
        args, started = self.args, time.time()
        model = self._wrap_model(self.model, training=False)
        if self._run is None:
            self.model_preparation_time = round(time.time() - started, 4)
        data = evaluated_set(description, metric_key_prefix, self.eval_dataset)
        plan = self._eval_plan(dataloader, data, prediction_loss_only, ignore_keys, metric_key_prefix)
        dtype = torch.float16 if args.fp16_full_eval else torch.bfloat16 if args.bf16_full_eval else None
        self.callback_handler.eval_dataloader = dataloader
        model.eval()
        weights_as, in_hand = half_precision_weights(model, None if self.is_in_train else dtype), InHand()
        # Also outside of training: looking at a model before it is trained must not change how it is trained.
        with report.isolation(ReportSettings.of(args)), weights_as, self.precision.forward(self.model):
            try:
                return evaluating.evaluation_loop(self, model, dataloader, plan, in_hand)
            except Exception as error:
                reason = self._explained_evaluation(error, in_hand, dataloader, data)
                if reason is not error:
                    raise reason from reason.__cause__
                raise

    def _eval_plan(
        self, loader: Any, data: str, loss_only: bool | None, ignore_keys: list[str] | None, prefix: str
    ) -> EvalPlan:
        args = self.args
        loss_only = args.prediction_loss_only if loss_only is None else loss_only
        if loss_only and self.compute_metrics is not None:
            note_once("compute_metrics is not called: prediction_loss_only=True keeps no predictions")
        return EvalPlan(
            loss_only=loss_only,
            keep_inputs="inputs" in args.include_for_metrics,
            keep_losses="loss" in args.include_for_metrics,
            metric_per_batch=args.batch_eval_metrics and self.compute_metrics is not None,
            join_batches=args.eval_do_concat_batches,
            main_input=getattr(self.model, "main_input_name", "input_ids"),
            prefix=prefix,
            ignore_keys=ignore_keys,
            weigh=self._weigh_evaluated,
            real_rows=real_rows_of(loader),
            preparation_time=self.model_preparation_time if self._run is None else None,
            without_labels=partial(self._without_labels, loader, data),
        )

    prediction_loop = evaluation_loop  # the name of 4.x for the same loop

    def _weigh_evaluated(self, inputs: Batch) -> float:
        return weigh(inputs, shifted=self._shifts_labels(inputs))

    def prediction_step(
        self, model: nn.Module, inputs: Batch, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Any, Any]:
        """Loss, logits and labels of one batch."""
        return predicting.prediction_step(
            model,
            self._prepare_inputs(inputs),
            loss_only=prediction_loss_only,
            ignore_keys=predicting.ignored_at_inference(self.model) if ignore_keys is None else ignore_keys,
            label_names=self.label_names,
            can_return_loss=self.can_return_loss,
            loss_and_outputs=self._loss_and_outputs,
            source=self._loss_source(),
        )

    def _loss_and_outputs(self, model: nn.Module, inputs: Batch) -> tuple[Tensor | None, Any]:
        """The loss with the batch's own count, and what the model returned."""
        signature = self._loss_signature()
        keywords: dict[str, Any] = {"return_outputs": True} if signature.takes_return_outputs else {}
        if signature.takes_num_items:
            keywords["num_items_in_batch"] = self._own_count(inputs)
        if not signature.takes_return_outputs:
            return self.compute_loss(model, dict(inputs), **keywords), model(**inputs)
        try:
            return loss_and_outputs(self.compute_loss(model, inputs, **keywords), self._loss_source())
        except BareTensorError as bare:  # logits without a loss are still worth predicting with
            note_once(f"no loss is computed in evaluation: {bare.what}")
            return None, bare.outputs

    def _own_count(self, inputs: Batch) -> Tensor | None:
        if not self.objective.wants_count or "labels" not in inputs:
            return None
        return count_targets(inputs["labels"], shifted=self._shifts_labels(inputs))

    # ---- mistakes, before they cost anything and by their names (explain/) ---------------------------------

    def _inspect(self, loader: Any, batch: Batch, epoch: int, number: int) -> None:
        """Look at the first batch before anything is computed from it."""
        if batch is None and (mistake := wrong_batch(batch, self.data_collator)):
            raise mistake
        mistake = certain_mistake_in(self._scene(batch, loader, "training set", epoch, number))
        if mistake is not None:
            raise mistake
        if not (self.args.split_by_length or self.args.packing):
            padding = PaddingMeter(batches=1)
            padding.add_batch(batch)
            if advice := padding.advice():
                note_once(f"in the first batch {advice}", key="padding")

    def _scene(self, batch: Any, loader: Any, data: str, epoch: int, number: int) -> Scene:
        """A batch, and all that is known of where it came from and what is done with it."""
        return Scene(
            model=self.model,
            batch=batch,
            data=data,
            label_names=tuple(self.label_names),
            rows=lambda: rows_of(loader, epoch, range(number, number + 1)),
            left_out=lambda: self._left_out(loader),
            own_loss=self.compute_loss_func is self.label_smoother is None and not self._is_overridden("compute_loss"),
            loss_func=self.compute_loss_func,
            drops_columns=self.args.remove_unused_columns and isinstance(loader, loaders.Loader),
            gradient_checkpointing=self.args.gradient_checkpointing,
            dataset=getattr(loader, "dataset", None),
            collator=self.data_collator,
        )

    def _left_out(self, loader: Any) -> list[str]:
        """The columns of a data set that do not reach the model."""
        dataset = getattr(loader, "dataset", None)
        if not isinstance(loader, loaders.Loader) or isinstance(dataset, Mixture):
            return []
        if columns.has_columns(dataset):
            return list(columns.left_out_of(dataset))
        return left_out(dataset, self._signature_columns or []) if self.args.remove_unused_columns else []

    def _loss_source(self) -> str:
        """Who computes the loss, in words."""
        if self._is_overridden("compute_loss"):
            return f"{type(self).__name__}.compute_loss"
        return "compute_loss_func" if self.compute_loss_func is not None else f"{self._model_name}.forward"

    @property
    def _model_name(self) -> str:
        return type(columns.bare_model(self.model)).__name__

    def _explained(self, error: Exception, run: Run) -> Exception:
        """What to raise when training has failed: the mistake by its name, or the user's exception with notes."""
        args, state, update = self.args, self.state, run.update
        half = args.bf16 or args.fp16
        memory = Memory(self._train_batch_size, args.gradient_accumulation_steps, args.gradient_checkpointing, half)
        reason = error
        if update is not None and run.in_hand is None and "device-side assert" in str(error):
            run.in_hand = update.batches[-1]  # a device reports late
        if update is not None and run.in_hand is not None:
            where = f"at step {state.global_step + 1} of {state.max_steps}"
            scene = self._scene(run.in_hand, run.loader, "training set", update.epoch, run.number_in_hand())
            reason = explained(error, scene, where, memory)
        checkpoint = self._checkpoint_of(run)
        if checkpoint is not None:
            note_checkpoint(reason, checkpoint)
        return reason

    def _checkpoint_of(self, run: Run) -> str | None:
        """The newest checkpoint that this run has written, if it can be resumed from."""
        own = self._run_home.checkpoints(self._home) if not self.args.save_only_model else []
        return own[-1].name if own else None

    def _explained_evaluation(self, error: Exception, in_hand: InHand, loader: Any, data: str) -> Exception:
        """The same for an evaluation or a prediction."""
        return explained_evaluation(
            error,
            self._scene(in_hand.batch, loader, data, 0, in_hand.number),
            doing=in_hand.doing,
            given=in_hand.given,
            functions={"metrics": self.compute_metrics, "logits": self.preprocess_logits_for_metrics},
            number=in_hand.number,
            memory=Memory(self.args.eval_batch_size, None),
        )

    def _without_labels(self, loader: Any, data: str, batch: Batch) -> None:
        """compute_metrics is given, and the batches have no labels to call it with."""
        is_mistake = data != "prediction set" and not self.can_return_loss
        tell_no_labels(self._scene(batch, loader, data, 0, 0), is_mistake=is_mistake)

    def _rehearse(self, ignore_keys: list[str] | None) -> None:
        """Try metrics on the first batch of the first evaluation; leaves no trace."""
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {None: self.eval_dataset}
        if not self._can_rehearse(list(sets.values())):
            return
        names = {"eval" if name is None else f"eval_{name}": name for name in sets}
        stage = rehearsal.Stage(
            prefixes=list(names),
            attempt=lambda prefix, whole: self._attempt(prefix, names[prefix], ignore_keys, whole=whole),
            wanted=None if self._may_add_metrics() else self._wanted_metric(),
            anyone=self._anyone,
        )
        shifts = self._loss_shifts_labels, self.objective.smoother_shifts
        try:
            with rehearsal.untouched(self.model, *self._memories(list(sets.values()))):
                rehearsal.rehearse(stage)
        finally:
            self._loss_shifts_labels, self.objective.smoother_shifts = shifts

    def _can_rehearse(self, sets: list[Any]) -> bool:
        """Whether there is anything to try, and trying it cannot change anything."""
        args = self.args
        return (
            args.eval_strategy != IntervalStrategy.NO
            and (self.compute_metrics is not None or self._wanted_metric() is not None)
            and not args.eval_on_start
            and not args.batch_eval_metrics
            and self.state.global_step < self.state.max_steps
            and not any(part is None or is_iterable(part) for part in sets)
            and not any(map(self._is_overridden, _KEEP_STATE))
            and can_be_put_back(*self._memories(sets))
        )

    def _memories(self, sets: list[Any]) -> list[Any]:
        """Whatever an evaluation calls that may remember it."""
        functions = [self.data_collator, self.compute_metrics, self.preprocess_logits_for_metrics]
        return [*functions, *sets, getattr(self.model, "config", None)]

    def _anyone(self, says: bool) -> bool:
        """Whether any process says so."""
        return says if self.args.world_size == 1 else bool(self.strategy.sum(torch.tensor(float(says))))

    def _attempt(
        self, prefix: str, name: str | None, ignore_keys: list[str] | None, *, whole: bool
    ) -> rehearsal.Outcome:
        """Evaluate one set, or its first batch, unheard."""
        loader, in_hand = self.get_eval_dataloader(name), InHand()
        loader.num_workers, loader.pin_memory = 0, False  # starting workers for one batch would take longer than it
        data, loss_only = evaluated_set("Evaluation", prefix, self.eval_dataset), self.compute_metrics is None or None
        plan = replace(self._eval_plan(loader, data, loss_only, ignore_keys, prefix), tells=False)
        model = self._wrap_model(self.model, training=False)
        model.eval()
        try:
            with self.precision.forward(self.model):
                batches = loader if whole else itertools.islice(loader, 1)
                output = evaluating.evaluation_loop(self, model, batches, plan, in_hand)
        except Exception as error:
            reason = self._explained_evaluation(error, in_hand, loader, data)
            return rehearsal.Outcome({}, reason, in_metrics=in_hand.doing == "metrics")
        return rehearsal.Outcome(output.metrics or {})

    def _wanted_metric(self) -> str | None:
        """The metric that decides about the best model, or about the learning rate."""
        if self.args.metric_for_best_model is None and schedulers.steps_on_metric(self.lr_scheduler):
            return "loss"
        return self.args.metric_for_best_model

    # ---- data (data/) --------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The loader that training iterates over."""
        if self.train_dataset is None:
            raise mistakes.no_train_dataset()
        is_mixture = isinstance(mixed(self.train_dataset), Mixture)
        check_order(self.args, self.train_dataset, self.sampler, self.batch_sampler, is_mixture=is_mixture)
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """The loader for evaluation; a string names one of several evaluation sets."""
        if eval_dataset is None and self.eval_dataset is None:
            raise mistakes.no_eval_dataset()
        key = eval_dataset if isinstance(eval_dataset, str) else "eval"
        if isinstance(eval_dataset, str):
            if not isinstance(self.eval_dataset, dict) or eval_dataset not in self.eval_dataset:
                raise mistakes.no_such_evaluation_set(eval_dataset, self.eval_dataset)
            dataset = self.eval_dataset[eval_dataset]
        else:
            dataset = eval_dataset if eval_dataset is not None else self.eval_dataset
        return self._get_dataloader(
            dataset=dataset,
            description="Evaluation",
            batch_size=self.args.eval_batch_size,
            sampler_fn=self._get_eval_sampler,
            dataloader_key=key,
        )

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """The loader for prediction."""
        return self._get_dataloader(
            dataset=test_dataset,
            description="test",
            batch_size=self.args.eval_batch_size,
            sampler_fn=self._get_eval_sampler,
        )

    def _get_dataloader(
        self,
        dataset: Any,
        description: str,
        batch_size: int,
        sampler_fn: Callable[[Any], Sampler[Any] | None] | None = None,
        is_training: bool = False,
        dataloader_key: str | None = None,
    ) -> DataLoader[Any]:
        if isinstance(dataset, DataLoader):
            check_loader(dataset, LoaderSettings.of(self.args), description, training=is_training)
            return dataset
        collator, dataset = self.data_collator, mixed(dataset) if is_training else dataset
        if isinstance(dataset, Mixture):
            dataset, collator = self._mixture_with_used_columns(dataset, description)
        elif columns.has_columns(dataset):
            dataset = self._remove_unused_columns(dataset, description=description)
        else:
            collator = self._get_collator_with_removed_columns(collator, description=description)
        if is_training and self.args.split_by_length:
            # All rows of an optimizer step are cut together.
            collator = SplitCollator(collator, rows_at_once=batch_size)
            batch_size *= self.args.gradient_accumulation_steps
        elif is_training and self.args.packing:
            collator = self._packing(dataset, collator)
        batch_sampler = self._get_train_batch_sampler(dataset, collator) if is_training else None
        has_order = batch_sampler is None and not is_iterable(dataset)
        sampler = sampler_fn(dataset) if sampler_fn is not None and has_order else None
        if is_training and self.args.skip_bad_rows:
            if isinstance(dataset, Mixture) or is_iterable(dataset):
                raise mistakes.skipping_needs_rows("a mixture" if isinstance(dataset, Mixture) else "a stream")
            dataset, collator = SkippingRows(dataset), SkippingCollator(collator)
        if isinstance(dataset, Mixture):
            dataset, collator = dataset.with_sets(lambda name, rows: rows, tagged=True), SourceCollator(collator)
        return loaders.build_loader(
            dataset,
            batch_size=batch_size,
            sampler=sampler,
            collate_fn=collator,
            settings=LoaderSettings.of(self.args),
            training=is_training,
            description=description,
            batch_sampler=batch_sampler,
        )

    def _mixture_with_used_columns(self, mixture: Mixture, description: str) -> tuple[Mixture, Callable[..., Any]]:
        """Each set of a mixture without what the model does not take, and a collator for those that keep it."""

        def used(name: str, part: Any) -> Any:
            known = columns.has_columns(part)
            return self._remove_unused_columns(part, description=f"{name!r} {description.lower()}") if known else part

        if all(map(columns.has_columns, mixture.sets.values())):
            return mixture.with_sets(used), self.data_collator
        collator = self._get_collator_with_removed_columns(self.data_collator, description=description)
        return mixture.with_sets(used), collator

    @property
    def skipped_rows(self) -> dict[int, str]:
        """With `skip_bad_rows`: the training rows that could not be read so far, and why."""
        return dict(self._run.skipped.reasons) if self._run is not None and self._run.skipped is not None else {}

    def _packing(self, dataset: Any, collator: Callable[[list[Any]], Any]) -> Any:
        """The collator that lays rows end to end, tried on the first rows of the data set."""
        if is_iterable(dataset):
            raise mistakes.packing_of_a_stream()
        with undisturbed():
            rows = [dataset[index] for index in range(min(4, len(dataset)))]
        note_once("packing=True: training rows are laid end to end; data_collator is used in evaluation only")
        return packing_for(self.model, rows, collator)

    def _get_train_batch_sampler(self, dataset: Any, collator: Any) -> Any:
        """Batches that are not so many rows each: the user's own, or what fits into `max_tokens_per_batch`."""
        settings = LoaderSettings.of(self.args)
        if self.batch_sampler is not None:
            return shared_batches(self.batch_sampler, settings)
        if settings.max_tokens is None:
            return None
        if self._is_overridden("_get_train_sampler"):
            raise mistakes.budget_and_own_order(settings.max_tokens, type(self).__name__)
        return token_batches(
            dataset,
            settings,
            input_name=_model_input_name(self.processing_class),
            pad_to_multiple_of=pads_to_multiple_of(collator),
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Any] | None:
        """The order of the rows of an epoch."""
        dataset = mixed(train_dataset if train_dataset is not None else self.train_dataset)
        if self.sampler is not None:
            return shared_order(self.sampler, LoaderSettings.of(self.args))
        if isinstance(dataset, Mixture):
            return MixtureSampler(dataset, self.args.data_seed)
        return samplers.train_sampler(
            dataset,
            LoaderSettings.of(self.args),
            batch_size=self._train_batch_size * self.args.gradient_accumulation_steps,
            input_name=_model_input_name(self.processing_class),
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[Any] | None:
        """Evaluation goes through the rows in order."""
        return samplers.eval_sampler(eval_dataset)

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """How many rows a loader goes through."""
        return num_examples(dataloader, batch_size=self._train_batch_size)

    def _set_signature_columns_if_needed(self) -> None:
        """Fill `_signature_columns`: what the model takes, and the names of labels."""
        if self._signature_columns is None:
            self._signature_columns = columns.signature_columns(self.model, self.label_names)

    def model_columns(self, dataset: Any = None) -> columns.ColumnChoice:
        """Which columns of a data set (the training set) reach the model, which do not, and why."""
        self._set_signature_columns_if_needed()
        return columns.choose_columns(
            dataset if dataset is not None else self.train_dataset,
            self._signature_columns or [],
            removes=self.args.remove_unused_columns,
            model_name=self._model_name,
        )

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        if not self.args.remove_unused_columns:
            return dataset
        self._set_signature_columns_if_needed()
        return columns.remove_unused_columns(
            dataset, self._signature_columns or [], description=description, model_name=type(self.model).__name__
        )

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[..., Any], description: str | None = None
    ) -> Callable[..., Any]:
        if not self.args.remove_unused_columns:
            return data_collator
        self._set_signature_columns_if_needed()
        return columns.RemoveColumnsCollator(
            data_collator=data_collator,
            signature_columns=self._signature_columns or [],
            description=description,
            model_name=type(self.model).__name__,
        )

    # ---- optimizer and schedule (optim/) ---------------------------------------------------------------

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Make what was not given."""
        self.create_optimizer()
        self.create_scheduler(num_training_steps=num_training_steps)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The optimizer of the arguments, with weight decay where it belongs."""
        if self.optimizer is None:
            model = model if model is not None else self.model
            if self.optimizer_cls_and_kwargs is not None:
                kind, options = self.optimizer_cls_and_kwargs
            else:
                kind, options = self.get_optimizer_cls_and_kwargs(self.args, model)
            names = self.get_decay_parameter_names(model)
            self.optimizer = kind(groups.parameter_groups(model, names, self.args.weight_decay), **options)
        return self.optimizer

    @staticmethod
    def get_optimizer_cls_and_kwargs(
        args: TrainingArguments, model: nn.Module | None = None
    ) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """The class behind `optim`, and the arguments to make one."""
        return optimizers.optimizer_class_and_kwargs(OptimizerSettings.of(args))

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The parameters that weight decay applies to: all but biases and norms."""
        return groups.decay_parameter_names(model)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """The learning-rate schedule of the arguments."""
        if self.lr_scheduler is None:
            settings = ScheduleSettings.of(self.args, num_training_steps)
            self.lr_scheduler = schedulers.build_schedule(
                settings, optimizer if optimizer is not None else self.optimizer
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def get_learning_rates(self) -> list[float]:
        """The rate of every parameter group."""
        return [group["lr"] for group in self._existing_optimizer().param_groups]

    def get_optimizer_group(self, param: str | nn.Parameter | None = None) -> Any:
        """The group that holds a parameter, or all groups as lists of parameters."""
        parameter_groups = self._existing_optimizer().param_groups
        if param is None:
            return [group["params"] for group in parameter_groups]
        found = [group for group in parameter_groups if any(one is param for one in group["params"])]
        return found[0] if found else None

    def _existing_optimizer(self) -> torch.optim.Optimizer:
        if self.optimizer is None:
            raise mistakes.no_optimizer()
        return self.optimizer

    def get_num_trainable_parameters(self) -> int:
        """How many numbers training changes."""
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)

    # ---- the run's directory (checkpoint/) -----------------------------------------------------------------

    @contextmanager
    def _at_home(self, trial: Any) -> Iterator[None]:
        """The directory can be written to, and this is the only run in it."""
        with ExitStack() as at_home:
            if self._writes_checkpoints() and self.is_world_process_zero():
                at_home.enter_context(self._run_home.occupied(Path(self._get_output_dir(trial))))
            self.strategy.barrier()  # nobody looks for checkpoints while leftovers are swept
            yield

    def _writes_checkpoints(self) -> bool:
        return self.args.save_strategy != SaveStrategy.NO or self.args.load_best_model_at_end

    def _check_space(self, plan: Plan, trial: Any) -> None:
        settings, state = SaveSettings.of(self.args), self.state
        if settings.strategy == SaveStrategy.NO or not self.is_world_process_zero():
            return
        by_steps = settings.strategy == SaveStrategy.STEPS and state.save_steps
        self._run_home.check_space(
            Path(self._get_output_dir(trial)),
            self.model,
            None if settings.only_model else self.optimizer,
            saves=-(-(plan.max_steps - state.global_step) // state.save_steps) if by_steps else None,
            limit=settings.total_limit,
        )

    # ---- saving (checkpoint/) ----------------------------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model so that it can be loaded again (`from_pretrained` where the model has it)."""
        if self.args.should_save:
            self._save(output_dir if output_dir is not None else str(self._home))

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        directory = Path(output_dir) if output_dir is not None else self._home
        directory.mkdir(parents=True, exist_ok=True)
        weights.save_model(self.model, directory, state_dict=state_dict, processing_class=self.processing_class)
        (directory / TRAINING_ARGS_JSON_NAME).write_text(self.args.to_json_string() + "\n", encoding="utf-8")

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._home)

    @property
    def _home(self) -> Path:
        return Path(self.args.output_dir or "trainer_output")

    def _saves_this_step(self) -> bool:
        return self.control.should_save or self.args.save_strategy == SaveStrategy.BEST

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """`checkpoint-N`, which appears whole or not at all."""
        settings, run_dir = SaveSettings.of(self.args), Path(self._get_output_dir(trial=trial))
        self.store_flos()
        target = run_dir / f"{retention.PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.state.best_global_step == self.state.global_step:
            self.state.best_model_checkpoint = str(target)
        with atomic_directory(target, leader=self.args.should_save, barrier=self.strategy.barrier) as directory:
            self.save_model(str(directory), _internal_call=True)
            if not settings.only_model:
                self._save_optimizer_and_scheduler(str(directory))
                self._save_scaler(str(directory))
                self._save_rng_state(str(directory))
                if settings.for_transformers:
                    self._save_for_transformers(directory)
            assert self._run is not None
            progress = self._run.progress(self.strategy.mean)  # asked of all processes: what they have summed up
            if self.args.should_save:
                self._save_progress(directory, progress)
                self._run_home.stamp(directory, target)
        if self.args.should_save:
            if self.state.best_model_checkpoint == str(target):
                self._drop_best_weights(run_dir / BEST_MODEL)
            retention.rotate(
                run_dir,
                settings.total_limit,
                keep=[self.state.best_model_checkpoint or ""],
                run_id=self._run_home.run_id,
            )

    def _save_for_transformers(self, directory: Path) -> None:
        add_transformers_files(
            directory,
            optimizer=self._existing_optimizer(),
            scheduler=self.lr_scheduler,
            scaler=getattr(self.precision, "scaler", None),
            rank=self.args.process_index,
            world_size=self.args.world_size,
            leads=self.args.should_save,
        )

    def _save_progress(self, directory: Path, progress: dict[str, Any]) -> None:
        self.state.stateful_callbacks = self._callback_states()
        self.state.save_to_json(directory / TRAINER_STATE_NAME)
        checkpointer.save_loop_state(directory, progress)

    def _callback_states(self) -> dict[str, Any]:
        return export_callbacks([*self.callback_handler.callbacks, self.control])

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            checkpointer.save_training_parts(
                output_dir, optimizer=self._existing_optimizer(), scheduler=self.lr_scheduler
            )

    def _save_scaler(self, output_dir: str) -> None:
        scaler = getattr(self.precision, "scaler", None)
        if self.args.should_save and scaler is not None:
            write_tree(scaler.state_dict(), Path(output_dir), "scaler")

    def _save_rng_state(self, output_dir: str) -> None:
        checkpointer.save_random_state(output_dir, self.args.process_index, self.args.world_size)

    def _keep_best_weights(self, trial: Any) -> None:
        """The best model is not a resume point: its weights are kept apart when no checkpoint is due."""
        target = Path(self._get_output_dir(trial)) / BEST_MODEL
        with atomic_directory(target, leader=self.args.should_save, barrier=self.strategy.barrier) as directory:
            self.save_model(str(directory), _internal_call=True)
            if self.args.should_save:
                self.state.save_to_json(directory / TRAINER_STATE_NAME)
                self._run_home.stamp(directory, target)
        self.state.best_model_checkpoint = str(target)

    def _drop_best_weights(self, kept_apart: Path) -> None:
        """A checkpoint is the best now: the weights kept apart for an earlier one are not needed any more."""
        if self._run_home.owns(kept_apart):
            discard(kept_apart)

    def _load_best_model(self) -> None:
        """Put the best weights into the model."""
        best = Path(self.state.best_model_checkpoint or "")
        weights.load_weights(self.model, best)
        note(f"loaded the best model, of step {self.state.best_global_step}, from {best}")

    # ---- resuming (checkpoint/) ----------------------------------------------------------------------------

    def _checkpoint_to_resume(self, wanted: str | bool | None) -> str | None:
        if wanted is None or wanted is False:
            return None
        if wanted is not True:
            if not Path(wanted).is_dir():
                raise mistakes.no_such_checkpoint(str(wanted), self._home)
            return str(wanted)
        found = identity.latest_run_checkpoint(self._home)
        if found is None:
            raise mistakes.no_checkpoint(self._home)
        return str(found)

    def _read_checkpoint(self, checkpoint: str, plan: Plan, loader: Any) -> Resumed:
        """What a checkpoint tells of the run, and how long the run will be from there on."""
        opened = open_checkpoint(checkpoint)
        state = opened.state()
        progress = opened.loop_state(
            batches_per_epoch=plan.batches_per_epoch,
            accumulation=plan.accumulation,
            epoch_closed=self._saves_after_epochs(),
        )
        return Resumed.at(
            checkpoint,
            state,
            progress,
            plan,
            batching_of(loader),
            epochs=self.args.num_train_epochs,
            max_steps=self.args.max_steps,
            processes=self.args.world_size,
        )

    def _resume(self, resumed: Resumed, run: Run) -> None:
        """Load everything; the random streams come last, when the data stand where they stood."""
        checkpoint = resumed.checkpoint
        self._load_from_checkpoint(checkpoint)
        self._load_optimizer_and_scheduler(checkpoint)
        self._load_scaler(checkpoint)
        self._load_callback_state()
        run.restore(resumed.progress)
        if self.args.ignore_data_skip:
            run.place.restart_epoch()
            note(
                "ignore_data_skip=True: the epoch starts again with its first batch; this is not the same run any more"
            )
        if resumed.has_other_processes:
            run.restore_streams = partial(set_seed, self.args.seed + self.state.global_step)
        else:
            run.restore_streams = partial(self._load_rng_state, checkpoint)
        note(f"resuming from {checkpoint}: step {self.state.global_step} of {self.state.max_steps}")
        for change in resumed.changes:
            note(change)

    def _saves_after_epochs(self) -> bool:
        args = self.args
        return (args.eval_strategy if args.save_strategy == SaveStrategy.BEST else args.save_strategy) == "epoch"

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        open_checkpoint(resume_from_checkpoint).load_weights(model if model is not None else self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            open_checkpoint(checkpoint).load_training_parts(
                optimizer=self._existing_optimizer(), scheduler=self.lr_scheduler
            )

    def _load_scaler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            open_checkpoint(checkpoint).load_scaler(getattr(self.precision, "scaler", None))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            open_checkpoint(checkpoint).load_random_state(self.args.process_index, self.args.world_size)

    def _load_callback_state(self) -> None:
        """Callbacks with a state go on where they were."""
        saved = copy.deepcopy(self.state.stateful_callbacks)
        for callback in self.callback_handler.callbacks:
            if not isinstance(callback, ExportableState):
                continue
            states = saved.get(type(callback).__name__)
            state = states.pop(0) if isinstance(states, list) and states else states
            if isinstance(state, dict):
                for name, value in {**state["args"], **state["attributes"]}.items():
                    setattr(callback, name, value)

    # ---- numbers and files -----------------------------------------------------------------------------

    @staticmethod
    def metrics_format(metrics: dict[str, Any]) -> dict[str, Any]:
        """Metrics as people read them."""
        return metrics_text.metrics_format(metrics)

    def log_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Print metrics as a small table."""
        if self.is_world_process_zero():
            print(metrics_text.metrics_table(split, metrics))  # noqa: T201

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Write `{split}_results.json`, and add to `all_results.json`."""
        if self.is_world_process_zero():
            metrics_text.write_metrics(self._home, split, metrics, combined=combined)

    def save_state(self) -> None:
        """Write `trainer_state.json` into the output directory."""
        if self.is_world_process_zero():
            self._home.mkdir(parents=True, exist_ok=True)
            self.state.save_to_json(self._home / TRAINER_STATE_NAME)

    def floating_point_ops(self, inputs: Batch) -> int:
        """The operations of one batch, as far as the model tells."""
        return operations(self.model, inputs)

    def _flop_counter(self) -> FlopCounter:
        overridden = self._is_overridden("floating_point_ops")
        return FlopCounter(
            count=self.floating_point_ops if overridden or tells_operations(self.model) else None,
            by_shape_of=None if overridden else input_that_decides(self.model),
        )

    def store_flos(self) -> None:
        """Move the operations counted so far into the state."""
        if self._run is not None:
            self.current_flos += self._run.flops.take()
        total = torch.tensor(self.current_flos, dtype=torch.float64)
        self.state.total_flos += float(self.strategy.sum(total)) if self.args.world_size > 1 else self.current_flos
        self.current_flos = 0.0

    def is_local_process_zero(self) -> bool:
        """Whether this is the main process of its machine."""
        return self.args.local_process_index == 0

    def is_world_process_zero(self) -> bool:
        """Whether this is the main process of all."""
        return self.args.process_index == 0

    @property
    def _total_loss_scalar(self) -> float:
        return self._run.meter.total if self._run is not None else 0.0

    @_total_loss_scalar.setter
    def _total_loss_scalar(self, total: float) -> None:
        if self._run is not None:
            self._run.meter.total = total

    @property
    def _globalstep_last_logged(self) -> int:
        return self._run.meter.last_step if self._run is not None else 0

    @_globalstep_last_logged.setter
    def _globalstep_last_logged(self, step: int) -> None:
        if self._run is not None:
            self._run.meter.last_step = step

    def _count_tokens(self, batches: list[Batch]) -> None:
        """Count the input tokens of an update."""
        if self._is_overridden("_track_num_input_tokens"):
            for batch in batches:
                self._track_num_input_tokens(batch)
            return
        # Summed up first: processes may cut their batches into different numbers of micro-batches.
        own = sum(map(self._tokens_in, batches))
        self.state.num_input_tokens_seen += int(self.strategy.sum(torch.tensor(own)))

    def _track_num_input_tokens(self, inputs: Batch) -> None:
        """Count the input tokens of one micro-batch over all processes."""
        self.state.num_input_tokens_seen += int(self.strategy.sum(torch.tensor(self._tokens_in(inputs))))

    def _tokens_in(self, inputs: Batch) -> int:
        return count_tokens(
            inputs,
            main_input=getattr(self.model, "main_input_name", "input_ids"),
            mode=str(self.args.include_num_input_tokens_seen),
            pad_token_id=getattr(self.processing_class, "pad_token_id", None),
        )

    def _is_overridden(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(Trainer, method) or method in vars(self)

    # ---- not here yet ------------------------------------------------------------------------------------

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Not here yet."""
        raise mistakes.no_search()

    def get_tp_size(self) -> int:
        """Processes that share one copy of each layer."""
        return 1

    def get_cp_size(self) -> int:
        """Processes that share one sequence."""
        return 1

    def get_sp_size(self) -> int:
        """Processes that share one sequence, by heads."""
        return 1

    def _hp_search_setup(self, trial: Any) -> None:
        if trial is not None:
            self.hyperparameter_search()

    def _report_to_hp_search(self, trial: Any, step: int, metrics: dict[str, float]) -> None:
        """Nothing to report to without a search."""

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Not here yet."""
        raise mistakes.no_hub()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Not here yet."""
        raise mistakes.no_model_card()


def _model_input_name(processing_class: Any) -> str:
    names = getattr(processing_class, "model_input_names", None)
    return names[0] if names else "input_ids"
