"""The conversion of arguments: words into enums, JSON into dicts, and defaults that follow from other arguments.

Nothing is raised here: problems are returned, to be reported together with those of `validate.py`. Every function may
run again on its own result, since arguments can be changed until training starts.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..core.choices import DebugOption, IntervalStrategy, SchedulerType
from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import logger, note_once
from . import tracker_names
from .accelerator_config import AcceleratorConfig
from .extras import list_declarations
from .fields.evaluation import EvaluationArguments

if TYPE_CHECKING:
    from .training_args import TrainingArguments

DEFAULT_OUTPUT_DIR = "trainer_output"
NEED_EVALUATION = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def derive(args: TrainingArguments) -> list[ConfigError]:
    """Convert the arguments in place and set derived defaults; return what could not be converted."""
    problems = [*_convert_words(args), *_convert_debug(args), *_convert_json(args), *_convert_accelerator_config(args)]
    _derive_output_dir(args)
    _derive_evaluation(args)
    _derive_order(args)
    _convert_whole_steps(args)
    _derive_best_metric(args)
    _derive_accumulation(args)
    _derive_trackers(args)
    _derive_precision(args)
    _derive_compilation(args)
    _derive_token_counting(args)
    _derive_progress(args)
    _derive_pinning(args)
    return problems


def _convert_words(args: TrainingArguments) -> Iterator[ConfigError]:
    for name, declaration in list_declarations(args).items():
        if not isinstance(declaration.choices, type):
            continue
        value = getattr(args, name)
        try:
            # `.value`: members of transformers' enums are equal to our strings but not found by them
            setattr(args, name, declaration.choices(value.value if isinstance(value, Enum) else value))
        except ConfigError as problem:
            yield ConfigError(f"{name}: {problem.what}", problem.why, problem.fix)


def _convert_debug(args: TrainingArguments) -> Iterator[ConfigError]:
    given = args.debug.split() if isinstance(args.debug, str) else args.debug or []
    try:
        args.debug = [DebugOption(word.value if isinstance(word, Enum) else word) for word in given]
    except ConfigError as problem:
        yield ConfigError(f"debug: {problem.what}", problem.why, problem.fix)
    else:
        if DebugOption.TPU_METRICS_DEBUG in args.debug:
            yield NotSupportedError(
                what="debug='tpu_metrics_debug' is not supported",
                why="there is no support for TPUs",
                fix="leave it out",
            )


def _convert_json(args: TrainingArguments) -> Iterator[ConfigError]:
    """Convert strings that look like a JSON object: a command line can only pass strings."""
    for name in args._VALID_DICT_FIELDS:
        value = getattr(args, name)
        if not (isinstance(value, str) and value.startswith("{")):
            continue
        try:
            setattr(args, name, _convert_strings(json.loads(value)))
        except ValueError as error:
            yield ConfigError(
                what=f"{name}={value!r} is not valid JSON",
                why=str(error),
                fix='write it like \'{"key": "text", "other": 1}\'',
            )


def _convert_strings(value: Any) -> Any:
    """Convert `{"a": "1", "b": "true"}` to `{"a": 1, "b": True}`: in a shell it is easy to quote too much."""
    if isinstance(value, dict):
        return {key: _convert_strings(inner) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if _WHOLE.fullmatch(value):
        return int(value)
    return float(value) if _DECIMAL.fullmatch(value) else value


def _convert_accelerator_config(args: TrainingArguments) -> Iterator[ConfigError]:
    if isinstance(args.accelerator_config, str) and args.accelerator_config.startswith("{"):
        return  # invalid JSON, reported by _convert_json
    try:
        args.accelerator_config = AcceleratorConfig.of(args.accelerator_config)  # type: ignore[assignment]
    except ConfigError as problem:
        yield problem


def _derive_output_dir(args: TrainingArguments) -> None:
    if args.output_dir is None:
        args._record.set_derived(args, "output_dir", DEFAULT_OUTPUT_DIR, "it is not set")
        note_once(f"output_dir is not set: writing to {DEFAULT_OUTPUT_DIR!r}")
    args.output_dir = os.path.expanduser(str(args.output_dir))


def _derive_evaluation(args: TrainingArguments) -> None:
    if args.eval_strategy != IntervalStrategy.NO and not args.do_eval:
        word = getattr(args.eval_strategy, "value", args.eval_strategy)  # a text, if it is none of the words
        args._record.set_derived(args, "do_eval", True, f"eval_strategy={word!r} evaluates")
    if args.eval_strategy == IntervalStrategy.STEPS and not args.eval_steps and args.logging_steps:
        because = "eval_strategy='steps' without eval_steps takes logging_steps"
        args._record.set_derived(args, "eval_steps", args.logging_steps, because)
        note_once(f"eval_steps is not set: evaluating every logging_steps={args.logging_steps}")
    if args.eval_delay is None:
        args.eval_delay = 0
    if args.per_device_eval_batch_size is None:  # transformers trains, and fails at an evaluation
        args.per_device_eval_batch_size = EvaluationArguments.per_device_eval_batch_size


def _derive_order(args: TrainingArguments) -> None:
    if args.train_sampling_strategy is None:
        args.train_sampling_strategy = "random"


def _convert_whole_steps(args: TrainingArguments) -> None:
    """Convert `100.0`, as a command line passes it, to 100. Fractions of the run (below 1) stay."""
    for name in ("logging", "eval", "save"):
        steps = getattr(args, f"{name}_steps")
        by_steps = getattr(args, f"{name}_strategy") == IntervalStrategy.STEPS.value
        if by_steps and isinstance(steps, float) and steps >= 1 and steps.is_integer():
            setattr(args, f"{name}_steps", int(steps))


def _derive_best_metric(args: TrainingArguments) -> None:
    needs_metric = args.load_best_model_at_end or args.lr_scheduler_type in NEED_EVALUATION
    if needs_metric and args.metric_for_best_model is None:
        args._record.set_derived(args, "metric_for_best_model", "loss", "a best model is requested without a metric")
        note_once("metric_for_best_model is not set: the evaluation loss is used")
    metric = args.metric_for_best_model
    if metric is not None and args.greater_is_better is None:
        ends = "ends" if metric.endswith("loss") else "does not end"
        args._record.set_derived(
            args, "greater_is_better", not metric.endswith("loss"), f"{metric!r} {ends} in 'loss'"
        )
        if args.greater_is_better:
            note_once(f"greater_is_better is not set: a higher {metric!r} counts as better")


def _derive_accumulation(args: TrainingArguments) -> None:
    options = getattr(args.accelerator_config, "gradient_accumulation_kwargs", None) or {}
    steps = options.get("num_steps")
    if steps is not None and args.gradient_accumulation_steps == 1:
        why = "num_steps in gradient_accumulation_kwargs of accelerator_config"
        args._record.set_derived(args, "gradient_accumulation_steps", steps, why)


def _derive_trackers(args: TrainingArguments) -> None:
    given = args.report_to
    if given is None:
        note_once("report_to=None: logs are sent to no tracker; 'all' selects the installed ones")
        given = "none"
    elif given in ("all", ["all"]):
        given = tracker_names.list_installed()
        note_once(f'report_to="all": logs are sent to {", ".join(given)}')
    names = [given] if isinstance(given, str) else list(given)
    names = [] if names == ["none"] else names
    if tracker_names.is_installed("kubeflow") and "kubeflow" not in names:
        note_once(f"{tracker_names.KUBEFLOW_VARIABLE} is set: the progress is reported to kubeflow")
        names.append("kubeflow")
    args.report_to = names


def _derive_precision(args: TrainingArguments) -> None:
    """Read what `accelerate launch --mixed_precision bf16` sets in the environment."""
    requested = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if requested in ("bf16", "fp16") and not (args.bf16 or args.fp16):
        args._record.set_derived(args, requested, True, f"the launcher sets ACCELERATE_MIXED_PRECISION={requested}")
        note_once(f"ACCELERATE_MIXED_PRECISION={requested} is set: {requested}=True")


def _derive_compilation(args: TrainingArguments) -> None:
    """Read what `accelerate launch --dynamo_backend inductor` sets in the environment."""
    requested = os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    if requested != "no" and not args.torch_compile_backend:
        why = f"the launcher sets ACCELERATE_DYNAMO_BACKEND={requested}"
        args._record.set_derived(args, "torch_compile_backend", requested, why)
        note_once(f"ACCELERATE_DYNAMO_BACKEND={requested} is set: torch_compile=True")
    if (args.torch_compile_backend or args.torch_compile_mode) and not args.torch_compile:
        args._record.set_derived(args, "torch_compile", True, "a backend or a mode is given")
    if args.torch_compile and not args.torch_compile_backend:
        args._record.set_derived(args, "torch_compile_backend", "inductor", "torch's own compiler")


def _derive_token_counting(args: TrainingArguments) -> None:
    if isinstance(args.include_num_input_tokens_seen, bool):
        args.include_num_input_tokens_seen = "all" if args.include_num_input_tokens_seen else "no"


def _derive_progress(args: TrainingArguments) -> None:
    if args.disable_tqdm is None:
        quiet = logger.getEffectiveLevel() > logging.WARNING
        args._record.set_derived(args, "disable_tqdm", quiet, "bars, unless the log level is above warning")


def _derive_pinning(args: TrainingArguments) -> None:
    if args.device.type == "cpu" and args.dataloader_pin_memory:
        args._record.set_derived(args, "dataloader_pin_memory", False, "there is no device to copy to")
