"""Argument names of transformers since 4.30 that do not exist any more, and their meaning today.

An old name is translated to present ones, refused with a reason, or accepted with a notice if it has no effect.
`translate` does this for a call; `read_old` returns the value of `args.evaluation_strategy`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.choices import IntervalStrategy
from ..core.errors import ConfigError, NotSupportedError
from .argument import DATA_PARALLEL_ONLY, USE_DATA_PARALLEL

if TYPE_CHECKING:
    from .training_args import TrainingArguments

Given = dict[str, Any]


@dataclass(frozen=True)
class OldArgument:
    """One old argument."""

    kind: Any  # its type, for the parser
    default: Any  # its default in transformers, which has no effect
    put: Callable[[Any, Given], str]  # sets the present arguments; returns the notice
    read: Callable[[TrainingArguments], Any] | None = None  # returns its value, from the present arguments


@dataclass(frozen=True)
class Translation:
    """A call's arguments under their present names."""

    given: Given
    kept: Given  # values of old names, for reading them later
    lines: list[str]
    problems: list[ConfigError]


def translate(given: Mapping[str, Any], old_names: Mapping[str, OldArgument]) -> Translation:
    """Translate the old names of a call.

    >>> translation = translate({"evaluation_strategy": "epoch", "no_cuda": True}, OLD_ARGUMENTS)
    >>> translation.given
    {'eval_strategy': 'epoch', 'use_cpu': True}
    >>> translation.lines
    ['evaluation_strategy is now eval_strategy', 'no_cuda is now use_cpu']
    """
    result = Translation({name: value for name, value in given.items() if name not in old_names}, {}, [], [])
    for name, value in given.items():
        old = old_names.get(name)
        if old is None:
            continue
        result.kept[name] = value
        if value is None or value == old.default or value == []:
            continue  # has no effect
        try:
            line = old.put(value, result.given)
        except ConfigError as problem:
            result.problems.append(problem)
        else:
            result.lines.append(line)
    return result


def write_old(args: TrainingArguments, name: str, value: Any) -> Translation:
    """Translate `args.evaluation_strategy = "epoch"`. Some old names extend present values."""
    there = {known: getattr(args, known, None) for known in ("output_dir", "hub_model_id", "include_for_metrics")}
    return translate({**there, name: value}, {name: OLD_ARGUMENTS[name]})


def read_old(args: TrainingArguments, name: str) -> Any:
    """Return the value of an old name."""
    old = OLD_ARGUMENTS[name]
    return old.read(args) if old.read is not None else args._record.kept.get(name, old.default)


# --- kinds of translations ------------------------------------------------------------------------------------------


def _set_present(given: Given, name: str, value: Any, *, old: str) -> None:
    """Set the present argument; raise if it was given another value."""
    if name in given and given[name] != value:
        raise ConfigError(
            what=f"{old} and {name}={given[name]!r} contradict each other",
            why=f"{old} is the old name of {name}, and asks for {value!r}",
            fix=f"leave {old} out",
        )
    given[name] = value


def _declare_renamed(
    old: str, new: str, kind: Any, default: Any = None, *, reads: bool = True
) -> tuple[str, OldArgument]:
    def put(value: Any, given: Given) -> str:
        _set_present(given, new, value, old=old)
        return f"{old} is now {new}"

    def read(args: TrainingArguments) -> Any:
        return getattr(args, new) if reads else default

    return old, OldArgument(kind, default, put, read)


def _declare_switch(
    old: str, new: str, value: Any, read: Callable[[TrainingArguments], bool]
) -> tuple[str, OldArgument]:
    """Translate `adafactor=True` to `optim="adafactor"`; False has no effect."""

    def put(on: Any, given: Given) -> str:
        _set_present(given, new, value, old=f"{old}=True")
        return f"{old}=True is now {new}={value!r}"

    return old, OldArgument(bool, False, put, read)


def _declare_refused(old: str, kind: Any, default: Any, why: str, fix: str) -> tuple[str, OldArgument]:
    def put(value: Any, given: Given) -> str:
        raise NotSupportedError(f"{old}={value!r} is not supported", why, fix)

    return old, OldArgument(kind, default, put)


def _declare_ineffective(old: str, kind: Any, default: Any, line: str) -> tuple[str, OldArgument]:
    """Accept an old name that has no effect any more, with a notice."""
    return old, OldArgument(kind, default, lambda value, given: f"{old}={value!r}: {line}")


