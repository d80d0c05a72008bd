"""The frozen settings that each part receives, made from `TrainingArguments`.

A part never reads `args`, so what it depends on is declared here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.choices import HubStrategy, OptimizerNames, SaveStrategy, SchedulerType
from ..core.errors import ConfigError

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
    by_windows: bool = False  # group_by_length sorts window by window, without a look at all lengths
    window: int | None = None  # how many batches are sorted at a time; None: chosen
    max_tokens: int | None = None  # of a training batch, padding included; None: batches are counted in rows
    skips_bad_rows: bool = False  # training rows that cannot be read are left out
    splits_by_length: bool = False  # the rows of an optimizer step are cut into micro-batches by length
    packs: bool = False  # training rows are laid end to end
    accumulation: int = 1  # micro-batches per optimizer step

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
            rank=args.process_index,
            world_size=args.world_size,
            by_windows=bool(args.length_window),
            window=args.length_window if (args.length_window or 0) > 0 else None,
            max_tokens=args.max_tokens_per_batch,
            skips_bad_rows=args.skip_bad_rows,
            splits_by_length=args.split_by_length,
            packs=args.packing,
            accumulation=args.gradient_accumulation_steps,
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

    find_unused_parameters: bool | None
    bucket_cap_mb: int | None
    broadcast_buffers: bool | None
    static_graph: bool | None
    backend: str | None
    timeout_seconds: int

    @classmethod
    def of(cls, args: TrainingArguments) -> ReplicaSettings:
        return cls(
            # As documented by transformers: true, unless activations are recomputed.
            find_unused_parameters=not args.gradient_checkpointing
            if args.ddp_find_unused_parameters is None
            else args.ddp_find_unused_parameters,
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
    directories: tuple[str, ...]  # where the rest may go besides the usual place
    loss_only: bool
    keep_inputs: bool
    keep_losses: bool
    metric_per_batch: bool
    join_batches: bool
    full_dtype: torch.dtype | None  # of the weights while it runs, outside of training
    isolate_rng: bool
    batch_size: int
    best_metric: str | None
    generates: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> EvaluationSettings:
        memory = args.eval_memory_mb
        return cls(
            memory=None if memory is None else int(memory * 2**20),
            directories=(args.output_dir,) if args.output_dir else (),
            loss_only=args.prediction_loss_only,
            keep_inputs="inputs" in args.include_for_metrics,
            keep_losses="loss" in args.include_for_metrics,
            metric_per_batch=args.batch_eval_metrics,
            join_batches=args.eval_do_concat_batches,
            full_dtype=torch.float16 if args.fp16_full_eval else torch.bfloat16 if args.bf16_full_eval else None,
            isolate_rng=args.isolate_rng,
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
    def of(cls, args: TrainingArguments) -> ReportSettings:
        return cls(
            isolate_rng=args.isolate_rng,
            best_decides_saving=args.save_strategy == SaveStrategy.BEST,
            load_best_at_end=args.load_best_model_at_end,
            nonfinite_in_train_loss=not args.logging_nan_inf_filter,
            evaluates_first=args.eval_on_start,
        )


@dataclass(frozen=True)
class SaveSettings:
    """When checkpoints are written, and how many are kept."""

    strategy: SaveStrategy
    only_model: bool
    total_limit: int | None
    writes_here: bool  # this process writes the files that exist once
    for_transformers: bool  # also the files by which transformers goes on
    errors: str  # of the disk: warn goes on, raise ends the run
    rank: int = 0
    world_size: int = 1

    @classmethod
    def of(cls, args: TrainingArguments) -> SaveSettings:
        return cls(
            strategy=SaveStrategy(args.save_strategy),
            only_model=args.save_only_model,
            total_limit=args.save_total_limit,
            writes_here=args.should_save,
            for_transformers=args.checkpoint_layout == "transformers",
            errors=args.save_errors,
            rank=args.process_index,
            world_size=args.world_size,
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
            writes_report=args.write_report,
        )


def arguments_json(args: TrainingArguments) -> str:
    """Return every argument as JSON text, as it is saved beside a model."""
    return args.to_json_string()


def _parse_options(text: str | None) -> dict[str, str]:
    """`"a=1, b=x"` as a dict; values stay strings, the optimizer knows their types."""
    if not text:
        return {}
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
