"""How a model is divided among processes, as `shard`, `fsdp`, `fsdp_config` and `parallelism_config` request it.

transformers' `fsdp` has two generations of spellings: words ("full_shard auto_wrap offload") with the settings of
FSDP1, and `fsdp=True` with those of FSDP2. Both are read, and so are the variables that `accelerate launch` sets. The
model is always divided by FSDP2.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.choices import FSDPOption
from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import note_once
from .name_suggestion import suggest_name

if TYPE_CHECKING:
    from .training_args import TrainingArguments

# Settings that have a meaning here.
_EFFECTIVE = (
    "transformer_layer_cls_to_wrap",
    "min_num_params",
    "reshard_after_forward",
    "cpu_offload",
    "activation_checkpointing",
    "mixed_precision_policy",
    "auto_wrap_policy",
    "sharding_strategy",
)
# Settings that choose between ways of which there is one here, or that concern speed alone.
_INDIFFERENT = (
    "version",
    "backward_prefetch",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "sync_module_states",
    "cpu_ram_efficient_loading",
    "state_dict_type",
    "xla",
    "xla_fsdp_v2",
    "xla_fsdp_grad_ckpt",
    "xla_fsdp_settings",
)
_OTHER_NAMES = {
    "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
    "transformer_cls_to_wrap": "transformer_layer_cls_to_wrap",
    "offload_params": "cpu_offload",
}
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class ShardSettings:
    """How the weights are divided."""

    hybrid: bool = False  # every host holds a copy of the model and divides it among its processes
    shard_size: int | None = None  # the processes that share a copy; None: all, or with `hybrid` those of a host
    tensor_size: int = 1  # the processes that compute the same rows, each with its part of every layer
    classes: tuple[str, ...] | None = None  # the layers that are gathered together; None: those the model names
    min_parameters: int = 0  # layers by their size instead
    reshards: bool = True  # after the forward too, not only after the backward
    offloads: bool = False  # to the host's memory
    recomputes: bool = False  # activations
    parameter_dtype: torch.dtype | None = None  # in forward and backward
    reduce_dtype: torch.dtype | None = None  # of gradients while they are exchanged
    output_dtype: torch.dtype | None = None

    @classmethod
    def of(cls, args: TrainingArguments) -> ShardSettings | None:
        """Return the settings; None if the model is not divided."""
        words = _read_words(args.fsdp)
        sizes = _read_sizes(args.parallelism_config)
        config = _read_config(args.fsdp_config) if words else {}
        if args.ostinato.shard is None and not words and sizes["dp_shard_size"] == sizes["tp_size"] == 1:
            return None
        _check_sizes(sizes, args.world_size)
        words |= {str(config.get("sharding_strategy", "")).lower()} - {""}
        if "no_shard" in words:
            note_once("fsdp='no_shard': every process holds the whole model")
            return None
        policy = _read_dtypes(config.get("mixed_precision_policy"))
        reshards = config.get("reshard_after_forward", not words & {"shard_grad_op", "hybrid_shard_zero2"})
        by_size = str(config.get("auto_wrap_policy", "")).upper() != "TRANSFORMER_BASED_WRAP"
        return cls(
            hybrid=args.ostinato.shard == "hybrid" or bool(words & {"hybrid_shard", "hybrid_shard_zero2"}),
            shard_size=_choose_shard_size(sizes, args.world_size),
            tensor_size=sizes["tp_size"] if args.world_size > 1 else 1,
            classes=_read_classes(config.get("transformer_layer_cls_to_wrap")),
            min_parameters=int(config.get("min_num_params") or 0) if by_size else 0,
            reshards=_read_bool(reshards, "reshard_after_forward"),
            offloads="offload" in words or _read_bool(config.get("cpu_offload", False), "cpu_offload"),
            recomputes=_read_bool(config.get("activation_checkpointing", False), "activation_checkpointing"),
            **policy,
        )


def is_requested_by_launcher() -> bool:
    """Return whether `accelerate launch` requests sharding."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1")


def _read_words(given: Any) -> set[str]:
    """Return the words of `fsdp`; `True` is "full_shard"."""
    if given is True or (not given and is_requested_by_launcher()):
        return {FSDPOption.FULL_SHARD.value}
    if not given:
        return set()
    words = given.replace(",", " ").split() if isinstance(given, str) else [str(getattr(w, "value", w)) for w in given]
    if words and all(word.lower() == "true" for word in words):
        return {FSDPOption.FULL_SHARD.value}
    known = [option.value for option in FSDPOption]
    unknown = sorted(set(words) - set(known))
    if unknown:
        raise ConfigError(
            what=f"fsdp={given!r} has unknown words: {', '.join(unknown)}",
            why=f"the known ones are {', '.join(known)}",
            fix="use fsdp=True, and set the details in fsdp_config",
        )
    return set(words)