# --- single translations --------------------------------------------------------------------------------------------


def _translate_warmup_ratio(share: Any, given: Given) -> str:
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ConfigError(
            what=f"warmup_ratio={share!r} is not a number from 0 to 1",
            why="it is a fraction of all steps",
            fix="set warmup_steps: below 1 a fraction of all steps, from 1 a number of steps",
        )
    if given.get("warmup_steps", 0) > 0:
        return f"warmup_ratio={share} is overridden by warmup_steps={given['warmup_steps']}, as in transformers"
    # 1.0 would mean one step; the largest number below it is the whole run
    given["warmup_steps"] = float(share) if share < 1 else math.nextafter(1.0, 0.0)
    return f"warmup_ratio={share} is now warmup_steps={share} (below 1 it is a fraction of all steps)"


def _translate_include_inputs(on: Any, given: Given) -> str:
    wanted = given.get("include_for_metrics") or []
    given["include_for_metrics"] = wanted if "inputs" in wanted else [*wanted, "inputs"]
    return "include_inputs_for_metrics=True is now include_for_metrics=['inputs']"


def _translate_hub_name(value: Any, given: Given) -> str:
    organization = (given.get("hub_model_id") or "").rpartition("/")[0]  # which an old name may have set before
    given["hub_model_id"] = f"{organization}/{value}" if organization and "/" not in value else value
    return "push_to_hub_model_id is now hub_model_id"


def _translate_hub_organization(value: Any, given: Given) -> str:
    name = given.get("hub_model_id") or Path(given.get("output_dir") or "model").name
    given["hub_model_id"] = f"{value}/{name.rpartition('/')[2]}"
    return "push_to_hub_organization is now part of hub_model_id: 'organization/name'"


def _declare_accelerator_option(old: str) -> tuple[str, OldArgument]:
    def put(value: Any, given: Given) -> str:
        config = given.get("accelerator_config") or {}
        if not isinstance(config, dict):
            raise ConfigError(
                what=f"{old}={value!r} beside an accelerator_config",
                why=f"{old} is part of accelerator_config today",
                fix=f"set {old} in accelerator_config, and leave {old} out",
            )
        given["accelerator_config"] = {**config, old: value}
        return f"{old} is now part of accelerator_config"

    return old, OldArgument(bool | None, None, put)


def _declare_backend(old: str) -> tuple[str, OldArgument]:
    """Accept the names of torch's autocast, and refuse apex."""

    def put(value: Any, given: Given) -> str:
        if value == "apex":
            raise NotSupportedError(
                what=f"{old}='apex' is not supported",
                why="mixed precision uses torch's autocast",
                fix=f"leave {old} out; set bf16=True or fp16=True",
            )
        if value not in ("auto", "amp", "cuda_amp", "cpu_amp"):
            raise ConfigError(
                what=f"{old}={value!r} is not a valid choice",
                why="it was one of auto, cuda_amp, cpu_amp and apex",
                fix=f"leave {old} out",
            )
        return f"{old}={value!r}: mixed precision always uses torch's autocast"

    return old, OldArgument(str, "auto", put)


def _translate_logging_dir(value: Any, given: Given) -> str:
    return f"logging_dir={str(value)!r} is used by report_to='tensorboard', as is TENSORBOARD_LOGGING_DIR"


def get_given_logging_dir(args: Any) -> str | None:
    """Return the `logging_dir` that was given, without a default."""
    return getattr(args, "_record", None) and args._record.kept.get("logging_dir")


def _get_logging_dir(args: TrainingArguments) -> str:
    return args._record.kept.get("logging_dir") or os.path.join(args.output_dir or "", "runs")


def _translate_tokens_per_second(on: Any, given: Given) -> str:
    if given.get("include_num_input_tokens_seen", "no") in ("no", False):
        given["include_num_input_tokens_seen"] = "all"
    return "include_tokens_per_second=True is now include_num_input_tokens_seen='all'"


_NO_TPUS = "TPUs are not supported: nothing is compiled by XLA"

