"""The public `Trainer`. Each method is an override point, and its section names the package of its default."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Sampler

# The modules of these packages load when they are first used (core/lazy_package.py).
from . import (
    arguments,
    compat,
    data,
    diagnostics,
    engine,
    evaluation,
    hub,
    journal,
    metrics,
    optim,
    progress,
    search,
    strategies,
    trackers,
)
from . import checkpoint as checkpoints
from . import report as run_report
from .arguments import usage_errors
from .arguments.from_transformers import convert_arguments
from .arguments.metaclass import TrainerType
from .arguments.shard_settings import ShardSettings
from .arguments.training_args import TrainingArguments
from .arguments.validate_trainer import (
    check_model,
    check_optimizer,
    check_optimizers,
    check_order,
    check_quantization,
    check_trainer,
    check_types,
    is_left_to_subclass,
)
from .callbacks.events import CleansUp, TrainerCallback
from .callbacks.flow import DefaultFlowCallback
from .callbacks.handler import CallbackHandler, emit
from .core import accelerator, metrics_text
from .core.choices import HPSearchBackend, ResumeMode, SaveStrategy
from .core.logged_numbers import collect_numbers, track
from .core.memory_tracker import TrainerMemoryTracker
from .core.notices import note, note_once
from .core.outputs import BestRun, EvalLoopOutput, PredictionOutput, TrainOutput
from .core.protocols import Batch, Precision, Strategy
from .core.random import enable_full_determinism, preserve_rng, set_seed
from .core.state import TrainerControl, TrainerState, export_callbacks
from .core.timing import speed_metrics
from .core.tracebacks import ShortTraceback
from .core.tree import make_plain
from .core.world import World
from .loss.counting import count_targets, has_shifted_labels, observe_shift, weigh
from .loss.model_outputs import BareTensorError
from .loss.objective import Objective, ScaledLoss, build_zero_loss
from .loss.row_independence import check_row_independence
from .loss.signatures import LossSignature, can_take_num_items
from .loss.smoothing import LabelSmoother, build_smoother

# Methods in which a subclass may compute metrics of its own, under any name.
_MAY_ADD_METRICS = ("evaluate", "_evaluate", "evaluation_loop", "prediction_step", "compute_loss", "log")


# The callbacks of every trainer, for code that changes the list. `DEFAULT_PROGRESS_CALLBACK` may be set as well.
DEFAULT_CALLBACKS: list[Any] = [DefaultFlowCallback]


def __getattr__(name: str) -> Any:
    """Return `DEFAULT_PROGRESS_CALLBACK`, the display that fits where the process runs."""
    if name != "DEFAULT_PROGRESS_CALLBACK":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if progress.notebook.is_notebook():
        return progress.notebook.NotebookProgressCallback
    return progress.callback.ProgressCallback


def _find_default(name: str) -> Any:
    """Return a default of this module, or what a script has put in its place here or in transformers' module."""
    return _find_replaced(name) or globals().get(name) or __getattr__(name)


def _find_replaced(name: str, own: Any = None) -> Any:
    """Return `own`, or what a script has put in its place in transformers' module of the trainer."""
    there = compat.install.find_changed("transformers.trainer", name)
    return own if there is None else there


def _write_report(*args: Any, **kwargs: Any) -> None:
    """Write the report of a run. Its module is loaded when the run has ended."""
    run_report.write_report(*args, **kwargs)


def _take_tokenizer(tokenizer: Any, processing_class: Any) -> Any:
    if processing_class is not None:
        raise usage_errors.duplicate_tokenizer()
    note_once("tokenizer= is now processing_class=")
    return tokenizer


