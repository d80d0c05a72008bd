"""Every contradiction and every request that cannot be honoured, found before anything runs and reported together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import torch

from ..core.choices import IntervalStrategy, SaveStrategy
from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import note_once
from . import tracker_names
from .accelerator_config import AcceleratorConfig
from .derive import NEED_EVALUATION
from .fields.data import DataArguments
from .fields.extensions import ExtensionArguments
from .fields.hardware import ParallelismArguments
from .fields.reporting import LoggingArguments

if TYPE_CHECKING:
    from .training_args import TrainingArguments


def find_problems(args: TrainingArguments) -> list[ConfigError]:
    """Everything that stands in the way of a run with these arguments; nothing is raised or changed."""
    return [problem for check in _CHECKS for problem in check(args)]


def refuse(problems: Sequence[ConfigError]) -> None:
    """Raise all problems as one error; none, and nothing happens.

    >>> refuse([])
    """
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0].with_traceback(None)  # how it was found is of no interest
    together = "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, start=1))
    kinds = {type(problem) for problem in problems}
    error = kinds.pop() if len(kinds) == 1 else ConfigError
    raise error(f"{len(problems)} problems with the arguments:\n{together}")


# --- numbers, words and lists: each argument by itself ---------------------------------------------------------------


@dataclass(frozen=True)
class _Range:
    """What a number has to be."""

    words: str
    holds: Callable[[Any], bool]
    kind: type = Real


_COUNT = _Range("a whole number of at least 1", lambda value: value >= 1, Integral)
_COUNT_OR_NONE = _Range("a whole number of at least 0", lambda value: value >= 0, Integral)
_WINDOW = _Range("a number of batches, or -1 to have it chosen", lambda value: value >= -1, Integral)
_WHOLE = _Range("a whole number", lambda value: True, Integral)
_MEMORY = _Range("a number of MiB of at least 0, or None for no limit", lambda value: value >= 0)
_POSITIVE = _Range("a number of at least 0", lambda value: value >= 0)
_NUMBER = _Range("a number", lambda value: not math.isnan(value))
_FINITE = _Range("a finite number", math.isfinite)
_PEAK = _Range("a number of operations a second above 0", lambda value: 0 < value < math.inf)
_BETA = _Range("a number from 0 to below 1", lambda value: 0 <= value < 1)
_SHARE = _Range("a number from 0 to 1", lambda value: 0 <= value <= 1)

_NUMBERS = {
    "per_device_train_batch_size": _COUNT,
    "per_device_eval_batch_size": _COUNT,
    "num_train_epochs": _FINITE,
    "max_steps": _WHOLE,
    "learning_rate": _POSITIVE,
    "warmup_steps": _POSITIVE,
    "weight_decay": _POSITIVE,
    "adam_beta1": _BETA,
    "adam_beta2": _BETA,
    "adam_epsilon": _POSITIVE,
    "gradient_accumulation_steps": _COUNT,
    "max_grad_norm": _NUMBER,
    "label_smoothing_factor": _SHARE,
    "neftune_noise_alpha": _NUMBER,
    "torch_empty_cache_steps": _COUNT,
    "logging_steps": _FINITE,
    "eval_steps": _FINITE,
    "eval_delay": _FINITE,
    "eval_accumulation_steps": _COUNT,
    "eval_memory_mb": _MEMORY,
    "save_steps": _FINITE,
    "save_total_limit": _WHOLE,
    "seed": _WHOLE,
    "data_seed": _WHOLE,
    "dataloader_num_workers": _COUNT_OR_NONE,
    "dataloader_prefetch_factor": _COUNT,
    "ddp_timeout": _POSITIVE,
    "nonfinite_patience": _COUNT_OR_NONE,
    "length_window": _WINDOW,
    "max_tokens_per_batch": _COUNT,
    "peak_flops": _PEAK,
}


def _numbers(args: TrainingArguments) -> Iterator[ConfigError]:
    defaults = {field.name: field.default for field in fields(args)}
    for name, wanted in _NUMBERS.items():
        value = getattr(args, name)
        if value is None and (defaults[name] is None or wanted is _MEMORY):
            continue
        if isinstance(value, wanted.kind) and wanted.holds(value):
            continue
        yield ConfigError(
            what=f"{name}={value!r} is not {wanted.words}",
            why=f"it is a {type(value).__name__}" if not isinstance(value, wanted.kind) else "it is out of range",
            fix=_number_fix(name, value, defaults[name]),
        )


def _number_fix(name: str, value: Any, default: Any) -> str:
    if name == "max_grad_norm" and value is None:
        return "set max_grad_norm=0 to leave gradients as they are"
    if isinstance(value, str):
        return f"pass {name} as a number; in YAML, 1e-4 is a text and 1.0e-4 a number"
    return f"the default is {name}={default!r}"


def _choices(args: TrainingArguments) -> Iterator[ConfigError]:
    for field in (
        field
        for group in (LoggingArguments, DataArguments, ParallelismArguments, ExtensionArguments)
        for field in fields(group)
    ):
        choices, value = field.metadata.get("choices"), getattr(args, field.name)
        if choices is None or value in choices or (value is None and field.default is None):
            continue
        yield ConfigError(
            what=f"{field.name}={value!r} is not a valid choice",
            why=f"please select one of {list(choices)}",
            fix=f"the default is {field.name}={field.default!r}",
        )


def _lists(args: TrainingArguments) -> Iterator[ConfigError]:
    for name in ("label_names", "include_for_metrics"):
        value = getattr(args, name)
        if isinstance(value, str):
            yield ConfigError(
                what=f"{name}={value!r} is not a list",
                why="a text would be read letter by letter",
                fix=f"set {name}=[{value!r}]",
            )
    known = ("inputs", "loss")
    wanted = args.include_for_metrics
    unknown = [] if isinstance(wanted, str) else [name for name in wanted or [] if name not in known]
    if unknown:
        yield ConfigError(
            what=f"include_for_metrics={wanted!r} names what there is not",
            why=f"compute_metrics can be given {' and '.join(known)}, not {', '.join(map(repr, unknown))}",
            fix="name inputs, loss or both",
        )


def _dicts(args: TrainingArguments) -> Iterator[ConfigError]:
    for name in ("lr_scheduler_kwargs", "gradient_checkpointing_kwargs"):
        value = getattr(args, name)
        broken_json = isinstance(value, str) and value.startswith("{")  # reported when it was read
        if value and not isinstance(value, Mapping) and not broken_json:
            yield ConfigError(
                what=f"{name}={value!r} is not a dict",
                why="it holds names and values",
                fix=f"pass a dict, or a string of JSON: {name}='{{\"key\": 1}}'",
            )


# --- arguments that contradict one another ---------------------------------------------------------------------------


def _intervals(args: TrainingArguments) -> Iterator[ConfigError]:
    for name in ("logging", "eval", "save"):
        strategy, steps = getattr(args, f"{name}_strategy"), getattr(args, f"{name}_steps")
        is_number = steps is None or (isinstance(steps, (int, float)) and math.isfinite(steps))
        if strategy != IntervalStrategy.STEPS.value or not is_number:
            continue
        if name != "save" and (not steps or steps < 0):  # save_steps=0 and -1 are old ways to say "only at the end"
            yield ConfigError(
                what=f"{name}_strategy='steps' with {name}_steps={steps!r}",
                why="this needs a number of steps above 0, or a share of the run between 0 and 1",
                fix=f"set {name}_steps, for example to 500, or {name}_strategy='no'",
            )
        elif steps is not None and steps > 1 and steps != int(steps):
            yield ConfigError(
                what=f"{name}_steps={steps!r} is not a whole number",
                why="a number below 1 is a share of the run, one above counts steps",
                fix=f"set {name}_steps={round(steps)}",
            )


def _best(args: TrainingArguments) -> Iterator[ConfigError]:
    never = args.eval_strategy == IntervalStrategy.NO
    best = args.save_strategy == SaveStrategy.BEST
    if best and args.metric_for_best_model is None:
        yield ConfigError(
            what="save_strategy='best' without metric_for_best_model",
            why="nothing says what a better model is",
            fix="set metric_for_best_model, for example to 'loss' or 'accuracy'",
        )
    needs_evaluation = {
        "load_best_model_at_end=True": args.load_best_model_at_end,
        "save_strategy='best'": best,
        f"lr_scheduler_type={str(args.lr_scheduler_type)!r}": args.lr_scheduler_type in NEED_EVALUATION,
    }
    for what, asked in needs_evaluation.items():
        if asked and never:
            yield ConfigError(
                what=f"{what} with eval_strategy='no'",
                why="it compares evaluations, and there are none",
                fix="set eval_strategy='epoch', or eval_strategy='steps' with eval_steps",
            )


def _precision(args: TrainingArguments) -> Iterator[ConfigError]:
    for one, other in (("bf16", "fp16"), ("bf16_full_eval", "fp16_full_eval")):
        if getattr(args, one) and getattr(args, other):
            yield ConfigError(
                what=f"{one}=True with {other}=True",
                why="a number has one format",
                fix=f"keep {one} where the device knows it, else {other}",
            )
    if (args.bf16 or args.bf16_full_eval) and args.device.type == "cuda" and not torch.cuda.is_bf16_supported():
        yield ConfigError(
            what="bf16 on a GPU that does not know it",
            why=f"{torch.cuda.get_device_name(args.device)} has no bfloat16",
            fix="set fp16=True in its place",
        )


def _workers(args: TrainingArguments) -> Iterator[ConfigError]:
    if args.dataloader_num_workers != 0:
        return
    for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
        value = getattr(args, f"dataloader_{name}")
        if value is not None and value is not False:
            yield ConfigError(
                what=f"dataloader_{name}={value!r} with dataloader_num_workers=0",
                why="it is about worker processes, and there are none",
                fix=f"set dataloader_num_workers above 0, or leave dataloader_{name} out",
            )


def _padding(args: TrainingArguments) -> Iterator[ConfigError]:
    if args.split_by_length and args.packing:
        yield ConfigError(
            what="split_by_length=True with packing=True",
            why="rows that are laid end to end have no padding to save",
            fix="keep packing for language models that allow it, else split_by_length",
        )


def _order(args: TrainingArguments) -> Iterator[ConfigError]:
    """Sorting rows by length takes part in one order only."""
    strategy, window, tokens = args.train_sampling_strategy, args.length_window, args.max_tokens_per_batch
    if window and tokens is None and strategy != "group_by_length":
        yield ConfigError(
            what=f"length_window={window!r} with train_sampling_strategy={strategy!r}",
            why="it says how many batches are sorted by length at a time, and nothing is sorted",
            fix="set train_sampling_strategy='group_by_length', or leave length_window out",
        )
    if tokens is None:
        return
    if strategy == "sequential":
        yield ConfigError(
            what=f"max_tokens_per_batch={tokens!r} with train_sampling_strategy='sequential'",
            why="rows of similar length are put together, and cannot stay in their order",
            fix="leave train_sampling_strategy out, or use per_device_train_batch_size",
        )
    for name in ("split_by_length", "packing"):
        if getattr(args, name):
            yield ConfigError(
                what=f"max_tokens_per_batch={tokens!r} with {name}=True",
                why="both decide which rows share a batch to save padding",
                fix="leave one of them out",
            )


# --- what is not there (yet) -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Missing:
    """An argument that asks for something we do not do, and what to do in its place."""

    name: str
    why: str
    fix: str
    asked: Callable[[Any], bool] = bool


_REPLICAS = "start with torchrun: every process holds the whole model; bf16 and gradient_checkpointing save memory"

_MISSING = (
    _Missing("deepspeed", "weights are not divided among processes", f"leave it out and {_REPLICAS}"),
    _Missing("fsdp", "weights are not divided among processes", f"leave it out and {_REPLICAS}"),
    _Missing(
        "parallelism_config",
        "models are not divided among processes",
        f"leave it out and {_REPLICAS}",
        lambda value: value is not None,
    ),
    _Missing(
        "use_liger_kernel",
        "layers are not replaced by the trainer",
        "hand over a model loaded with liger_kernel.transformers.AutoLigerKernelForCausalLM",
    ),
    _Missing(
        "optim_target_modules",
        "the low-rank optimizers GaLore and APOLLO are not there",
        "make the optimizer yourself and pass it as optimizers=(optimizer, None)",
    ),
    _Missing(
        "auto_find_batch_size",
        "a run keeps its batch size",
        "lower per_device_train_batch_size and raise gradient_accumulation_steps by the same factor",
    ),
    _Missing(
        "torch_empty_cache_steps",
        "the trainer leaves the memory cache alone",
        "call torch.cuda.empty_cache() in the on_step_end of a callback",
        lambda value: value is not None,
    ),
    _Missing(
        "debug",
        "there are no debugging tools in the trainer",
        "nonfinite_patience=0 stops at the first NaN; torch.autograd.set_detect_anomaly(True) names its layer",
    ),
    _Missing(
        "eval_use_gather_object",
        "processes exchange tensors only",
        "let the model return tensors, or set prediction_loss_only=True",
    ),
)


def _missing(args: TrainingArguments) -> Iterator[ConfigError]:
    for missing in _MISSING:
        value = getattr(args, missing.name)
        if missing.asked(value):
            shown = f"={value!r}" if len(repr(value)) <= 40 else ""  # not a whole DeepSpeed configuration
            yield NotSupportedError(f"{missing.name}{shown} is not supported", missing.why, missing.fix)


def _trackers(args: TrainingArguments) -> Iterator[ConfigError]:
    given = args.report_to
    names = [] if given in (None, "none") else [given] if isinstance(given, str) else given
    yield from filter(None, map(tracker_names.unknown, names))


def _accelerator(args: TrainingArguments) -> Iterator[ConfigError]:
    config: Any = args.accelerator_config
    if not isinstance(config, AcceleratorConfig):
        return  # could not be read, which is reported already
    refused = {
        "split_batches": (config.split_batches, "a batch belongs to one process: set per_device_train_batch_size"),
        "dispatch_batches": (config.dispatch_batches, "every process reads its own rows: leave it out"),
        "even_batches": (
            not config.even_batches and args.world_size > 1,
            "leave it out: evaluation drops repeated rows",
        ),
        "use_seedable_sampler": (
            not config.use_seedable_sampler,
            "the order follows seed and data_seed: leave it out",
        ),
    }
    for name, (asked, fix) in refused.items():
        if asked:
            yield NotSupportedError(
                what=f"accelerator_config: {name}={getattr(config, name)!r} is not supported",
                why="batches are not made by accelerate",
                fix=fix,
            )
    harmless = {
        "num_steps": args.gradient_accumulation_steps,
        "sync_each_batch": False,
        "sync_with_dataloader": False,
    }
    for name, value in (config.gradient_accumulation_kwargs or {}).items():
        if name not in harmless or value != harmless[name]:
            yield NotSupportedError(
                what=f"accelerator_config: gradient_accumulation_kwargs with {name}={value!r} is not supported",
                why="gradients are not accumulated by accelerate",
                fix="use gradient_accumulation_steps alone",
            )


def _launcher(args: TrainingArguments) -> Iterator[ConfigError]:
    """What `accelerate launch` asks for in the environment is asked for all the same."""
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "PARALLELISM_CONFIG"):
        variable = f"ACCELERATE_USE_{name}"
        if os.environ.get(variable, "false").lower() in ("true", "1"):
            yield NotSupportedError(
                what=f"the launcher asks for {name.lower()} ({variable} is set)",
                why="weights are not divided among processes",
                fix=_REPLICAS,
            )
    if os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower() == "fp8":
        yield NotSupportedError(
            what="the launcher asks for fp8 (ACCELERATE_MIXED_PRECISION is set)",
            why="the trainer computes in float32, bfloat16 or float16",
            fix="launch with --mixed_precision bf16, or set bf16=True",
        )


_CHECKS = (
    _numbers,
    _choices,
    _lists,
    _dicts,
    _intervals,
    _best,
    _precision,
    _workers,
    _padding,
    _order,
    _missing,
    _trackers,
    _accelerator,
    _launcher,
)


# --- accepted, but worth a word --------------------------------------------------------------------------------------


def remark(args: TrainingArguments) -> None:
    """Say, once, what has no effect here or another effect than its name suggests."""
    device = args.device.type
    if args.fp16 and device == "cpu":
        note_once("fp16=True has no effect on a CPU: computing in float32 (bf16=True would have one)")
    if args.num_train_epochs <= 0 and args.max_steps <= 0:
        note_once(f"num_train_epochs={args.num_train_epochs:g}: train() takes no step")
    if args.tf32 is not None and device != "cuda":
        note_once(f"tf32={args.tf32} has no effect on {device}: it is about NVIDIA GPUs")
    if args.fsdp_config and not args.fsdp:
        note_once("fsdp_config has no effect: fsdp is off")
    if args.liger_kernel_config and not args.use_liger_kernel:
        note_once("liger_kernel_config has no effect: use_liger_kernel is off")
    if args.save_strategy == SaveStrategy.STEPS and args.save_steps <= 0:
        note_once(f"save_steps={args.save_steps}: no checkpoint before the last step (save_strategy='no' writes none)")
    if args.max_tokens_per_batch is not None:
        note_once(
            f"max_tokens_per_batch={args.max_tokens_per_batch}: training batches have as many rows as fit; "
            f"per_device_train_batch_size={args.per_device_train_batch_size} is not used"
        )
    if getattr(args.accelerator_config, "non_blocking", False):
        note_once("accelerator_config: non_blocking has no effect, batches are copied in order")
    if device == "cuda" and args.world_size == 1 and torch.cuda.device_count() > 1:
        note_once(f"using 1 of {torch.cuda.device_count()} GPUs: start one process for each with torchrun to use all")
    neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device == "cuda" and neighbours > torch.cuda.device_count():
        note_once(
            f"{neighbours} processes on this machine, and visible GPUs: {torch.cuda.device_count()}. "
            "Unless each process sees other ones, they share"
        )