OLD_ARGUMENTS: dict[str, OldArgument] = dict(
    [
        _declare_renamed("evaluation_strategy", "eval_strategy", IntervalStrategy | str),
        _declare_renamed("no_cuda", "use_cpu", bool, False),
        _declare_renamed("per_gpu_train_batch_size", "per_device_train_batch_size", int | None, reads=False),
        _declare_renamed("per_gpu_eval_batch_size", "per_device_eval_batch_size", int | None, reads=False),
        _declare_renamed("push_to_hub_token", "hub_token", str | None),
        _declare_renamed("xpu_backend", "ddp_backend", str | None),
        _declare_renamed("torchdynamo", "torch_compile_backend", str | None),
        _declare_switch("adafactor", "optim", "adafactor", lambda args: args.optim == "adafactor"),
        _declare_switch(
            "group_by_length",
            "train_sampling_strategy",
            "group_by_length",
            lambda args: args.train_sampling_strategy == "group_by_length",
        ),
        (
            "warmup_ratio",
            OldArgument(
                float | None, 0.0, _translate_warmup_ratio, lambda a: a.warmup_steps if a.warmup_steps < 1 else 0.0
            ),
        ),
        (
            "include_inputs_for_metrics",
            OldArgument(bool, False, _translate_include_inputs, lambda args: "inputs" in args.include_for_metrics),
        ),
        (
            "include_tokens_per_second",
            OldArgument(
                bool, False, _translate_tokens_per_second, lambda args: args.include_num_input_tokens_seen != "no"
            ),
        ),
        ("push_to_hub_model_id", OldArgument(str | None, None, _translate_hub_name, lambda args: args.hub_model_id)),
        (
            "push_to_hub_organization",
            OldArgument(
                str | None,
                None,
                _translate_hub_organization,
                lambda args: (args.hub_model_id or "").rpartition("/")[0] or None,
            ),
        ),
        _declare_accelerator_option("dispatch_batches"),
        _declare_accelerator_option("split_batches"),
        _declare_backend("fp16_backend"),
        _declare_backend("half_precision_backend"),
        ("logging_dir", OldArgument(str | None, None, _translate_logging_dir, _get_logging_dir)),
        _declare_ineffective("fp16_opt_level", str, "O1", "no effect; it was a setting of apex"),
        _declare_ineffective("use_mps_device", bool, False, "an Apple GPU is used if there is one"),
        _declare_ineffective("overwrite_output_dir", bool, False, "the content of output_dir is kept; leave it out"),
        _declare_ineffective(
            "save_safetensors", bool, True, "weights are always saved as safetensors, tied ones included"
        ),
        _declare_ineffective("use_legacy_prediction_loop", bool, False, "there is only one evaluation loop"),
        _declare_refused("jit_mode_eval", bool, False, "nothing is traced by TorchScript", "set torch_compile=True"),
        _declare_refused("use_ipex", bool, False, "Intel's extension is not used", "leave it out; use bf16=True"),
        _declare_refused(
            "tpu_num_cores", int | None, None, _NO_TPUS, "leave it out, and train on CPU, CUDA, XPU or MPS"
        ),
        _declare_refused(
            "tpu_metrics_debug", bool, False, _NO_TPUS, "leave it out, and train on CPU, CUDA, XPU or MPS"
        ),
        _declare_refused(
            "past_index",
            int,
            -1,
            "no state is passed from one batch to the next",
            "override compute_loss and keep outputs[past_index] there",
        ),
        _declare_refused("sharded_ddp", str, "", DATA_PARALLEL_ONLY, f"leave it out and {USE_DATA_PARALLEL}"),
        _declare_refused("fsdp_min_num_params", int, 0, DATA_PARALLEL_ONLY, f"leave it out and {USE_DATA_PARALLEL}"),
        _declare_refused(
            "fsdp_transformer_layer_cls_to_wrap",
            str | None,
            None,
            DATA_PARALLEL_ONLY,
            f"leave it out and {USE_DATA_PARALLEL}",
        ),
        _declare_refused(
            "tp_size", int | None, 0, "models are not divided among processes", f"leave it out and {USE_DATA_PARALLEL}"
        ),
        _declare_refused(
            "mp_parameters",
            str,
            "",
            "SageMaker's model parallelism is not supported",
            f"leave it out and {USE_DATA_PARALLEL}",
        ),
        _declare_refused(
            "ray_scope",
            str | None,
            "last",
            "a search takes the last evaluation of every trial",
            "leave it out, and choose with compute_objective",
        ),
    ]
)