class Trainer(metaclass=TrainerType):
    """Train, evaluate and predict with any `nn.Module`.

    Override a method in a subclass to change one thing; every method may call `super()`.

    Args:
        model: The model to train; or pass `model_init`.
        args: The training arguments.
        data_collator: A function that turns a list of rows into a batch. By default rows are padded if
            `processing_class` can do it, and stacked otherwise.
        train_dataset: The rows to train on, or a `DataLoader`.
        eval_dataset: The rows to evaluate on; an `EvalSet`, or a dict of several sets.
        processing_class: The tokenizer or processor of the model.
        model_init: A function that returns a new model for every `train`. It takes no argument, or a trial.
        compute_loss_func: A function of outputs, labels and `num_items_in_batch` that returns the loss.
        compute_metrics: A function of an `EvalPrediction` that returns a dict; or names, a streaming metric or "auto".
        callbacks: Callbacks to add to the default ones, as classes or instances.
        optimizers: An optimizer and a schedule; None for those of the arguments.
        optimizer_cls_and_kwargs: The class of the optimizer and its arguments. A class whose objects are called with
            the model and these arguments, and return an optimizer, groups the parameters itself.
        preprocess_logits_for_metrics: A function of logits and labels; its result is kept in place of the logits.
        tokenizer: The older name of `processing_class`.
        strategy: Where parameters live and how processes exchange data; by default chosen from the environment.
        sampler: The order of the training rows.
        batch_sampler: The batches of the training rows.
        metrics: Names and streaming metrics for evaluation.
        train_metrics: Names and streaming metrics for the training batches.

    >>> trainer = Trainer(model, TrainingArguments("out"), train_dataset=rows)  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP
    """

    # ---- attributes ----------------------------------------------------------------------------------
    # All attributes are declared here. Those of the first three groups may be read and replaced by users at any time.

    # given by the user
    args: TrainingArguments
    model: nn.Module
    model_init: Callable[..., nn.Module] | None
    processing_class: Any
    data_collator: Callable[[list[Any]], dict[str, Any]]
    train_dataset: Any
    eval_dataset: Any
    sampler: Any
    batch_sampler: Any
    compute_metrics: Any
    train_metrics: Any
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None
    optimizer: Any  # None until a run creates one
    lr_scheduler: Any
    optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None
    neftune_noise_alpha: float | None

    # the model's labels and loss
    label_names: list[str]
    can_return_loss: bool
    loss_is_scaled_for_ga: bool | None = None  # stated by a subclass; True: divided for accumulation; None: determined
    loss_objective: Objective

    # the state of a run
    state: TrainerState
    control: TrainerControl
    callback_handler: CallbackHandler
    is_in_train: bool
    model_wrapped: nn.Module  # the module that the loop calls: compiled, replicated
    current_flos: float  # since the last `store_flos`
    current_gradient_accumulation_steps: int
    model_preparation_time: float = 0.0
    hub_model_id: str | None = None  # once a repository was requested
    push_in_progress: hub.uploads.PushInProgress | None = None  # the last one that did not block

    # a search
    hp_space: Any
    hp_name: Callable[[Any], str] | None
    hp_search_backend: Any  # while a search lasts
    compute_objective: Any
    objective: Any  # of the current trial, as its last evaluation gave it

    # parts
    world: World
    strategy: Strategy
    precision: Precision
    accelerator: compat.accelerator_view.AcceleratorView  # a view on the strategy, for subclasses
    _memory_tracker: TrainerMemoryTracker
    _run: engine.run.Run | None = None  # the current run, or the last
    _run_directory: checkpoints.run_directory.RunDirectory  # its directory
    _train_window: metrics.train_window.MetricWindow | None
    _publishing: hub.publisher.Publisher | None = None
    _compiled: strategies.called_model.Compiled | None = None

    # internal state
    _metrics_argument: Any
    _trial: Any  # the current one of a search, or the last
    _trial_directory: Path | None
    _search: search.session.SearchSession | None
    _searched: str | None = None  # the last study
    _train_batch_size: int
    _signature_columns: list[str] | None
    _created_lr_scheduler: bool
    _eval_dataloaders: dict[str, DataLoader[Any]]
    _output_names: evaluation.step.OutputNames
    _places_model: bool | None = None  # set by the user; None: as the arguments say
    _rehearsed: diagnostics.dry_run.Rehearsal | None = None  # the last one that succeeded
    _resume_mode: ResumeMode = ResumeMode.RESUME  # of the last `train`
    _restart: engine.batch_size_search.Restart | None = None  # of a run that goes on with smaller batches
    _split_is_checked: bool = False
    _found: dict[str, Any] = {}  # labels and loss as determined from the model
    _loss_shifts_labels: bool | None = None
    _known_signature: tuple[Any, LossSignature] | None = None
    _initial_num_input_tokens_seen: int = 0

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
        compute_metrics: Any = None,
        callbacks: list[TrainerCallback | type[TrainerCallback]] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        *,
        tokenizer: Any = None,
        strategy: Strategy | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        metrics: Any = None,
        train_metrics: Any = None,
    ) -> None:
        self.args = args = convert_arguments(args)
        self._memory_tracker = TrainerMemoryTracker(args.skip_memory_metrics, args.device)
        self._memory_tracker.start()
        args.apply_log_level()
        compat.legacy_names.note_overrides_without_effect(type(self), Trainer)
        check_types(
            self._is_replaced,
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
        check_optimizers(optimizers, optimizer_cls_and_kwargs, model_init)
        check_trainer(args, train_dataset, eval_dataset)
        self._set_seed()
        self._set_up_model(model, model_init, strategy)
        if train_dataset is not None:
            check_quantization(self.model)
        self.processing_class = processing_class if tokenizer is None else _take_tokenizer(tokenizer, processing_class)
        self.data_collator = data_collator if data_collator is not None else self._build_default_collator()
        self.train_dataset = train_dataset
        self.eval_dataset = eval_dataset
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.compute_metrics = compute_metrics
        self._metrics_argument = metrics
        self.train_metrics = train_metrics
        evaluation.train_metrics.parse_train_metrics(train_metrics)
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.optimizer, self.lr_scheduler = optimizers[0], optimizers[1]
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.neftune_noise_alpha = args.neftune_noise_alpha
        self._check_order_and_metrics(self._is_replaced)
        self._set_up_loss(compute_loss_func)
        self._set_up_callbacks(callbacks)
        self._set_up_state()
        if args.push_to_hub:
            self.init_hf_repo()
        self._memory_tracker.stop_and_update_metrics()
        emit(self, "on_init_end")

    if not TYPE_CHECKING:  # type checkers see only the names that exist

        def __getattr__(self, name: str) -> Any:
            """Return an attribute under a name of transformers' older or other parts (compat/legacy_names.py)."""
            return compat.legacy_names.resolve_missing_attribute(self, name)

    def create_accelerator_and_postprocess(self) -> None:
        """Create `self.accelerator`, which subclasses use for devices, gathering and unwrapping."""
        self.accelerator = compat.accelerator_view.AcceleratorView(self)

    # ---- set-up in the constructor -------------------------------------------------------------------

    def _check_replaceable(self, is_replaced: Callable[[str], bool]) -> None:
        """Check what was passed, as it is after the constructor of a subclass."""
        if "_run_directory" not in vars(self):  # it did not call the constructor of this class
            return
        check_types(
            is_replaced,
            data_collator=self.data_collator,
            train_dataset=self.train_dataset,
            eval_dataset=self.eval_dataset,
            compute_loss_func=self.compute_loss_func,
            compute_metrics=self.compute_metrics,
            preprocess_logits_for_metrics=self.preprocess_logits_for_metrics,
        )
        self._check_order_and_metrics(is_replaced)

    def _check_order_and_metrics(self, is_replaced: Callable[[str], bool]) -> None:
        """Check the order of the rows, the metrics and the optimizer, except those that a subclass sees to."""
        if not is_left_to_subclass("optimizer", is_replaced):
            check_optimizer(self.optimizer, self.model)
        if not is_left_to_subclass("train_dataset", is_replaced):
            self._check_order()
        if not is_left_to_subclass("compute_metrics", is_replaced):
            evaluation.request.check_requested(self)

    def _check_order(self) -> None:
        is_mixture = isinstance(data.mixture.convert_to_mixture(self.train_dataset), data.mixture.Mixture)
        check_order(self.args, self.train_dataset, self.sampler, self.batch_sampler, is_mixture=is_mixture)

    def _set_seed(self) -> None:
        enable_full_determinism(self.args.seed) if self.args.full_determinism else set_seed(self.args.seed)

    def _set_up_model(
        self, model: nn.Module | None, model_init: Callable[..., nn.Module] | None, strategy: Strategy | None
    ) -> None:
        """Set the model, and choose where and in which number format it computes."""
        self.model_init = model_init
        self.hp_space = self.hp_name = self.hp_search_backend = self.compute_objective = self.objective = None
        self._trial = self._trial_directory = self._search = None
        self.model = model if model is not None else self.call_model_init()
        self.world = World.from_environment()
        self.strategy = strategy or strategies.choose.choose_strategy(
            self.world,
            self._choose_device(),
            arguments.settings.ReplicaSettings.of(self.args),
            ShardSettings.of(self.args),
            self.model,
        )
        self.args.model_parallel_size = self.strategy.processes // self.strategy.size
        self.precision = strategies.precision.choose_precision(
            arguments.settings.PrecisionSettings.of(self.args, self.strategy.device.type)
        )
        self.create_accelerator_and_postprocess()

    def _build_default_collator(self) -> Callable[[list[Any]], dict[str, Any]]:
        if data.collators.padding.can_pad_rows(self.processing_class):
            pads = _find_replaced("DataCollatorWithPadding", data.collators.padding.DataCollatorWithPadding)
            return pads(self.processing_class)
        return _find_replaced("default_data_collator", data.collators.default.default_data_collator)

    def _set_up_loss(self, compute_loss_func: Callable[..., Tensor] | None) -> None:
        """Set the objective, and determine what the model takes and returns."""
        args = self.args
        self.loss_objective = Objective(
            loss_func=compute_loss_func,
            smoother=build_smoother(args.label_smoothing_factor, self.model),
            processes=args.data_size if args.average_tokens_across_devices else 1,
        )
        self._adopt_model()

    def _set_up_callbacks(self, callbacks: list[TrainerCallback | type[TrainerCallback]] | None) -> None:
        """Create the handler with the default callbacks and the user's; displays and the journal come last."""
        args = self.args
        reporting = trackers.registry.build_trackers(args.report_to, callbacks)
        self.callback_handler = CallbackHandler(
            [*_find_default("DEFAULT_CALLBACKS"), *reporting, *(callbacks or [])],
            self.model,
            self.processing_class,
            self.optimizer,
            self.lr_scheduler,
            isolate_rng=args.ostinato.isolate_rng,
        )
        self.add_callback(
            _find_replaced("PrinterCallback", progress.plain.PrinterCallback)
            if args.disable_tqdm
            else _find_default("DEFAULT_PROGRESS_CALLBACK")
        )
        if args.ostinato.journal and self.is_world_process_zero():
            self.add_callback(journal.journal_callback.JournalCallback)

    def _set_up_state(self) -> None:
        """Set the state of a trainer that has not trained yet."""
        self.control = TrainerControl()
        self.state = TrainerState(
            is_local_process_zero=self.is_local_process_zero(),
            is_world_process_zero=self.is_world_process_zero(),
            stateful_callbacks=self._export_callback_states(),
        )
        self.is_in_train = False
        self.current_flos = 0
        self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
        self._train_batch_size = self.args.train_batch_size
        self._signature_columns = None
        self._created_lr_scheduler = False
        self._eval_dataloaders = {}
        self._run = None
        self._run_directory = checkpoints.run_directory.RunDirectory()
        self._train_window = None
        self._output_names = evaluation.step.OutputNames()

    def _adopt_model(self) -> None:
        """Place the model, and determine its inputs and its loss.

        Values that the user has set since are kept.
        """
        strategies.called_model.unwrap_compiled(self)
        if self.place_model_on_device:
            self._move_model_to_device(self.model, self.args.device)
        config: Any = getattr(self.model, "config", None)
        if getattr(config, "use_cache", None) is not None:
            config.use_cache = self.args.use_cache  # the cache for generation is of no use in training
        self.model_wrapped = self.model
        inner, named = data.columns.unwrap_model(self.model), self.args.label_names
        found = {
            "label_names": data.columns.find_default_labels(self.model) if named is None else named,
            "can_return_loss": data.columns.can_return_loss(type(inner)),
            "model_accepts_loss_kwargs": can_take_num_items(inner),
        }
        for name, value in found.items():
            if name not in self._found or getattr(self, name) == self._found[name]:
                setattr(self, name, value)
        self._found = copy.deepcopy(found)  # a copy, since a list may be extended
        shifted, self._loss_shifts_labels = self._loss_shifts_labels, has_shifted_labels(inner)
        if self.loss_objective.smoother_shifts == bool(shifted):
            self.loss_objective.smoother_shifts = bool(self._loss_shifts_labels)

    def _has_shifted_labels(self, batch: Batch) -> bool:
        """Return whether the model's loss compares each position with the next label; try it if it is not stated."""
        if self._loss_shifts_labels is None:
            shifts = observe_shift(self.model, self._prepare_inputs(dict(batch)))
            self._loss_shifts_labels = self.loss_objective.smoother_shifts = shifts
        return self._loss_shifts_labels

    @property
    def _labels_are(self) -> str:
        """The column with the labels that a mean loss averages over."""
        return self.label_names[0] if len(self.label_names) == 1 else "labels"

    @property
    def model_accepts_loss_kwargs(self) -> bool:
        """Whether `num_items_in_batch` is passed to the model's forward."""
        return self.loss_objective.model_takes_num_items

    @model_accepts_loss_kwargs.setter
    def model_accepts_loss_kwargs(self, accepts: bool) -> None:
        self._get_objective().model_takes_num_items = accepts

    @property
    def compute_loss_func(self) -> Callable[..., Tensor] | None:
        """The loss function that was passed to the trainer; None: the model computes its loss."""
        return self.loss_objective.loss_func

    @compute_loss_func.setter
    def compute_loss_func(self, function: Callable[..., Tensor] | None) -> None:
        self._get_objective().loss_func = function

    @property
    def label_smoother(self) -> LabelSmoother | None:
        """What smooths labels; None unless `label_smoothing_factor` is set."""
        return self.loss_objective.smoother

    @label_smoother.setter
    def label_smoother(self, smoother: LabelSmoother | None) -> None:
        self._get_objective().smoother = smoother

    def _get_objective(self) -> Objective:
        """Return the objective; a subclass may set parts of it before the constructor, which then sets them anew."""
        return vars(self).setdefault("loss_objective", Objective())

    @property
    def tokenizer(self) -> Any:
        """The older name of `processing_class`."""
        return self.processing_class

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self.processing_class = tokenizer

    @property
    def place_model_on_device(self) -> bool:
        """Whether the trainer may move the model to its device. A subclass or a script may set it."""
        if self._places_model is not None:
            return self._places_model
        return getattr(self.args, "place_model_on_device", None) is not False

    @place_model_on_device.setter
    def place_model_on_device(self, places: bool) -> None:
        self._places_model = places

    def _can_move(self, model: nn.Module) -> bool:
        return self.place_model_on_device and not strategies.placement.is_placed(model)

    def _choose_device(self) -> torch.device:
        """Return the device to train on: that of this process, or that of a model that may not be moved."""
        if self._can_move(self.model):
            return self.args.device
        device = strategies.placement.find_device(self.model, default=self.args.device)
        if device != self.args.device:
            note_once(f"training on {device}, where the model was put and has to stay, and not on {self.args.device}")
        return device

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Add a callback.

        Args:
            callback: A class or an instance.
        """
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Remove a callback and return it.

        Args:
            callback: A class or an instance.

        Returns:
            The callback; None if there is none.
        """
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Remove a callback.

        Args:
            callback: A class or an instance.
        """
        self.callback_handler.remove_callback(callback)

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        if not strategies.placement.is_placed(model) and not self.strategy.is_sharded:  # dividing moves the parts
            strategies.placement.check_weights(model)
            strategies.placement.move(model, device)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """Return a new model from `model_init`, which takes no argument or a trial.

        Args:
            trial: Passed to `model_init` if it takes an argument.

        Returns:
            The model.

        Raises:
            ConfigError: `model_init` takes more than one argument, or returns None.
        """
        assert self.model_init is not None
        count = len(inspect.signature(self.model_init).parameters)
        if count > 1:
            raise usage_errors.wrong_model_init_signature(count)
        model = self.model_init() if count == 0 else self.model_init(trial)
        if model is None:
            raise usage_errors.model_init_returns_nothing()
        return model

    # ---- runs (engine/setup.py) --------------------------------------------------------------------

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        *,
        resume_mode: ResumeMode | str = ResumeMode.RESUME,
    ) -> TrainOutput:
        """Train, from the beginning or from a checkpoint.

        Args:
            resume_from_checkpoint: A checkpoint; True for the newest whole one in `output_dir`.
            trial: A trial of a hyperparameter search, or a dict of values to train with, such as those of its best.
            ignore_keys_for_eval: Outputs of the model that are not predictions, in evaluations during training.
            resume_mode: The use of the checkpoint. "resume" continues its run, "extend" continues it for more steps
                than were planned, "fork" starts a new run with its weights, "fork_with_optimizer" also with its
                optimizer's averages.

        Returns:
            The number of steps, the mean loss and the metrics of the run.

        Raises:
            ConfigError: The arguments contradict one another, or `resume_mode` does not fit.
            CheckpointError: There is no such checkpoint, or none that is whole.
        """
        with ShortTraceback(), self._memory_tracker.end_stage_on_error():
            self._resume_mode = ResumeMode(resume_mode)
            if trial is not None:
                trial = search.trial_setup.take_trial(self, trial)
                self._begin_trial(trial)
            self.args.validate()  # arguments may have been changed since they were created
            check_quantization(self.model)
            evaluation.request.check_best_metric(self)
            self.is_in_train = True
            self._memory_tracker.start()
            if trial is None:
                self._hp_search_setup(None)
            self._train_batch_size = self.args.train_batch_size
            engine.agreement.check_processes(self)
            try:
                with self._watch_processes(), engine.saver.lock_run_directory(self, trial):
                    checkpoint = engine.resume.find_checkpoint(self, resume_from_checkpoint, self._resume_mode)
                    output_path = Path(self._get_output_dir(trial))
                    goes_on = None if engine.resume.is_fork(self._resume_mode) else checkpoint
                    self._run_directory.begin(output_path, goes_on, writes=engine.saver.is_saving_enabled(self))
                    engine.resume.record_attempt(self)
                    if self.model_init is not None and trial is None:
                        self._init_model(None)
                    with journal.run_journal.write_journal(self, trial, checkpoint, _write_report):
                        train = partial(
                            self._inner_training_loop,
                            args=self.args,
                            resume_from_checkpoint=checkpoint,
                            trial=trial,
                            ignore_keys_for_eval=ignore_keys_for_eval,
                        )
                        if self.args.auto_find_batch_size:
                            return engine.batch_size_search.train_with_smaller_batches(self, train, goes_on)
                        return train(batch_size=self._train_batch_size)
            except BaseException:
                self._clean_up_after_failure()
                raise
            finally:
                self.is_in_train = False

    def _watch_processes(self) -> AbstractContextManager[Any]:
        return self.strategy.watch(lambda: self.state.global_step, self.args.ddp_timeout)

    def _begin_trial(self, trial: Any) -> None:
        """Make the model of a trial and set its values, which may be drawn in either; its directory is known then."""
        seed = self.args.seed
        makes_models = self.model_init is not None or self._is_overridden("call_model_init")
        if makes_models:
            self._init_model(trial)
        self._hp_search_setup(trial)
        if makes_models and self.args.seed != seed:  # it is searched, too
            self._init_model(trial)

    def _init_model(self, trial: Any) -> None:
        """Make a new model, whose optimizer is created later."""
        self._set_seed()
        self.model = self.call_model_init(trial)
        self._adopt_model()
        self.optimizer = self.lr_scheduler = None

    def _list_metric_names(self) -> list[str] | None:
        """Return the names of the metrics of an evaluation; None if they are not known beforehand."""
        return evaluation.request.list_metric_names(self)

    def _can_add_metrics(self) -> bool:
        """Return whether a subclass or a user's callback may add metrics to an evaluation."""
        listening = [
            type(callback)
            for callback in self.callback_handler.callbacks
            if type(callback).on_evaluate is not TrainerCallback.on_evaluate
        ]
        theirs = [kind for kind in listening if not kind.__module__.startswith(f"{__package__}.")]
        return bool(theirs) or any(map(self._is_overridden, _MAY_ADD_METRICS))

    def _clean_up_after_failure(self) -> None:
        """Stop progress bars and notify callbacks after a failure, for which there is no event."""
        self._stop_progress()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, CleansUp):
                callback.clean_up()

    def _stop_progress(self) -> None:
        """Stop progress bars, which would garble later output."""
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, (progress.callback.ProgressCallback, progress.notebook.NotebookProgressCallback)):
                callback.stop()

    @contextmanager
    def _stop_progress_on_error(self) -> Iterator[None]:
        """Remove the progress bar of a separate evaluation if it fails."""
        try:
            yield
        except BaseException:
            if not self.is_in_train:
                self._stop_progress()
            raise

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: TrainingArguments | None = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Open a run, take its steps, and return its results."""
        with ExitStack() as while_training:
            run = engine.setup.open_run(
                self,
                resume_from_checkpoint,
                trial,
                ignore_keys_for_eval,
                while_training,
                partial(diagnostics.dispatch.check_first_batch, self),
                self._restart,
            )
            begins, self._restart = self._restart is None, None
            if begins and self.args.ostinato.rehearse:
                self._rehearsed = diagnostics.dry_run.rehearse_run(self, run)
            elif begins and self.eval_dataset is not None:
                diagnostics.eval_dry_run.check_first_evaluation(self, ignore_keys_for_eval)
            emit(self, "on_train_begin")
            engine.saver.reserve_memory(self)
            try:
                with engine.signals.handle_stop_signals(self, run):
                    engine.report.evaluate_at_start(self, run)
                    engine.loop.train(self, run)
                output = engine.finish.finish(self, run)
            except Exception as error:
                engine.save_outcome.wait_before_exit(self)  # a resumed run may need this checkpoint
                reason = diagnostics.dispatch.explain_training_failure(self, error, run)
                if reason is not error:
                    raise reason from reason.__cause__
                raise
            self._finish_current_push()
            return output

    def rehearse(self) -> diagnostics.dry_run.Rehearsal:
        """Try a training batch, two evaluation batches with their metrics, a save and a load, and restore everything.

        `rehearse=True` does the same before the first step of every `train`.

        Returns:
            The time of each part, and the parts that could not be tried.

        Raises:
            Exception: Any error that training, evaluating, saving or loading would raise later.

        >>> trainer.rehearse()  # doctest: +SKIP
        Rehearsal(train_seconds=0.04, eval_seconds=0.02, save_seconds=0.11, load_seconds=0.03, ...)
        """
        with ShortTraceback():
            self.args.validate()
            self._rehearsed = diagnostics.dry_run.rehearse_new_run(self)
            return self._rehearsed

    def verify_resume(self, steps: int = 3) -> diagnostics.verify_resume.ResumeReport:
        """Check whether a resumed run repeats this one bit for bit; if not, report what differs first.

        Train `steps`, save, train as many more; load, train these again, and compare every step. The trainer, the
        model and `output_dir` are left unchanged.

        Args:
            steps: The number of steps to train before the checkpoint, and the number to compare.

        Returns:
            Whether the runs are equal, and the first difference.

        Raises:
            ConfigError: `steps` is less than 1, or the data cannot be read twice.

        >>> trainer.verify_resume()  # doctest: +SKIP
        ResumeReport(equal=True, steps=3, first_difference=None, seconds=0.4)
        """
        with ShortTraceback():
            self.args.validate()
            return diagnostics.verify_resume.verify_resume(self, steps)

    def explain(self, dataset: Any = None) -> diagnostics.batch_report.BatchReport:
        """Describe one batch: columns, batch, forward, outputs, loss, the input of metrics, and mistakes.

        Nothing is trained, and the trainer, the model and the data are left unchanged.

        Args:
            dataset: Rows, or the name of an evaluation set; by default the training set, else the evaluation set.

        Returns:
            A report to print or to read as data.

        Raises:
            ConfigError: There is no data set, or none of this name.

        >>> print(trainer.explain())  # doctest: +SKIP
        >>> trainer.explain().to_markdown()  # doctest: +SKIP
        """
        return diagnostics.explain_batch.explain_batch(self, dataset)

    def plan(self) -> diagnostics.run_plan.RunPlan:
        """Return the plan of `train`: steps, batches, rates, evaluations, checkpoints, time, and what changes each.

        Nothing is computed or written. Times are known after `rehearse`.

        Returns:
            A plan to print or to read as data.

        Raises:
            ConfigError: The arguments contradict one another, or there is no training set.

        >>> print(trainer.plan())  # doctest: +SKIP
        >>> trainer.plan().length.steps  # doctest: +SKIP
        """
        self.args.validate()
        return diagnostics.plan_builder.build_run_plan(self)

    def samples_at(self, step: int) -> list[int]:
        """Return the rows of the training set that an optimizer step is computed from, over all processes.

        The order is arithmetic, so nothing is read. The step may be past or future. It belongs to the current run, or
        to the last, or to one that would start now.

        Args:
            step: The step, counted from 1, as `state.global_step` is after it.

        Returns:
            The indices of the rows.

        Raises:
            NotSupportedError: The rows cannot be computed from the order of the data.
            DataError: The step was taken before a checkpoint that does not hold how its steps were divided.

        >>> trainer.samples_at(1)  # doctest: +SKIP
        [7, 2, 5, 0]
        """
        run = self._run
        if run is None:
            with preserve_rng():
                loader = self.get_train_dataloader()
            plan = engine.loader_plan.plan_run(self, loader)
            return data.epoch_position.samples_at(
                loader, data.epoch_position.build_first_schedule(loader, plan.accumulation), step, plan.max_steps
            )
        if run.updates.current is None:  # no step was taken yet
            run.updates.record_schedule(self.state.global_step)
        return data.epoch_position.samples_at(
            run.updates.loader, run.updates.position.schedules, step, run.plan.max_steps
        )

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Return the number of rows of one optimizer step over all processes.

        Args:
            args: The training arguments.

        Returns:
            The number of rows.
        """
        return self._train_batch_size * args.gradient_accumulation_steps * args.data_size

    def set_initial_training_values(
        self, args: TrainingArguments, dataloader: DataLoader[Any]
    ) -> tuple[int, int, int, int, int, int, int]:
        """Return the numbers of a run over a loader. `plan()` returns these and more, by name.

        Args:
            args: The training arguments.
            dataloader: The loader of the training rows.

        Returns:
            Epochs, steps per epoch, rows, rows that will be read, rows per step, batches per epoch, and steps.

        Raises:
            ConfigError: The loader has no length, and `max_steps` is not set.
        """
        planned = copy.copy(self)
        planned.args = args
        plan, per_step = engine.loader_plan.plan_run(planned, dataloader), self.get_total_train_batch_size(args)
        rows = self.num_examples(dataloader) if data.sizes.has_length(dataloader) else plan.rows
        steps_per_epoch = max(math.ceil(plan.batches_per_epoch / plan.accumulation), 1)
        return plan.epochs, steps_per_epoch, rows, plan.rows, per_step, plan.batches_per_epoch, plan.max_steps

    # ---- one step (loss/, strategies/) ---------------------------------------------------------------

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]:
        """Return the micro-batches of one optimizer step, and the number of their targets.

        Args:
            epoch_iterator: The batches of the epoch.
            num_batches: The number of batches to take.
            device: The device for the number of targets.

        Returns:
            The micro-batches, and their number of targets together; None if the loss does not use it.
        """
        samples = list(itertools.islice(epoch_iterator, num_batches))
        if self._run is not None and self._run.updates.cuts:
            samples = self._split_samples(samples)
        return samples, self._get_num_items_in_batch(samples, device)

    def _split_samples(self, samples: list[Batch]) -> list[Batch]:
        """Return batches as micro-batches; the first batch that is split is compared with the same rows unsplit."""
        parts = data.batching.split_by_length.flatten_micro_batches(samples)
        if self.args.ostinato.split_by_length and not self._split_is_checked and len(parts) > len(samples):
            self._split_is_checked = True
            if self.strategy.is_sharded:  # the others may have nothing to split, and would have to take part
                note_once("split_by_length: it is not checked whether rows are independent, as the model is sharded")
                return parts
            check_row_independence(
                self.model,
                parts
                if len(samples) == 1
                else data.batching.split_by_length.flatten_micro_batches([max(samples, key=len)]),
                loss=lambda part: self.compute_loss(self.model, self._prepare_inputs(part)),
                weigh=lambda part: weigh(part, shifted=self._has_shifted_labels(part), labels_are=self._labels_are),
                tolerance=1e-3 if self.args.mixed_precision == "no" else 5e-2,
                pad_token_id=getattr(self.processing_class, "pad_token_id", None) or 0,
            )
        return parts

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor | int | None:
        """Return the targets of the whole step over all processes; None if the loss does not use them."""
        if not self.loss_objective.wants_count or not batch_samples:
            return None
        counts = self._count_targets(batch_samples)
        updates = None if self._run is None else self._run.updates
        if updates is not None and (ballot := updates.weights.ballot) is not None:
            if ballot.is_due:
                updates.vote(batch_samples, counts)  # together with all else that the processes exchange
            if self.args.average_tokens_across_devices:
                count = ballot.add_targets()
            else:
                count = None if counts is None else updates.count_targets(batch_samples, counts)
            total = None if count is None else torch.tensor(count)
        elif counts is None:
            return None
        else:
            total = torch.as_tensor(sum(counts))
            if self.args.average_tokens_across_devices:
                total = self.strategy.sum(total)
        if total is None or not total.is_cpu:
            return total if total is None else total.to(device)
        return torch.full((), int(total), device=device)  # filled in on the device: a copy would wait for it

    def _count_targets(self, batches: list[Batch]) -> list[Tensor] | None:
        """Return the number of targets of every micro-batch; None if they are not known."""
        if not batches or "labels" not in batches[0]:
            return None
        shifted = self._has_shifted_labels(batches[0])
        counts = [count_targets(batch["labels"], shifted=shifted) for batch in batches]
        known = [count for count in counts if count is not None]
        return known if len(known) == len(counts) else None

    def _weigh_batches(self, batches: list[Batch], counts: list[float] | None) -> list[float]:
        """Return the weights of micro-batches: what the mean of each averages over. `counts` are their targets."""
        if counts is not None and self._labels_are == "labels":
            return counts
        shifted = bool(self._loss_shifts_labels)
        return [weigh(batch, shifted=shifted, labels_are=self._labels_are) for batch in batches]

    def training_step(self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Run forward and backward of one micro-batch.

        Args:
            model: The module to call.
            inputs: The micro-batch.
            num_items_in_batch: The number of targets of the whole step.

        Returns:
            The micro-batch's share of the step's loss.
        """
        if not (model.training and self.model.training):
            model.train()
        if (train := getattr(self.optimizer, "train", None)) is not None:  # it is schedule-free
            train()
        inputs = self._prepare_inputs(inputs)
        loss_scale = self._get_scaled_loss()
        compute = (
            self.compute_loss if self._train_window is None else partial(evaluation.train_metrics.compute_loss, self)
        )
        parallel, inputs = self._prepare_context_parallel_inputs(model, inputs)
        # A batch that only keeps a process in step with the others has nothing to report.
        unheard = collect_numbers(None) if loss_scale.share.weighs_nothing else nullcontext()
        with parallel(), self.compute_loss_context_manager(), unheard:
            if loss_scale.is_scale_needed(num_items_in_batch):
                loss = loss_scale.settle_scale(
                    lambda count: compute(model, dict(inputs), num_items_in_batch=count),
                    num_items_in_batch,
                    self.model,
                )
            elif not self._get_loss_signature().takes_num_items:
                loss = compute(model, inputs)
            else:
                loss = compute(model, inputs, num_items_in_batch=loss_scale.choose_count(num_items_in_batch))
        if loss_scale.share.weighs_nothing:
            loss = build_zero_loss(model, loss if self.strategy.is_sharded else None)
        else:
            loss = loss_scale.share_of(loss, num_items_in_batch)
        interval = self.args.torch_empty_cache_steps
        if interval is not None and self.state.global_step % interval == 0:
            accelerator.empty_cache(self.strategy.device)
        if (fused_backward := getattr(self.optimizer, "fused_backward", None)) is None:
            self.precision.backward(loss)
        else:
            optim.backward_step.run_backward(fused_backward, loss, self._get_learning_rate())
        return loss.detach()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of one batch, by default the model's own.

        Args:
            model: The module to call.
            inputs: The batch.
            return_outputs: Return the model's outputs too.
            num_items_in_batch: The number of targets of the whole step.

        Returns:
            The loss; with `return_outputs`, the loss and the outputs.
        """
        loss, outputs = self.loss_objective(model, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _get_scaled_loss(self) -> ScaledLoss:
        """Return the loss on the scale of the current micro-batch; outside of a run a batch is a step."""
        run = self._run
        if run is None or run.step.micro_batch is None or not run.step.is_computing:
            return self.loss_objective.scale_by(1.0)
        return ScaledLoss(self.loss_objective, run.step.micro_batch.share)

    def _prepare_context_parallel_inputs(self, model: nn.Module, inputs: Batch) -> tuple[Callable[..., Any], Batch]:
        """Return an empty context: sequences are not divided among processes."""
        return nullcontext, inputs

    def compute_loss_context_manager(self) -> AbstractContextManager[Any]:
        """Return the context of a loss: `autocast_smart_context_manager`."""
        return self.autocast_smart_context_manager()

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager[Any]:
        """Return an empty context: autocast surrounds the model's forward itself.

        Args:
            cache_enabled: Not used.

        Returns:
            The empty context.
        """
        return nullcontext()

    def _prepare_inputs(self, inputs: Batch) -> Batch:
        """Return the batch on the device that computes."""
        return self._prepare_input(inputs)

    def _prepare_input(self, data: Any) -> Any:
        device = self.strategy.device
        if device.type == "cpu" and type(data) is dict:
            return dict(data)  # a copy, since the code that computes the loss may remove the labels from it
        non_blocking = bool(getattr(self.args.accelerator_config, "non_blocking", False))
        return strategies.batch_transfer.BatchTransfer(device, non_blocking).move(data)

    def _clip_grad_norm(self, model: nn.Module) -> Tensor | None:
        """Clip the gradient to `max_grad_norm`; return the norm it had, None if the optimizer has used it up."""
        if getattr(self.optimizer, "fused_backward", None) is not None:
            return None
        if self._run is None:
            gradients = [one.grad for one in model.parameters() if one.grad is not None]
            return self.strategy.clip(gradients, self.args.max_grad_norm or math.inf)
        return self.strategy.clip(self._run.parameters.list_gradients(), self._run.plan.max_grad_norm)

    def _get_learning_rate(self) -> float:
        """Return the rate of the first parameter group."""
        if isinstance(self.lr_scheduler, ReduceLROnPlateau):
            return self.optimizer.param_groups[0]["lr"]
        rate = self.lr_scheduler.get_last_lr()[0]
        return rate.item() if isinstance(rate, Tensor) else rate

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        """Return the module that the loops call: compiled if requested, on its device, replicated over processes."""
        if self._can_move(model) and not self.strategy.is_sharded:
            strategies.placement.move(model, self.strategy.device)  # a script may have replaced the model
        called = strategies.called_model.get_called_model(self, model)
        with strategies.optimizer_rules.keep_parameters(self.optimizer, model):
            return self.strategy.place(called, training=training)

    @property
    def _has_prepared_model(self) -> bool:
        """Whether a run has begun, or a loop that a subclass has written."""
        return self._run is not None or self.accelerator.has_prepared_model

    def _get_loss_signature(self) -> LossSignature:
        function = self.compute_loss
        key = getattr(function, "__func__", function)
        if self._known_signature is None or self._known_signature[0] is not key:
            self._known_signature = (key, LossSignature.of(function))
        return self._known_signature[1]

    # ---- after a step (engine/report.py) --------------------------------------------------------------

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
        """Log, evaluate and save if the control requests it."""
        if self._run is not None:
            engine.report.report_step(self, self._run, tr_loss, grad_norm, model, learning_rate)
        else:
            engine.report.report_own_step(
                self, tr_loss, grad_norm, model, trial, ignore_keys_for_eval, start_time, learning_rate
            )

    def track(self, name: str, value: float | Tensor, weight: float | Tensor = 1.0) -> None:
        """Log a number with the next log line, as a weighted mean over everything that is tracked until then.

        It may be called from anywhere while the trainer trains or evaluates; `ostinato.track` is the same for code
        that has no trainer.

        Args:
            name: The key in the logs.
            value: One number.
            weight: The weight of the number in the mean.

        >>> trainer.track("kl", kl, weight=len(rows))  # doctest: +SKIP
        """
        track(name, value, weight)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add numbers to the history and pass them to the callbacks.

        Args:
            logs: The numbers by name.
            start_time: The start of the run; with it, speeds are added if tokens are counted.
        """
        if self.state.epoch is not None:
            logs["epoch"] = self.state.epoch
        if self.args.include_num_input_tokens_seen != "no":
            logs["num_input_tokens_seen"] = self.state.num_input_tokens_seen
            if start_time is not None:
                logs.update(self._measure_token_speed(start_time))
        make_plain(logs)  # plain numbers can be saved, and need no device
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.control = self.callback_handler.on_log(self.args, self.state, self.control, logs)

    def _measure_token_speed(self, start_time: float) -> dict[str, float]:
        """Return the runtime, the tokens per second of training, and the share of the devices' peak, if known."""
        run, now = self._run, time.time()
        tokens = self.state.num_input_tokens_seen - self._initial_num_input_tokens_seen
        speed = tokens / max(now - start_time - (0.0 if run is None else run.ledger.outside_training), 1e-6)
        share = None if run is None else engine.utilization.compute_utilization(self.model, run, speed)
        measured = {**speed_metrics("train", start_time, now=now), "train_tokens_per_second": round(speed, 3)}
        return measured if share is None else {**measured, "train_mfu": round(share, 4)}

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Evaluate during training."""
        metrics = self.evaluate(ignore_keys=ignore_keys_for_eval)
        self._report_to_hp_search(trial, self.state.global_step, metrics)
        if optim.schedulers.is_metric_schedule(self.lr_scheduler) and not skip_scheduler:
            self.lr_scheduler.step(self._get_watched_metric(metrics))
        return metrics

    def _get_watched_metric(self, metrics: dict[str, float]) -> float:
        name = self.args.metric_for_best_model or "loss"
        full_name = name if name.startswith("eval_") else f"eval_{name}"
        if full_name not in metrics:
            raise usage_errors.no_such_metric(name, metrics)
        return metrics[full_name]

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Record the best value so far; return True if it is that of this evaluation."""
        if self.args.metric_for_best_model is None:
            return False
        value, best = self._get_watched_metric(metrics), self.state.best_metric
        if math.isnan(value):  # not recorded as best: no later value would be better
            return False
        if best is not None and not (value > best if self.args.greater_is_better else value < best):
            return False
        self.state.best_metric = value
        if self.args.save_strategy == SaveStrategy.NO and not self.args.load_best_model_at_end:
            return True
        self.state.best_global_step = self.state.global_step
        if not self._is_saving_now():
            keep = engine.saver.keep_best_weights if self.args.load_best_model_at_end else engine.saver.mark_as_best
            keep(self, trial)
        return True

    # ---- evaluation (evaluation/) --------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate a set and return its metrics; the sets of a dict are evaluated one by one.

        Args:
            eval_dataset: Rows, a dict of sets, or the name of an evaluation set; by default the trainer's.
            ignore_keys: Outputs of the model that are not predictions.
            metric_key_prefix: The prefix of the names of metrics.

        Returns:
            The metrics by name.

        Raises:
            ConfigError: There is no evaluation set, or none of this name.
            DataError: The set is a stream that yields no rows.
        """
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
            macro = evaluation.eval_metrics.average_sets(merged, list(chosen), metric_key_prefix)
            if macro and diagnostics.eval_dry_run.find_best_metric(self) in ("loss", "eval_loss"):
                self._report_metrics(macro)  # it selects the best model; else events are those of transformers
            return {**merged, **macro}
        with ShortTraceback(), self._memory_tracker.end_stage_on_error(), self._stop_progress_on_error():
            self._memory_tracker.start()
            wanted = evaluation.request.resolve_request(self, eval_dataset, only_metrics=True)
            loader = evaluation.request.attach_request(self.get_eval_dataloader(eval_dataset), wanted)
            started = time.time()
            output = self.evaluation_loop(
                loader,
                description="Evaluation",
                prediction_loss_only=evaluation.request.decide_loss_only(self, wanted),
                ignore_keys=ignore_keys,
                metric_key_prefix=metric_key_prefix,
            )
            metrics = self._add_speed(output, wanted, metric_key_prefix, started)
            self._report_metrics(metrics)
            self._memory_tracker.stop_and_update_metrics(metrics)
            return metrics

    def _report_metrics(self, metrics: dict[str, float]) -> None:
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Predict for a set and return predictions, labels and metrics.

        Args:
            test_dataset: The rows.
            ignore_keys: Outputs of the model that are not predictions.
            metric_key_prefix: The prefix of the names of metrics.

        Returns:
            Predictions, labels and metrics.

        Raises:
            DataError: The set is a stream that yields no rows.
        """
        with ShortTraceback(), self._memory_tracker.end_stage_on_error(), self._stop_progress_on_error():
            self._memory_tracker.start()
            wanted = evaluation.request.resolve_request(self, test_dataset, only_metrics=False)
            loader = evaluation.request.attach_request(self.get_test_dataloader(test_dataset), wanted)
            started = time.time()
            output = self.evaluation_loop(
                loader, description="Prediction", ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
            )
            metrics = self._add_speed(output, wanted, metric_key_prefix, started)
            self.control = self.callback_handler.on_predict(self.args, self.state, self.control, metrics)
            self._memory_tracker.stop_and_update_metrics(metrics)
            return PredictionOutput(output.predictions, output.label_ids, metrics)

    def _add_speed(
        self, output: EvalLoopOutput, wanted: evaluation.request.EvalRequest, prefix: str, started: float
    ) -> dict[str, float]:
        metrics = output.metrics if output.metrics is not None else {}
        rows, options = output.num_samples or 0, wanted.options
        batch_size = (options.batch_size if options is not None else None) or self.args.eval_batch_size
        steps = -(-rows // (batch_size * self.args.data_size))
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
        """Run the loop behind `evaluate` and `predict`.

        Args:
            dataloader: The batches.
            description: "Evaluation" or "Prediction".
            prediction_loss_only: Keep no predictions; None: as the arguments say.
            ignore_keys: Outputs of the model that are not predictions.
            metric_key_prefix: The prefix of the names of metrics.

        Returns:
            Predictions, labels, metrics and the number of rows.

        Raises:
            DataError: The loader has no length, and yields no rows.
        """
        started = time.time()
        model = self._wrap_model(self.model, training=False)
        if not self._has_prepared_model:
            self.model_preparation_time = round(time.time() - started, 4)
        run = self._run if self.is_in_train else None
        evaluated = evaluation.request.name_evaluated_set(description, metric_key_prefix, self.eval_dataset)
        plan = evaluation.eval_plan.plan_evaluation(
            self,
            dataloader,
            loss_only=prediction_loss_only,
            ignore_keys=ignore_keys,
            prefix=metric_key_prefix,
            data=evaluated,
            report_missing_labels=partial(diagnostics.dispatch.report_missing_labels, self, dataloader, evaluated),
            must_stop=None if run is None else engine.signals.find_stop_check(run),
        )
        self.callback_handler.eval_dataloader = dataloader
        current_batch = evaluation.metric_run.CurrentBatch()
        with (
            evaluation.eval_plan.prepare_model(self, model),
            diagnostics.dispatch.explain_evaluation_errors(self, current_batch, dataloader, evaluated),
        ):
            output = evaluation.eval_loop.evaluation_loop(self, model, dataloader, plan, current_batch)
        if not output.num_samples:
            if not data.dataset_errors.is_empty(dataloader):  # a stream, which may have been read to its end before
                raise data.dataset_errors.build_empty_source_error(evaluated)
            note_once(f"the {evaluated} is empty: nothing is measured")
        return output

    prediction_loop = evaluation_loop  # the name of the same loop in 4.x

    @property
    def _prediction_padding(self) -> int:
        """The padding of predictions that are shorter than those of other batches."""
        return evaluation.eval_plan.PADDING

    def prediction_step(
        self, model: nn.Module, inputs: Batch, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Any, Any]:
        """Return loss, logits and labels of one batch.

        Args:
            model: The module to call.
            inputs: The batch.
            prediction_loss_only: Return None in place of logits and labels.
            ignore_keys: Outputs of the model that are not predictions.

        Returns:
            Loss, logits and labels; None for those that there are not.
        """
        inputs = self._prepare_inputs(inputs)
        step = evaluation.step.plan_step(self, inputs, can_return_loss=self.can_return_loss)
        loss = outputs = None
        with torch.no_grad():
            if step.has_loss:
                try:
                    given = inputs if step.returns_outputs else dict(inputs)
                    loss, outputs = evaluation.step.read_loss(
                        self, step, self.compute_loss(model, given, **step.keywords)
                    )
                except BareTensorError as bare:  # logits without a loss are still predictions
                    note_once(f"no loss is computed in evaluation: {bare.what}")
                    outputs = bare.outputs
            if not (step.has_loss and (step.returns_outputs or outputs is not None)):
                outputs = model(**inputs)
        if prediction_loss_only:
            return loss, None, None
        ignored = evaluation.step.get_ignored_outputs(self.model) if ignore_keys is None else ignore_keys
        return evaluation.step.collect_step(outputs, step, loss, ignored, self._output_names)

    def _name_loss_source(self) -> str:
        """Return the name of the function that computes the loss, for messages."""
        if self._is_overridden("compute_loss"):
            return f"{type(self).__name__}.compute_loss"
        return "compute_loss_func" if self.compute_loss_func is not None else f"{self._model_name}.forward"

    @property
    def _model_name(self) -> str:
        return type(data.columns.unwrap_model(self.model)).__name__

    # ---- data (data/, data/build.py) -------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the loader that training iterates over.

        Raises:
            ConfigError: There is no training set.
        """
        if self.train_dataset is None:
            raise usage_errors.no_train_dataset()
        self._check_order()
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the loader for evaluation.

        Args:
            eval_dataset: Rows, or the name of one of several evaluation sets; by default the trainer's.

        Returns:
            The loader.

        Raises:
            ConfigError: There is no evaluation set, or none of this name.
        """
        if eval_dataset is None and self.eval_dataset is None:
            raise usage_errors.no_eval_dataset()
        is_own = eval_dataset is None or eval_dataset is self.eval_dataset
        key = eval_dataset if isinstance(eval_dataset, str) else "eval" if is_own else "given"
        if isinstance(eval_dataset, str):
            if not isinstance(self.eval_dataset, dict) or eval_dataset not in self.eval_dataset:
                raise usage_errors.no_such_evaluation_set(eval_dataset, self.eval_dataset)
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
        """Return the loader for prediction.

        Args:
            test_dataset: The rows.

        Returns:
            The loader.
        """
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
        check_types(
            **{"train_dataset" if is_training else "eval_dataset": dataset, "data_collator": self.data_collator}
        )
        make = partial(
            data.build.build_loader, self, dataset, description, batch_size, sampler_fn, is_training=is_training
        )
        if dataloader_key is None or not self.args.dataloader_persistent_workers:
            return make()
        self._set_signature_columns_if_needed()
        used = tuple(self._signature_columns or ()) if self.args.remove_unused_columns else None
        origin = data.kept_loaders.LoaderOrigin(
            dataset, self.data_collator, batch_size, arguments.settings.LoaderSettings.of(self.args), used
        )
        return data.kept_loaders.keep_loader(self._eval_dataloaders, dataloader_key, origin, make)

    @property
    def skipped_rows(self) -> dict[Any, str]:
        """The training rows that could not be read so far, and the reasons, with `skip_bad_rows`.

        The keys are row numbers; in a mixture, the name of the set and the number of the row in it.
        """
        return (
            dict(self._run.updates.skipped.reasons)
            if self._run is not None and self._run.updates.skipped is not None
            else {}
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Any] | None:
        """Return the order of the rows of an epoch."""
        dataset = data.mixture.convert_to_mixture(train_dataset if train_dataset is not None else self.train_dataset)
        if self.sampler is not None:
            return data.user_loaders.share_sampler(self.sampler, arguments.settings.LoaderSettings.of(self.args))
        if isinstance(dataset, data.mixture.Mixture):
            return data.mixture.MixtureSampler(dataset, self.args.data_seed)
        return data.samplers.epoch_sampler.build_train_sampler(
            dataset,
            arguments.settings.LoaderSettings.of(self.args),
            batch_size=self._train_batch_size * self.args.gradient_accumulation_steps,
            input_name=data.build.find_input_name(self.processing_class),
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[Any] | None:
        """Return the order of rows in evaluation: as they are."""
        return data.samplers.epoch_sampler.build_eval_sampler(eval_dataset)

    def num_examples(self, dataloader: DataLoader[Any]) -> int:
        """Return the number of rows that a loader reads.

        Args:
            dataloader: The loader.

        Returns:
            The number of rows.
        """
        return data.sizes.count_examples(dataloader, batch_size=self._train_batch_size)

    def _set_signature_columns_if_needed(self) -> None:
        """Set `_signature_columns` to the inputs of the model and the names of labels."""
        if self._signature_columns is None:
            self._signature_columns = data.columns.find_signature_columns(self.model, self.label_names)

    def model_columns(self, dataset: Any = None) -> data.columns.ColumnChoice:
        """Return the columns of a data set that reach the model, those that do not, and the reason.

        Args:
            dataset: The data set; by default the training set.

        Returns:
            The choice of columns.
        """
        self._set_signature_columns_if_needed()
        return data.columns.choose_columns(
            dataset if dataset is not None else self.train_dataset,
            self._signature_columns or [],
            removes=self.args.remove_unused_columns,
            model_name=self._model_name,
        )

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        if not self.args.remove_unused_columns:
            return dataset
        self._set_signature_columns_if_needed()
        return data.columns.remove_unused_columns(
            dataset, self._signature_columns or [], description=description, model_name=self._model_name
        )

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[..., Any], description: str | None = None
    ) -> Callable[..., Any]:
        if not self.args.remove_unused_columns:
            return data_collator
        self._set_signature_columns_if_needed()
        return data.columns.RemoveColumnsCollator(
            data_collator=data_collator,
            signature_columns=self._signature_columns or [],
            description=description,
            model_name=self._model_name,
        )

    # ---- optimizer and schedule (optim/) -------------------------------------------------------------

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Create the optimizer and the schedule, unless they were given.

        Args:
            num_training_steps: The number of steps of the schedule.
        """
        self.create_optimizer()
        optim.backward_step.adapt_to_loop(self.optimizer, self.args.max_grad_norm)
        optim.schedule_free.resolve_warmup(self.optimizer, num_training_steps)
        self.create_scheduler(num_training_steps=num_training_steps)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Create the optimizer of the arguments, unless there is one.

        Weight decay applies to the parameters of `get_decay_parameter_names`.

        Args:
            model: The model whose parameters are optimized; by default the trainer's.

        Returns:
            The optimizer.
        """
        if self.optimizer is None:
            model = model if model is not None else self.model
            if self.optimizer_cls_and_kwargs is not None:
                kind, options = self.optimizer_cls_and_kwargs
            else:
                kind, options = self.get_optimizer_cls_and_kwargs(self.args, model)
            optim.backward_step.remove_hooks(model)
            if optim.optimizers.is_factory(kind):
                make: Any = kind
                self.optimizer = make()(model, **options)
                return self.optimizer
            given, options = optim.groups.split_given_groups(options)
            if given is None:
                names = self.get_decay_parameter_names(model)
                given = optim.groups.build_groups(model, names, self.args.weight_decay)
            self.optimizer = kind(given, **self.strategy.choose_optimizer_options(kind, options, model))
            optim.eight_bit.keep_embeddings_precise(self.optimizer, model, options)
        return self.optimizer

    @staticmethod
    def get_optimizer_cls_and_kwargs(
        args: TrainingArguments, model: nn.Module | None = None
    ) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """Return the optimizer class that `optim` selects, and the arguments to create it.

        Args:
            args: The training arguments.
            model: The model, which low-rank optimizers and LOMO are created from.

        Returns:
            The class, and the keyword arguments.

        Raises:
            MissingPackageError: The optimizer comes from a package that is not installed.
        """
        return optim.optimizers.choose_optimizer(arguments.settings.OptimizerSettings.of(args), model)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of the parameters that weight decay applies to: all but biases and norms.

        Args:
            model: The model.

        Returns:
            The names.
        """
        return optim.groups.list_decay_parameters(model)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Create the learning-rate schedule of the arguments, unless there is one.

        Args:
            num_training_steps: The number of steps of the schedule.
            optimizer: The optimizer; by default the trainer's.

        Returns:
            The schedule.
        """
        if self.lr_scheduler is None:
            settings = arguments.settings.ScheduleSettings.of(self.args, num_training_steps)
            self.lr_scheduler = optim.schedulers.build_schedule(
                settings,
                optimizer if optimizer is not None else self.optimizer,
                _find_replaced("get_scheduler", optim.schedulers.get_scheduler),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def get_learning_rates(self) -> list[float]:
        """Return the rate of every parameter group.

        Raises:
            ConfigError: There is no optimizer yet.
        """
        return [group["lr"] for group in self._require_optimizer().param_groups]

    def get_optimizer_group(self, param: str | nn.Parameter | None = None) -> Any:
        """Return the group that holds a parameter, or all groups.

        Args:
            param: The parameter; None for all groups.

        Returns:
            The group, None if no group holds the parameter; or all groups as lists of parameters.

        Raises:
            ConfigError: There is no optimizer yet.
        """
        parameter_groups = self._require_optimizer().param_groups
        if param is None:
            return [group["params"] for group in parameter_groups]
        found = [group for group in parameter_groups if any(one is param for one in group["params"])]
        return found[0] if found else None

    def _require_optimizer(self) -> torch.optim.Optimizer:
        if self.optimizer is None:
            raise usage_errors.no_optimizer()
        return self.optimizer

    def get_num_trainable_parameters(self) -> int:
        """Return the number of elements of all trainable parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)

    # ---- saving (checkpoint/, engine/saver.py) ------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model so that it can be loaded again (with `from_pretrained` if the model has it).

        Args:
            output_dir: The directory; by default `output_dir` of the arguments.
            _internal_call: The call is part of another save: no save is waited for, and nothing is uploaded.
        """
        if not _internal_call:
            engine.save_outcome.wait_for_last(self)
        directory = output_dir if output_dir is not None else str(self._output_path)
        if self.args.should_save and self._publishing is not None:
            self._publishing.release(Path(directory))
        with optim.schedule_free.use_averaged_weights(self.optimizer):
            if self.strategy.is_sharded and self._is_overridden("_save"):
                whole = self.strategy.model_state(self.model)  # all processes have to take part
                if self.args.should_save:
                    self._save(directory, state_dict=whole)
            elif self.args.should_save or self.strategy.is_sharded:
                self._save(directory)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", blocking=not self.is_in_train)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        directory = Path(output_dir) if output_dir is not None else self._output_path
        directory.mkdir(parents=True, exist_ok=True)
        checkpoints.save_parts.save_weights(self, directory, state_dict=state_dict)

    def _get_output_dir(self, trial: Any) -> str:
        """Return the directory of a run: that of its trial in a search, else `output_dir`."""
        return str(self._output_path if trial is None or self._trial_directory is None else self._trial_directory)

    @property
    def _output_path(self) -> Path:
        return Path(self.args.output_dir or "trainer_output")

    def _is_saving_now(self) -> bool:
        return self.control.should_save or self.args.save_strategy == SaveStrategy.BEST

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write `checkpoint-N`, which appears whole or not at all."""
        engine.saver.save_checkpoint(self, trial)

    def _export_callback_states(self) -> dict[str, Any]:
        return export_callbacks([*self.callback_handler.callbacks, self.control])

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        checkpoints.save_parts.save_optimizer_and_scheduler(self, Path(output_dir))

    def _save_scaler(self, output_dir: str) -> None:
        checkpoints.save_parts.save_scaler(self, Path(output_dir))

    def _save_rng_state(self, output_dir: str) -> None:
        checkpoints.save_parts.save_random_state(self, Path(output_dir))

    def _load_best_model(self) -> None:
        """Load the best weights into the model."""
        best = Path(self.state.best_model_checkpoint or "")
        checkpoints.callback_tensors.load_best(self, best)
        note(f"loaded the best model, of step {engine.save_outcome.find_best_step(self)}, from {best}")

    # ---- resuming (checkpoint/, engine/resume.py) --------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        opened = checkpoints.layouts.open_checkpoint(resume_from_checkpoint)
        opened.load_weights(model if model is not None else self.model, self.strategy.load_model_state)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        optimizer = self._require_optimizer()
        mutates = self._search is not None and self.hp_search_backend == HPSearchBackend.RAY
        options = search.tune_checkpoint.read_options(optimizer) if mutates else None
        checkpoints.layouts.open_checkpoint(checkpoint).load_training_parts(
            optimizer=optimizer, scheduler=self.lr_scheduler, load=self.strategy.load_optimizer_state
        )
        if options is not None:
            search.tune_checkpoint.use_options(optimizer, self.lr_scheduler, options)

    def _load_scaler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            checkpoints.layouts.open_checkpoint(checkpoint).load_scaler(getattr(self.precision, "scaler", None))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            checkpoints.layouts.open_checkpoint(checkpoint).load_random_state(
                self.args.process_index, self.args.world_size
            )

    def _load_callback_state(self) -> None:
        """Restore the state of callbacks that have one."""
        rebuilds = self.args.restore_callback_states_from_checkpoint
        engine.resume.load_callback_state(self.callback_handler.callbacks, self.state, rebuilds=rebuilds)

    # ---- the hub (hub/) -------------------------------------------------------------------------

    def init_hf_repo(self, token: str | None = None) -> None:
        """Create the repository on the hub, or find it, and set `hub_model_id` to its name.

        Args:
            token: The access token; by default that of the arguments.
        """
        hub.publisher.init_repository(self, token)

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Save the model, write its card and upload both.

        A failed upload raises nothing: a warning gives the reason and the command that completes it, and None is
        returned.

        Args:
            commit_message: The message of the commit.
            blocking: Wait for the upload.
            token: The access token; by default that of the arguments.
            revision: The branch to upload to.
            **kwargs: Passed to `create_model_card`.

        Returns:
            The commit, or a `Future` of it with `blocking=False`.
        """
        message = commit_message or "End of training"
        return hub.publisher.push_to_hub(self, message, token, revision, dict(kwargs), blocks=blocking)

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """Write README.md into the output directory: metadata for the hub, and text for readers.

        Args:
            language: The language of the model, for the metadata.
            license: Its license.
            tags: Tags to add.
            model_name: The title of the card.
            finetuned_from: The base model.
            tasks: Its tasks.
            dataset_tags: The names of its data sets on the hub.
            dataset: The names of its data sets as readers know them.
            dataset_args: The arguments of its data sets.
        """
        card = hub.model_card
        asked = card.CardRequest(
            language=card.as_list(language),
            license=license,
            tags=card.as_list(tags),
            base_model=finetuned_from,
            tasks=card.as_list(tasks),
            dataset_tags=card.as_list(dataset_tags),
            datasets=card.as_list(dataset),
            dataset_args=card.as_list(dataset_args),
        )
        hub.card_facts.create_model_card(self, asked, model_name)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Start to upload the result of a save, as `hub_strategy` says."""
        hub.publisher.push_from_checkpoint(self, Path(checkpoint_folder))

    def _finish_current_push(self) -> None:
        """Wait for uploads, up to a time limit; report what is missing."""
        if self._publishing is not None:
            hub.publisher.finish_current_push(self)

    # ---- metrics and files ---------------------------------------------------------------------------

    @staticmethod
    def metrics_format(metrics: dict[str, Any]) -> dict[str, Any]:
        """Return metrics in readable form.

        Args:
            metrics: The metrics by name.

        Returns:
            The formatted metrics by name.
        """
        return metrics_text.metrics_format(metrics)

    def log_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Print metrics as a small table.

        Args:
            split: The name of the set, for the title.
            metrics: The metrics by name.
        """
        if self.is_world_process_zero():
            print(metrics_text.format_metrics_table(split, metrics))  # noqa: T201

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Write `{split}_results.json`, and add the metrics to `all_results.json`.

        Args:
            split: The name of the set.
            metrics: The metrics by name.
            combined: Add them to `all_results.json`.
        """
        if self.is_world_process_zero():
            metrics_text.write_metrics(self._output_path, split, metrics, combined=combined)

    def save_state(self) -> None:
        """Write `trainer_state.json` into the output directory."""
        if self.is_world_process_zero():
            self._output_path.mkdir(parents=True, exist_ok=True)
            self.state.save_to_json(self._output_path / checkpoints.file_names.TRAINER_STATE_NAME)

    def floating_point_ops(self, inputs: Batch) -> int:
        """Return the operations of one batch: what the model states, or six per parameter and token.

        Args:
            inputs: The batch.

        Returns:
            The number of operations; 0 if the batch lacks the main input.
        """
        return engine.flops.count_operations(self.model, inputs)

    def _build_flop_counter(self) -> engine.flops.FlopCounter:
        overridden = self._is_overridden("floating_point_ops")
        return engine.flops.FlopCounter(
            count=self.floating_point_ops if overridden or engine.flops.can_count_operations(self.model) else None,
            by_shape_of=None if overridden else engine.flops.find_deciding_input(self.model),
        )

    def store_flos(self) -> None:
        """Move the operations counted so far into the state."""
        if self._run is not None:
            self.current_flos += self._run.meters.flops.take()
        total = torch.tensor(self.current_flos, dtype=torch.float64)
        self.state.total_flos += float(self.strategy.sum(total)) if self.args.world_size > 1 else self.current_flos
        self.current_flos = 0

    def is_local_process_zero(self) -> bool:
        """Return whether this is the main process of its machine."""
        return self.args.local_process_index == 0

    def is_world_process_zero(self) -> bool:
        """Return whether this is the main process of all."""
        return self.args.process_index == 0

    @property
    def _loss_meter(self) -> engine.meters.LossMeter:
        return self._own_loss_meter if self._run is None else self._run.meters.loss

    @cached_property
    def _own_loss_meter(self) -> engine.meters.LossMeter:
        """The losses of a loop that a subclass has written."""
        return engine.meters.LossMeter(self.strategy.device)

    @property
    def _total_loss_scalar(self) -> float:
        return self._loss_meter.total

    @_total_loss_scalar.setter
    def _total_loss_scalar(self, total: float) -> None:
        self._loss_meter.total = total

    @property
    def _globalstep_last_logged(self) -> int:
        return self._loss_meter.last_step

    @_globalstep_last_logged.setter
    def _globalstep_last_logged(self, step: int) -> None:
        self._loss_meter.last_step = step

    def _build_token_counter(self) -> engine.token_count.TokenCounter:
        """Return the counter of input tokens that arguments, model and tokenizer define."""
        return engine.token_count.TokenCounter(
            getattr(self.model, "main_input_name", "input_ids"),
            mode=str(self.args.include_num_input_tokens_seen),
            pad_token_id=getattr(self.processing_class, "pad_token_id", None),
        )

    def _track_num_input_tokens(self, inputs: Batch) -> None:
        """Count the input tokens of one micro-batch over all processes."""
        self.state.num_input_tokens_seen += int(self.strategy.sum(torch.tensor(self._build_token_counter()(inputs))))

    def _is_overridden(self, method: str) -> bool:
        """Return whether a subclass, the object, or code that sets methods of `Trainer` has another method."""
        return getattr(type(self), method) is not _METHODS[method] or method in vars(self)

    def _is_replaced(self, method: str) -> bool:
        """Return whether a subclass outside of this package has a method of its own."""
        module = getattr(getattr(type(self), method, None), "__module__", None) or ""
        return module.partition(".")[0] != __package__ or method in vars(self)

    # ---- searches (search/) ----------------------------------------------------------------------------

    def hyperparameter_search(
        self,
        hp_space: Any = None,
        compute_objective: Any = None,
        n_trials: int | None = 20,
        direction: str | list[str] = "minimize",
        backend: str | HPSearchBackend | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **kwargs: Any,
    ) -> BestRun | list[BestRun]:
        """Train with several values of arguments, and return the best.

        Every trial trains a new model in a directory of its own, `output_dir/run-N`. The search is recorded in
        `output_dir/search`; one that was killed goes on when it is called again.

        Args:
            hp_space: What is searched: a dict such as `{"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}`,
                a YAML or JSON file with it, or a function of a trial; by default the learning rate, the number of
                epochs and the batch size.
            compute_objective: A function of the metrics that returns the objective, or a list of them; or the names
                of metrics. By default `default_compute_objective`.
            n_trials: The number of trials, in all; None with a `timeout`.
            direction: "minimize" or "maximize"; a list for several objectives.
            backend: "optuna", "ray" or "wandb"; by default the first that is installed.
            hp_name: A function of the trial that returns the name of its run.
            **kwargs: Passed to the library: for Optuna storage, sampler, pruner, study_name, load_if_exists,
                timeout, gc_after_trial; for Ray the arguments of `ray.tune.run`.

        Returns:
            The best trial; for several objectives, all that no other surpasses.

        Raises:
            ConfigError: There is no `model_init`, the space or the objective cannot be meant, the library is not
                installed, the study belongs to another search, or all trials failed.

        >>> best = trainer.hyperparameter_search(
        ...     {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}, n_trials=12
        ... )  # doctest: +SKIP
        >>> best.hyperparameters, best.objective  # doctest: +SKIP
        ({'learning_rate': 0.0004}, 0.31)
        """
        return search.backends.search(self, hp_space, compute_objective, n_trials, direction, backend, hp_name, kwargs)

    def load_best_trial(self, number: int | None = None) -> BestRun:
        """Load the model of the best trial of the search in `output_dir`, and set its values as arguments.

        Args:
            number: For several objectives, which of the best.

        Returns:
            The trial.

        Raises:
            DataError: There is no search in `output_dir`.
            ConfigError: No trial is complete.
            CheckpointError: The weights are gone.
        """
        return search.best_trial.load_best_trial(self, number)

    def _hp_search_setup(self, trial: Any) -> None:
        """Draw the values of a trial, and set them as arguments."""
        self._trial = trial
        if trial is not None:
            search.trial_setup.set_up_trial(self, trial)

    def _report_to_hp_search(self, trial: Any, step: int, metrics: dict[str, float]) -> None:
        """Report an evaluation to the search; raise if the trial is not worth going on."""
        if trial is not None and self.hp_search_backend is not None:
            search.reports.report(self, trial, step, metrics)

    def _tune_save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint for Ray Tune."""
        search.tune_checkpoint.save(self, checkpoint_dir)

    # ---- processes that share layers or sequences --------------------------------------------------------

    def get_tp_size(self) -> int:
        """Return the number of processes that share one copy of each layer."""
        return self.args.model_parallel_size

    def get_cp_size(self) -> int:
        """Return the number of processes that share one sequence."""
        return 1

    def get_sp_size(self) -> int:
        """Return the number of processes that share one sequence, by heads."""
        return 1


# What this module defines: a script may set methods of the class, which then are not `Trainer`'s own.
_METHODS: dict[str, Any] = {name: getattr(Trainer, name) for name in vars(Trainer)}
