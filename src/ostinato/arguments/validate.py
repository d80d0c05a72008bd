"""The checks of arguments: all problems are found before anything runs, and reported together."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core import accelerator
from ..core.choices import IntervalStrategy, OptimizerNames, SaveStrategy, SchedulerType
from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import note_once
from ..core.world import World
from . import tracker_names
from .accelerator_config import ACCUMULATION_OPTIONS, AcceleratorConfig
from .argument import (
    DATA_PARALLEL_ONLY,
    USE_DATA_PARALLEL,
    Declaration,
    Range,
    Unsupported,
    get_default,
)
from .derive import NEED_EVALUATION
from .extras import list_declarations, list_fields
from .shard_settings import ShardSettings

if TYPE_CHECKING:
    from .training_args import TrainingArguments


def find_problems(args: TrainingArguments) -> list[ConfigError]:
    """Return everything that is wrong with the arguments. Nothing is raised or changed."""
    return [problem for check in _CHECKS for problem in check(args)]


def find_wrong_values(args: TrainingArguments) -> list[ConfigError]:
    """Return what is wrong with each argument by itself, whatever the others are."""
    return list(_check_values(args))


def raise_problems(problems: Sequence[ConfigError]) -> None:
    """Raise all problems as one error, if there are any.

    >>> raise_problems([])
    """
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0].with_traceback(None)  # the traceback of the check says nothing to a user
    together = "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, start=1))
    kinds = {type(problem) for problem in problems}
    error = kinds.pop() if len(kinds) == 1 else ConfigError
    raise error(f"{len(problems)} problems with the arguments:\n{together}")


# --- each argument by itself: what its declaration allows ------------------------------------------------------------


def _check_values(args: TrainingArguments) -> Iterator[ConfigError]:
    defaults = {field.name: get_default(field) for field in list_fields(args).values()}
    for name, declaration in list_declarations(args).items():
        value, default = getattr(args, name), defaults[name]
        if declaration.unsupported is not None and value:
            yield _refuse_unsupported(name, value, declaration.unsupported)
        if value is None and (default is None or declaration.allow_none):
            continue
        if declaration.number is not None and value not in declaration.number:
            yield _refuse_number(name, value, default, declaration)
        elif declaration.kind is list:
            yield from _check_list(name, value, declaration)
        elif declaration.kind is dict:
            yield from _check_dict(name, value)
        elif isinstance(declaration.choices, Sequence) and value not in declaration.choices:  # enums: derive.py
            yield ConfigError(
                what=f"{name}={value!r} is not a valid choice",
                why=f"the choices are {', '.join(map(repr, declaration.choices))}",
                fix=f"the default is {name}={default!r}",
            )


def _refuse_unsupported(name: str, value: Any, unsupported: Unsupported) -> NotSupportedError:
    shown = f"={value!r}" if len(repr(value)) <= 40 else ""  # not a whole DeepSpeed configuration
    return NotSupportedError(f"{name}{shown} is not supported", unsupported.why, unsupported.fix)


def _refuse_number(name: str, value: Any, default: Any, declaration: Declaration) -> ConfigError:
    wanted = declaration.number or Range()
    if value is None and declaration.off is not None:
        fix = f"set {name}={declaration.off:g} to turn it off"
    elif isinstance(value, str):
        hint = "" if wanted.whole else "; in YAML, 1e-4 is a string and 1.0e-4 a number"
        fix = f"pass {name} as a number{hint}"
    else:
        fix = f"the default is {name}={default!r}"
    return ConfigError(
        what=f"{name}={value!r} is not {wanted}",
        why="it is out of range" if wanted.is_number(value) else f"it is a {type(value).__name__}",
        fix=fix,
    )


def _check_list(name: str, value: Any, declaration: Declaration) -> Iterator[ConfigError]:
    if isinstance(value, str):
        yield ConfigError(
            what=f"{name}={value!r} is not a list",
            why="a string would be read character by character",
            fix=f"set {name}=[{value!r}]",
        )
    elif isinstance(declaration.choices, Sequence):
        unknown = [item for item in value or [] if item not in declaration.choices]
        if unknown:
            yield ConfigError(
                what=f"{name}={value!r} contains {', '.join(map(repr, unknown))}",
                why=f"the choices are {', '.join(map(repr, declaration.choices))}",
                fix=f"leave out {', '.join(map(repr, unknown))}",
            )


def _check_dict(name: str, value: Any) -> Iterator[ConfigError]:
    is_broken_json = isinstance(value, str) and value.startswith("{")  # reported when it was read
    if value and not isinstance(value, Mapping) and not is_broken_json:
        yield ConfigError(
            what=f"{name}={value!r} is not a dict",
            why="it holds names and values",
            fix=f"pass a dict, or a string of JSON: {name}='{{\"key\": 1}}'",
        )


# --- arguments that contradict one another ---------------------------------------------------------------------------


def _check_intervals(args: TrainingArguments) -> Iterator[ConfigError]:
    for name in ("logging", "eval", "save"):
        strategy, steps = getattr(args, f"{name}_strategy"), getattr(args, f"{name}_steps")
        is_number = steps is None or (isinstance(steps, (int, float)) and math.isfinite(steps))
        if strategy != IntervalStrategy.STEPS.value or not is_number:
            continue
        # save_steps=0 and -1 mean "only at the end" in older scripts
        if steps is None or (name != "save" and steps <= 0):
            yield ConfigError(
                what=f"{name}_strategy='steps' with {name}_steps={steps!r}",
                why="it needs a number of steps above 0, or a fraction of the run between 0 and 1",
                fix=f"set {name}_steps, for example to 500, or {name}_strategy='no'",
            )
        elif steps is not None and steps > 1 and steps != int(steps):
            yield ConfigError(
                what=f"{name}_steps={steps!r} is not a whole number",
                why="below 1 it is a fraction of the run, above 1 a number of steps",
                fix=f"set {name}_steps={round(steps)}",
            )


def _check_best_model(args: TrainingArguments) -> Iterator[ConfigError]:
    never = args.eval_strategy == IntervalStrategy.NO
    best = args.save_strategy == SaveStrategy.BEST
    if best and args.metric_for_best_model is None:
        yield ConfigError(
            what="`args.metric_for_best_model` must be provided with save_strategy='best'",
            why="models are compared by this metric",
            fix="set metric_for_best_model, for example to 'loss' or 'accuracy'",
        )
    schedule = SchedulerType(args.lr_scheduler_type)
    needs_evaluation = {
        "load_best_model_at_end=True": args.load_best_model_at_end,
        "save_strategy='best'": best,
        f"lr_scheduler_type={schedule.value!r}": schedule in NEED_EVALUATION,
    }
    for what, asked in needs_evaluation.items():
        if asked and never:
            yield ConfigError(
                what=f"{what} with eval_strategy='no'",
                why="it compares evaluations, and there are none",
                fix="set eval_strategy='epoch', or eval_strategy='steps' with eval_steps",
            )


def _check_precision(args: TrainingArguments) -> Iterator[ConfigError]:
    for one, other in (("bf16", "fp16"), ("bf16_full_eval", "fp16_full_eval")):
        if getattr(args, one) and getattr(args, other):
            yield ConfigError(
                what=f"{one}=True with {other}=True",
                why="only one number format can be used",
                fix=f"keep {one} if the device supports it, otherwise {other}",
            )
    asked = [name for name in ("bf16", "bf16_full_eval") if getattr(args, name)]
    if asked and accelerator.is_accelerator(args.device) and not accelerator.supports_bf16(args.device):
        yield ConfigError(
            what=f"{asked[0]}=True on a device that does not support it",
            why=f"{accelerator.get_name(args.device) or args.device} has no bfloat16, or emulates it slowly",
            fix=f"set {asked[0].replace('bf16', 'fp16')}=True instead",
        )


def _check_optimizer(args: TrainingArguments) -> Iterator[ConfigError]:
    """Yield what an optimizer lacks, or cannot do because it uses gradients up in the backward pass."""
    name = args.optim
    if not isinstance(name, OptimizerNames):
        return  # invalid, which derive.py reports
    if name.is_low_rank and args.optim_target_modules is None:
        yield ConfigError(
            what=f"optim={name.value!r} without optim_target_modules",
            why="it projects the gradients of the linear layers that are named there",
            fix="set optim_target_modules='all-linear', or name modules: optim_target_modules=['attn', 'mlp']",
        )
    if name.is_layerwise and args.gradient_accumulation_steps > 1:
        yield ConfigError(
            what=f"optim={name.value!r} with gradient_accumulation_steps={args.gradient_accumulation_steps}",
            why="a gradient is used and released as soon as it is computed, and cannot wait for the next micro-batch",
            fix=f"set gradient_accumulation_steps=1, or optim={name.value.removesuffix('_layerwise')!r}",
        )
    if name.steps_in_backward and args.world_size > 1:
        yield NotSupportedError(
            what=f"optim={name.value!r} with {args.world_size} processes",
            why="a gradient is used as soon as it is computed, before the processes have averaged theirs",
            fix="train in one process, or set optim='adafactor', which also needs little memory",
        )
    if name.steps_in_backward and args.fp16 and args.device.type != "cpu":
        yield ConfigError(
            what=f"optim={name.value!r} with fp16=True",
            why="gradients in float16 are scaled, and are used before they are scaled back",
            fix="set bf16=True instead",
        )


def _check_batch_size_search(args: TrainingArguments) -> Iterator[ConfigError]:
    if not args.auto_find_batch_size:
        return
    if args.world_size > 1:
        yield NotSupportedError(
            what=f"auto_find_batch_size=True with {args.world_size} processes",
            why="a process that runs out of memory cannot tell the others, which wait for its gradients",
            fix="find the batch size in one process, and set per_device_train_batch_size to it",
        )
    if isinstance(args.optim, OptimizerNames) and args.optim.steps_in_backward:
        yield ConfigError(
            what=f"auto_find_batch_size=True with optim={args.optim.value!r}",
            why="it changes weights during the backward pass, so a step in which memory ran out cannot be repeated",
            fix="set per_device_train_batch_size, or another optim",
        )


def _check_workers(args: TrainingArguments) -> Iterator[ConfigError]:
    if args.dataloader_num_workers != 0:
        return
    for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
        value = getattr(args, f"dataloader_{name}")
        if value is not None and value is not False:
            yield ConfigError(
                what=f"dataloader_{name}={value!r} with dataloader_num_workers=0",
                why="it applies to worker processes, and there are none",
                fix=f"set dataloader_num_workers above 0, or leave dataloader_{name} out",
            )


def _check_padding(args: TrainingArguments) -> Iterator[ConfigError]:
    if args.ostinato.split_by_length and args.ostinato.packing:
        yield ConfigError(
            what="split_by_length=True with packing=True",
            why="packed rows have no padding to save",
            fix="keep packing for language models that support it, otherwise split_by_length",
        )


def _check_order(args: TrainingArguments) -> Iterator[ConfigError]:
    """Yield conflicts between the arguments that decide about the order of rows."""
    strategy = args.train_sampling_strategy
    window, tokens = args.ostinato.length_window, args.ostinato.max_tokens_per_batch
    if window and tokens is None and strategy != "group_by_length":
        yield ConfigError(
            what=f"length_window={window!r} with train_sampling_strategy={strategy!r}",
            why="it is the number of batches that are sorted by length together, and nothing is sorted",
            fix="set train_sampling_strategy='group_by_length', or leave length_window out",
        )
    if tokens is None:
        return
    if strategy == "sequential":
        yield ConfigError(
            what=f"max_tokens_per_batch={tokens!r} with train_sampling_strategy='sequential'",
            why="rows are grouped by length, and cannot keep their order",
            fix="leave train_sampling_strategy out, or use per_device_train_batch_size",
        )
    for name in ("split_by_length", "packing"):
        if getattr(args, name):
            yield ConfigError(
                what=f"max_tokens_per_batch={tokens!r} with {name}=True",
                why="both decide which rows share a batch",
                fix="leave one of them out",
            )


# --- what is not supported -------------------------------------------------------------------------------------------


def _check_trackers(args: TrainingArguments) -> Iterator[ConfigError]:
    given = args.report_to
    names = [] if given in (None, "none") else [given] if isinstance(given, str) else given
    yield from filter(None, map(tracker_names.find_problem, names))


def _check_accelerator(args: TrainingArguments) -> Iterator[ConfigError]:
    config: Any = args.accelerator_config
    if not isinstance(config, AcceleratorConfig):
        return  # invalid, which derive.py reports
    refused = {
        "even_batches": (
            not config.even_batches and args.world_size > 1,
            "leave it out: evaluation drops repeated rows",
        ),
    }
    for name, (asked, fix) in refused.items():
        if asked:
            yield NotSupportedError(
                what=f"accelerator_config: {name}={getattr(config, name)!r} is not supported",
                why="batches are not made by accelerate",
                fix=fix,
            )
    if config.split_batches:
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
            if getattr(args, name) % args.data_size:
                yield ConfigError(
                    what=f"accelerator_config: split_batches=True with {name}={getattr(args, name)}",
                    why=f"a batch is divided among {args.data_size} processes",
                    fix=f"make {name} a multiple of {args.data_size}",
                )
    unknown = sorted(set(config.gradient_accumulation_kwargs or {}) - set(ACCUMULATION_OPTIONS))
    if unknown:
        yield ConfigError(
            what=f"accelerator_config: gradient_accumulation_kwargs has unknown keys: {', '.join(unknown)}",
            why=f"the known ones are {', '.join(ACCUMULATION_OPTIONS)}",
            fix="leave them out",
        )


def _check_launcher(args: TrainingArguments) -> Iterator[ConfigError]:
    """Yield what `accelerate launch` requests through the environment and is not supported."""
    for name in ("DEEPSPEED", "MEGATRON_LM", "PARALLELISM_CONFIG"):
        variable = f"ACCELERATE_USE_{name}"
        if os.environ.get(variable, "false").lower() in ("true", "1"):
            yield NotSupportedError(
                what=f"the launcher requests {name.lower()} ({variable} is set)",
                why=DATA_PARALLEL_ONLY,
                fix=USE_DATA_PARALLEL,
            )
    if os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower() == "fp8":
        yield NotSupportedError(
            what="the launcher requests fp8 (ACCELERATE_MIXED_PRECISION is set)",
            why="the trainer computes in float32, bfloat16 or float16",
            fix="launch with --mixed_precision bf16, or set bf16=True",
        )


def _check_shards(args: TrainingArguments) -> Iterator[ConfigError]:
    try:
        shards = ShardSettings.of(args)
    except ConfigError as problem:
        yield problem
        return
    if shards is None or args.world_size == 1:
        return
    if args.bf16_full_eval or args.fp16_full_eval:
        yield NotSupportedError(
            what="a sharded model cannot be evaluated with its weights in half precision",
            why="the weights are divided among processes in their own format",
            fix="use bf16=True, which computes in bfloat16 and keeps the weights",
        )


_CHECKS = (
    _check_values,
    _check_intervals,
    _check_best_model,
    _check_precision,
    _check_optimizer,
    _check_batch_size_search,
    _check_workers,
    _check_padding,
    _check_order,
    _check_trackers,
    _check_accelerator,
    _check_launcher,
    _check_shards,
)


# --- accepted without effect -----------------------------------------------------------------------------------------


def _note_accelerator(args: TrainingArguments) -> None:
    """Print a notice for what accelerate would do in another way, with the same numbers."""
    config: Any = args.accelerator_config
    if not isinstance(config, AcceleratorConfig):
        return
    if config.dispatch_batches and args.world_size > 1:
        note_once(
            "accelerator_config: dispatch_batches=True has no effect: every process reads the data set and keeps its "
            "own rows; a stream has to yield the same rows in all of them"
        )
    options = config.gradient_accumulation_kwargs or {}
    if options.get("sync_each_batch"):
        note_once(
            "accelerator_config: sync_each_batch has no effect: processes exchange gradients once per optimizer step"
        )
    for name in ("sync_with_dataloader", "adjust_scheduler"):
        if name in options:
            note_once(f"accelerator_config: {name} has no effect, as in transformers")


def note_ineffective(args: TrainingArguments) -> None:
    """Print a notice for each argument that has no effect here, or another one than its name suggests."""
    device = args.device.type
    if args.fp16 and device == "cpu":
        note_once("fp16=True has no effect on a CPU: computing in float32 (bf16=True would have one)")
    if args.num_train_epochs <= 0 and args.max_steps <= 0:
        note_once(f"num_train_epochs={args.num_train_epochs:g}: train() takes no step")
    if args.tf32 is not None and not accelerator.supports_tf32(args.device):
        name = accelerator.get_name(args.device) or device
        note_once(f"tf32={args.tf32} has no effect on {name}: it has no TensorFloat-32")
    if args.fsdp_config and not args.fsdp:
        note_once("fsdp_config has no effect: fsdp is off")
    if args.liger_kernel_config and not args.use_liger_kernel:
        note_once("liger_kernel_config has no effect: use_liger_kernel is off")
    if args.torch_empty_cache_steps is not None and device == "cpu":
        note_once(
            f"torch_empty_cache_steps={args.torch_empty_cache_steps} has no effect on a CPU: it has no such cache"
        )
    if args.save_strategy == SaveStrategy.STEPS and (args.save_steps or 0) <= 0:
        note_once(f"save_steps={args.save_steps}: no checkpoint before the last step (save_strategy='no' writes none)")
    if args.ostinato.max_tokens_per_batch is not None:
        note_once(
            f"max_tokens_per_batch={args.ostinato.max_tokens_per_batch}: training batches have as many rows as fit; "
            f"per_device_train_batch_size={args.per_device_train_batch_size} is not used"
        )
    _note_accelerator(args)
    if getattr(args.accelerator_config, "non_blocking", False) and device == "cpu":
        note_once("accelerator_config: non_blocking has no effect on a CPU: batches are not copied")
    _note_devices(args)


def _note_devices(args: TrainingArguments) -> None:
    """Print a notice where devices are not used, or used by several processes."""
    if not accelerator.is_accelerator(args.device):
        if not args.use_cpu and (missing := accelerator.find_missing_kind()) is not None:
            note_once(f"computing on the CPU: this torch is made for {missing}, and finds no such device")
        return
    count = accelerator.count_devices()
    if args.world_size == 1 and count > 1:
        note_once(f"using 1 of {count} devices: start one process for each with torchrun to use all")
    neighbours = World.from_environment().local_size
    if neighbours > count:
        note_once(
            f"{neighbours} processes on this machine, and visible devices: {count}. "
            "Unless each process sees other ones, they share"
        )