def _read_config(given: Any) -> dict[str, Any]:
    """Return the settings by their names without a prefix, those of the launcher's environment included."""
    found: dict[str, Any] = {}
    if is_requested_by_launcher():
        found = {_strip(name): value for name, value in os.environ.items() if name.startswith("FSDP_")}
    if isinstance(given, (str, Path)) and given:
        try:
            text = str(given) if str(given).lstrip().startswith("{") else Path(given).read_text(encoding="utf-8")
            given = json.loads(text)
        except (OSError, ValueError) as error:
            raise ConfigError(
                what=f"fsdp_config={str(given)!r} could not be read",
                why=str(error),
                fix="pass a dict, a string of JSON, or the path of a JSON file",
            ) from error
    if given and not isinstance(given, Mapping):
        raise ConfigError(
            what=f"fsdp_config={given!r} is not a dict",
            why=f"it is a {type(given).__name__}",
            fix="pass a dict, a string of JSON, or the path of a JSON file",
        )
    found |= {_strip(name): value for name, value in (given or {}).items() if value is not None}
    for name in sorted(found.keys() - set(_EFFECTIVE) - set(_INDIFFERENT)):
        nearest = suggest_name(name, (*_EFFECTIVE, *_INDIFFERENT))
        note_once(f"fsdp_config: {name!r} has no effect: it is not known" + (f" ({nearest}?)" if nearest else ""))
    if any(found.get(name) not in (None, False, {}) for name in ("xla", "xla_fsdp_v2")):
        raise NotSupportedError(
            what="fsdp_config: xla is not supported", why="TPUs are out of scope", fix="leave it out"
        )
    return found


def _strip(name: str) -> str:
    plain = name.lower().removeprefix("fsdp_")
    return _OTHER_NAMES.get(plain, plain)


def _read_classes(given: Any) -> tuple[str, ...] | None:
    if not given:
        return None
    return tuple(word for word in given.split(",") if word) if isinstance(given, str) else tuple(map(str, given))


def _read_bool(given: Any, name: str) -> bool:
    """Return a truth value that may be text, or a sharding strategy in place of `reshard_after_forward`."""
    words = {"true": True, "false": False, "1": True, "0": False, "full_shard": True, "shard_grad_op": False}
    found = given if isinstance(given, bool) else words.get(str(given).lower())
    if found is None:
        raise ConfigError(
            what=f"fsdp_config: {name}={given!r} is neither true nor false",
            why=f"it is a {type(given).__name__}",
            fix="pass true or false",
        )
    return found


def _read_dtypes(given: Any) -> dict[str, torch.dtype | None]:
    """Return the types of a mixed-precision policy: one word for all, a dict, or torch's own object."""
    names = {"parameter_dtype": "param_dtype", "reduce_dtype": "reduce_dtype", "output_dtype": "output_dtype"}
    if given is None:
        return dict.fromkeys(names)
    if isinstance(given, (str, torch.dtype)):
        given = {"param_dtype": given, "reduce_dtype": given}
    values = given if isinstance(given, Mapping) else {name: getattr(given, name, None) for name in names.values()}
    return {own: _read_dtype(values.get(theirs)) for own, theirs in names.items()}


def _read_dtype(given: Any) -> torch.dtype | None:
    if given is None or isinstance(given, torch.dtype):
        return given
    word = str(given).lower().removeprefix("torch.")
    found = _DTYPES.get(word) or {str(kind).removeprefix("torch."): kind for kind in _DTYPES.values()}.get(word)
    if found is None:
        raise ConfigError(
            what=f"fsdp_config: mixed_precision_policy has the unknown type {given!r}",
            why=f"the known ones are {', '.join(_DTYPES)}",
            fix="use one of these",
        )
    return found


_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")


def read_tensor_size(given: Any) -> int:
    """Return how many processes compute the same rows, from accelerate's `ParallelismConfig` or a dict."""
    return 1 if given is None else _read_size(given, "tp_size")


def _read_size(given: Any, name: str) -> int:
    return int((given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)) or 1)


def _read_sizes(given: Any) -> dict[str, int]:
    """Return the sizes of the axes of the mesh, from accelerate's `ParallelismConfig` or a dict."""
    sizes = {name: 1 if given is None else _read_size(given, name) for name in _SIZES}
    for name in ("cp_size", "sp_size"):
        if sizes[name] > 1:
            raise NotSupportedError(
                what=f"parallelism_config: {name}={sizes[name]} is not supported",
                why="a sequence is not divided among processes: attention would have to exchange keys and values, "
                "which torch does for some kernels of CUDA alone",
                fix="use dp_shard_size or tp_size, which divide the weights, and gradient_checkpointing, which needs "
                "less memory for long sequences",
            )
    return sizes


def _check_sizes(sizes: Mapping[str, int], processes: int) -> None:
    """Raise unless the axes fit the number of processes. One that is not given takes the processes that are left."""
    if processes == 1:
        return
    named = {name: size for name, size in sizes.items() if size > 1}
    product = math.prod(named.values())
    is_complete = sizes["dp_replicate_size"] > 1 and sizes["dp_shard_size"] > 1
    if processes % product or (is_complete and processes != product):
        raise ConfigError(
            what=f"parallelism_config: {', '.join(f'{name}={size}' for name, size in named.items())} "
            f"does not fit {processes} processes",
            why=f"the product of the sizes is {product}",
            fix=f"start {product} processes, or choose sizes whose product is {processes}",
        )


def _choose_shard_size(sizes: Mapping[str, int], processes: int) -> int | None:
    """Return the processes that share a copy of the model, tensor parallelism apart; None if it is not stated."""
    if sizes["dp_shard_size"] > 1:
        return sizes["dp_shard_size"]
    if sizes["dp_replicate_size"] > 1:
        return max(1, processes // (sizes["tp_size"] * sizes["dp_replicate_size"]))
    return None
