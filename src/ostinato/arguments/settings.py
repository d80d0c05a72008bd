"""The frozen settings that each part receives, made from `TrainingArguments`.

A part never reads `args`, so what it depends on is declared here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.choices import DebugOption, HubStrategy, IntervalStrategy, OptimizerNames, SaveStrategy, SchedulerType
from ..core.errors import ConfigError
from .extras import shorten_names

if TYPE_CHECKING:
    from .training_args import TrainingArguments


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimizer and its hyperparameters."""

    name: OptimizerNames
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    epsilon: float
    options: Mapping[str, str]  # `optim_args="momentum=0.9,nesterov=true"`, parsed
    target_modules: str | list[str] | None
    warmup_steps: float = 0  # below 1: a fraction of the run

    @classmethod
    def of(cls, args: TrainingArguments) -> OptimizerSettings:
        return cls(
            name=OptimizerNames(args.optim),
            learning_rate=args.learning_rate,
            weight_decay=args.weight_decay,
            betas=(args.adam_beta1, args.adam_beta2),
            epsilon=args.adam_epsilon,
            options=_parse_options(args.optim_args),
            target_modules=args.optim_target_modules,
            warmup_steps=args.warmup_steps,
        )


@dataclass(frozen=True)
class ScheduleSettings:
    """The learning rate schedule and its length."""

    name: SchedulerType
    warmup_steps: int
    num_training_steps: int
    options: Mapping[str, Any]

    @classmethod
    def of(cls, args: TrainingArguments, num_training_steps: int) -> ScheduleSettings:
        return cls(
            name=SchedulerType(args.lr_scheduler_type),
            warmup_steps=args.get_warmup_steps(num_training_steps),
            num_training_steps=num_training_steps,
            options=_to_dict(args.lr_scheduler_kwargs),
        )


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are read in this process."""

    drop_last: bool
    num_workers: int
    pin_memory: bool
    persistent_workers: bool
    prefetch_factor: int | None
    multiprocessing_context: str | None
    in_order: bool
    sampling: str  # random, sequential, group_by_length, batch_rebalance
    length_column: str
    seed: int | None  # `data_seed`; None: the current global seed, as in transformers
    rank: int
    world_size: int
    by_windows: bool = False  # group_by_length sorts window by window, without reading all lengths
    window: int | None = None  # how many batches are sorted at a time; None: chosen
    max_tokens: int | None = None  # of a training batch, padding included; None: batches are counted in rows
    skips_bad_rows: bool = False  # training rows that cannot be read are left out
    splits_by_length: bool = False  # the rows of an optimizer step are split into micro-batches by length
    packs: bool = False  # training rows are concatenated
    accumulation: int = 1  # micro-batches per optimizer step
    draws_order: bool = False  # a random order is drawn from torch's generator, and no function of seed and epoch

    @classmethod
    def of(cls, args: TrainingArguments) -> LoaderSettings:
        return cls(
            drop_last=args.dataloader_drop_last,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            multiprocessing_context=args.dataloader_multiprocessing_context,
            in_order=args.dataloader_in_order,
            sampling=args.train_sampling_strategy,
            length_column=args.length_column_name,
            seed=args.data_seed,
            rank=args.data_index,
            world_size=args.data_size,
            by_windows=bool(args.ostinato.length_window),
            window=args.ostinato.length_window if (args.ostinato.length_window or 0) > 0 else None,
            max_tokens=args.ostinato.max_tokens_per_batch,
            skips_bad_rows=args.ostinato.skip_bad_rows,
            splits_by_length=args.ostinato.split_by_length,
            packs=args.ostinato.packing,
            accumulation=args.gradient_accumulation_steps,
            draws_order=not getattr(args.accelerator_config, "use_seedable_sampler", True),
        )


@dataclass(frozen=True)
class PrecisionSettings:
    """The number format of forward and backward."""

    bf16: bool
    fp16: bool
    device_type: str

    @classmethod
    def of(cls, args: TrainingArguments, device_type: str) -> PrecisionSettings:
        return cls(bf16=args.bf16, fp16=args.fp16, device_type=device_type)


@dataclass(frozen=True)
class CompileSettings:
    """The backend and mode of `torch.compile`."""

    backend: str
    mode: str | None

    @classmethod
    def of(cls, args: TrainingArguments) -> CompileSettings | None:
        if not args.torch_compile:
            return None
        return cls(backend=args.torch_compile_backend or "inductor", mode=args.torch_compile_mode)


@dataclass(frozen=True)
class ReplicaSettings:
    """Communication between processes that hold the whole model."""

    find_unused_parameters: bool | None  # None: from the first step in which there are any
    bucket_cap_mb: int | None
    broadcast_buffers: bool | None
    static_graph: bool | None
    backend: str | None
    timeout_seconds: int

    @classmethod
    def of(cls, args: TrainingArguments) -> ReplicaSettings:
        return cls(
            find_unused_parameters=args.ddp_find_unused_parameters,
            bucket_cap_mb=args.ddp_bucket_cap_mb,
            broadcast_buffers=args.ddp_broadcast_buffers,
            static_graph=args.ddp_static_graph,
            backend=args.ddp_backend,
            timeout_seconds=args.ddp_timeout,
        )


@dataclass(frozen=True)
class EvaluationSettings:
    """What an evaluation computes and keeps, and where."""

    memory: int | None  # bytes that the rows it keeps may take in memory
    measures_everywhere: bool  # metric functions are called in every process
    directories: tuple[str, ...]  # where the rest may go besides the usual place
    loss_only: bool
    keep_inputs: bool
    keep_losses: bool
    metric_per_batch: bool
    join_batches: bool
    gathers_objects: bool  # from all processes, not only tensors
    full_dtype: torch.dtype | None  # of the weights while it runs, outside of training
    isolate_rng: bool
    batch_size: int
    best_metric: str | None
    generates: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> EvaluationSettings:
        memory = args.ostinato.eval_memory_mb
        return cls(
            memory=None if memory is None else int(memory * 2**20),
            measures_everywhere=args.ostinato.metrics_in_all_processes,
            directories=(args.output_dir,) if args.output_dir else (),
            loss_only=args.prediction_loss_only,
            keep_inputs="inputs" in args.include_for_metrics,
            keep_losses="loss" in args.include_for_metrics,
            metric_per_batch=args.batch_eval_metrics,
            join_batches=args.eval_do_concat_batches,
            gathers_objects=args.eval_use_gather_object,
            full_dtype=torch.float16 if args.fp16_full_eval else torch.bfloat16 if args.bf16_full_eval else None,
            isolate_rng=args.ostinato.isolate_rng,
            batch_size=args.eval_batch_size,
            best_metric=args.metric_for_best_model,
            generates=bool(getattr(args, "predict_with_generate", False)),
        )


@dataclass(frozen=True)
class ReportSettings:
    """How the results of steps and evaluations are used."""

    isolate_rng: bool
    best_decides_saving: bool  # a checkpoint is saved only after the best evaluation so far
    load_best_at_end: bool
    nonfinite_in_train_loss: bool  # a skipped step makes the final loss NaN, instead of being excluded
    evaluates_first: bool  # before the first step

    @classmethod
    def of(cls, args: TrainingArguments, *, begins: bool = True) -> ReportSettings:
        """`begins` is False for a run that continues one of the same call."""
        return cls(
            isolate_rng=args.ostinato.isolate_rng,
            best_decides_saving=args.save_strategy == SaveStrategy.BEST,
            load_best_at_end=args.load_best_model_at_end,
            nonfinite_in_train_loss=not args.logging_nan_inf_filter,
            evaluates_first=args.eval_on_start and begins,
        )


@dataclass(frozen=True)
class RunSettings:
    """What a run is set up with: its length, its seeds, and what is done with its data and gradients."""

    epochs: float
    max_steps: int
    accumulation: int
    batch_size: int
    max_grad_norm: float | None
    max_tokens_per_batch: int | None
    seed: int
    data_seed: int  # `seed` where none is given
    isolate_rng: bool
    rank: int
    skip_bad_rows: bool
    ignore_data_skip: bool
    nonfinite_patience: int
    watches_modules: bool  # raise at the first module with a number that is not finite
    gradient_checkpointing: bool
    gradient_checkpointing_kwargs: Any
    liger_kernels: Mapping[str, bool] | None  # which of Liger's kernels are used; None: the model stays as it is
    counts_tokens: bool
    peak_flops: float | None
    mixed_precision: str
    workers: int
    output_dir: str | None
    save_on_each_node: bool
    non_blocking: bool  # batches that are not in pinned memory are copied to the device without a wait, too
    saves_after_epochs: bool  # a checkpoint is due at the end of an epoch, after its evaluation
    finds_batch_size: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> RunSettings:
        saves = args.eval_strategy if args.save_strategy == SaveStrategy.BEST else args.save_strategy
        return cls(
            epochs=args.num_train_epochs,
            max_steps=args.max_steps,
            accumulation=args.gradient_accumulation_steps,
            batch_size=args.train_batch_size,
            max_grad_norm=args.max_grad_norm,
            max_tokens_per_batch=args.ostinato.max_tokens_per_batch,
            seed=args.seed,
            data_seed=args.seed if args.data_seed is None else args.data_seed,
            isolate_rng=args.ostinato.isolate_rng,
            rank=args.data_index,
            skip_bad_rows=args.ostinato.skip_bad_rows,
            ignore_data_skip=args.ignore_data_skip,
            nonfinite_patience=args.ostinato.nonfinite_patience,
            watches_modules=DebugOption.UNDERFLOW_OVERFLOW in args.debug,
            gradient_checkpointing=args.gradient_checkpointing,
            gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs,
            liger_kernels=dict(args.liger_kernel_config or {}) if args.use_liger_kernel else None,
            counts_tokens=args.include_num_input_tokens_seen != "no",
            peak_flops=args.ostinato.peak_flops,
            mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else "no",
            workers=args.dataloader_num_workers,
            output_dir=args.output_dir,
            save_on_each_node=args.save_on_each_node,
            non_blocking=bool(getattr(args.accelerator_config, "non_blocking", False)),
            saves_after_epochs=saves == "epoch",
            finds_batch_size=args.auto_find_batch_size,
        )


@dataclass(frozen=True)
class SaveSettings:
    """When checkpoints are written, and how many are kept."""

    strategy: SaveStrategy
    only_model: bool
    total_limit: int | None
    writes_here: bool  # this process writes the files that exist once
    on_each_node: bool  # which are written by a process of each node
    for_transformers: bool  # also the files from which transformers resumes
    errors: str  # of the disk: "warn" continues, "raise" ends the run
    rank: int = 0
    world_size: int = 1
    load_best_at_end: bool = False
    push_to_hub: bool = False
    just_in_time: bool = False  # SIGTERM is answered with a checkpoint whatever the strategy, and `train` returns

    @classmethod
    def of(cls, args: TrainingArguments) -> SaveSettings:
        return cls(
            strategy=SaveStrategy(args.save_strategy),
            only_model=args.save_only_model,
            total_limit=args.save_total_limit,
            writes_here=args.should_save,
            on_each_node=args.save_on_each_node,
            for_transformers=args.ostinato.checkpoint_layout == "transformers",
            errors=args.ostinato.save_errors,
            rank=args.process_index,
            world_size=args.world_size,
            load_best_at_end=args.load_best_model_at_end,
            push_to_hub=args.push_to_hub,
            just_in_time=args.enable_jit_checkpoint,
        )


@dataclass(frozen=True)
class HubSettings:
    """Uploads to the hub."""

    uploads: bool
    name: str  # `owner/name`, or the name alone
    token: str | None = field(repr=False)
    private: bool | None
    strategy: HubStrategy
    always: bool  # also while another upload runs
    revision: str | None
    by_epochs: bool  # commit messages count epochs, not steps

    @classmethod
    def of(cls, args: TrainingArguments) -> HubSettings:
        return cls(
            uploads=args.push_to_hub,
            name=args.hub_model_id or Path(args.output_dir or "trainer_output").absolute().name,
            token=args.hub_token,
            private=args.hub_private_repo,
            strategy=HubStrategy(args.hub_strategy),
            always=args.hub_always_push,
            revision=args.hub_revision,
            by_epochs=args.save_strategy == SaveStrategy.EPOCH,
        )


@dataclass(frozen=True)
class JournalSettings:
    """What a journal records about a run besides its arguments."""

    run_name: str | None
    mixed_precision: str
    epochs: float | None  # None where `max_steps` decides
    metric: str | None
    greater_is_better: bool | None
    world_size: int
    writes_report: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> JournalSettings:
        return cls(
            run_name=args.run_name,
            mixed_precision=args.mixed_precision,
            epochs=args.num_train_epochs if args.max_steps <= 0 else None,
            metric=args.metric_for_best_model,
            greater_is_better=args.greater_is_better,
            world_size=args.world_size,
            writes_report=args.ostinato.write_report,
        )


@dataclass(frozen=True)
class BatchSettings:
    """The settings that determine how a batch is made and computed, for explaining one."""

    removes_columns: bool
    packs: bool
    splits_by_length: bool
    gradient_checkpointing: bool
    half_precision: bool
    mixed_precision: str  # "bf16", "fp16" or "no"
    accumulation: int
    label_smoothing: float
    train_batch_size: int  # per device
    eval_batch_size: int

    @classmethod
    def of(cls, args: TrainingArguments) -> BatchSettings:
        return cls(
            removes_columns=args.remove_unused_columns,
            packs=args.ostinato.packing,
            splits_by_length=args.ostinato.split_by_length,
            gradient_checkpointing=args.gradient_checkpointing,
            half_precision=args.bf16 or args.fp16,
            mixed_precision=args.mixed_precision,
            accumulation=args.gradient_accumulation_steps,
            label_smoothing=args.label_smoothing_factor,
            train_batch_size=args.train_batch_size,
            eval_batch_size=args.eval_batch_size,
        )


@dataclass(frozen=True)
class MetricInputSettings:
    """What a metric function receives, and when."""

    include: tuple[str, ...]  # besides predictions and labels
    loss_only: bool
    by_batch: bool  # it is called after every batch
    concatenates: bool
    generates: bool
    memory: int | None  # bytes

    @classmethod
    def of(cls, args: TrainingArguments) -> MetricInputSettings:
        return cls(
            include=tuple(args.include_for_metrics),
            loss_only=bool(args.prediction_loss_only),
            by_batch=args.batch_eval_metrics,
            concatenates=args.eval_do_concat_batches,
            generates=bool(getattr(args, "predict_with_generate", False)),
            memory=EvaluationSettings.of(args).memory,
        )


@dataclass(frozen=True)
class DryRunSettings:
    """What a dry run tries, and on how many rows."""

    evaluates: bool  # during training
    evaluates_first: bool
    batch_metrics: bool  # metrics accumulate over calls, which cannot be undone
    best_metric: str | None
    train_batch_size: int
    eval_batch_size: int
    world_size: int
    writes_here: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> DryRunSettings:
        return cls(
            evaluates=args.eval_strategy != IntervalStrategy.NO,
            evaluates_first=args.eval_on_start,
            batch_metrics=args.batch_eval_metrics,
            best_metric=args.metric_for_best_model,
            train_batch_size=args.train_batch_size,
            eval_batch_size=args.eval_batch_size,
            world_size=args.data_size,
            writes_here=args.should_save,
        )


@dataclass(frozen=True)
class RunPlanSettings:
    """The settings that determine the length, the schedule and the events of a run."""

    train_batch_size: int
    eval_batch_size: int
    max_steps: int
    epochs: float
    learning_rate: float
    weight_decay: float
    max_grad_norm: float | None  # None: gradients are not clipped
    mixed_precision: str
    gradient_checkpointing: bool
    compile_backend: str  # empty: the model is not compiled
    eval_strategy: IntervalStrategy
    eval_delay: float
    evaluates_first: bool
    logging_strategy: IntervalStrategy
    logs_first_step: bool
    report_to: tuple[str, ...]
    best_metric: str
    loads_best: bool
    arguments: Mapping[str, Any]  # those that a plan names, with their present values

    @classmethod
    def of(cls, args: TrainingArguments) -> RunPlanSettings:
        return cls(
            train_batch_size=args.train_batch_size,
            eval_batch_size=args.eval_batch_size,
            max_steps=args.max_steps,
            epochs=args.num_train_epochs,
            learning_rate=args.learning_rate,
            weight_decay=args.weight_decay,
            max_grad_norm=args.max_grad_norm if args.max_grad_norm and args.max_grad_norm > 0 else None,
            mixed_precision=args.mixed_precision,
            gradient_checkpointing=bool(args.gradient_checkpointing),
            compile_backend=args.torch_compile_backend or "" if args.torch_compile else "",
            eval_strategy=IntervalStrategy(args.eval_strategy),
            eval_delay=args.eval_delay,
            evaluates_first=bool(args.eval_on_start),
            logging_strategy=IntervalStrategy(args.logging_strategy),
            logs_first_step=args.logging_first_step,
            report_to=(args.report_to,) if isinstance(args.report_to, str) else tuple(args.report_to or ()),
            best_metric=args.metric_for_best_model or "loss",
            loads_best=args.load_best_model_at_end,
            arguments={name: _to_plain(getattr(args, name)) for name in _PLAN_ARGUMENTS},
        )


_PLAN_ARGUMENTS = (
    "max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps",
    "train_sampling_strategy", "split_by_length", "optim", "learning_rate", "lr_scheduler_type", "warmup_steps",
    "weight_decay", "max_grad_norm", "bf16", "fp16", "gradient_checkpointing", "torch_compile", "eval_strategy",
    "eval_steps", "per_device_eval_batch_size", "eval_memory_mb", "save_strategy", "save_steps", "save_only_model",
    "save_total_limit", "output_dir", "load_best_model_at_end", "metric_for_best_model", "logging_strategy",
    "logging_steps", "report_to",
)  # fmt: skip


def _to_plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def format_arguments_json(args: TrainingArguments) -> str:
    """Return every argument as JSON text, as it is saved beside a model."""
    return json.dumps(shorten_names(args, args.to_dict()), indent=2, default=str)


def _parse_options(text: str | Mapping[str, Any] | None) -> dict[str, str]:
    """Return `"a=1, b=x"` as a dict; values stay strings, the optimizer knows their types."""
    if not text:
        return {}
    if isinstance(text, Mapping):
        return {name: str(value) for name, value in text.items()}
    options = {}
    for pair in re.split(r",(?![^(\[]*[)\]])", text.replace(" ", "")):  # not inside betas=(0.9,0.95)
        name, equals, value = pair.partition("=")
        if name and not equals:
            raise ConfigError(
                what=f"optim_args={text!r}: {name!r} has no value",
                why="options are written as name=value, separated by commas",
                fix=f'for example optim_args="{name}=0.9"',
            )
        if name:
            options[name] = value
    return options


def _to_dict(options: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return options as a dict; JSON was parsed when the arguments were constructed."""
    return dict(options) if isinstance(options, Mapping) else {}
