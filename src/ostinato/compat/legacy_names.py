"""Attributes that other code expects on a trainer and that Ostinato's lacks: their values, or what replaced them.

Consulted only when an attribute is not found, so a trainer's own names cost nothing. (`super().name` finds methods
alone: what subclasses override and call through `super()` is a method of `Trainer`.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from ..checkpoint.retention import rotate, sort_checkpoints
from ..core.errors import NotSupportedError
from ..core.notices import note_once, warn
from ..core.tree import numpify


class NoSuchNameError(NotSupportedError, AttributeError):
    """An attribute that does not exist. As an AttributeError, it keeps `getattr(trainer, name, default)` working."""


# ---- attributes -----------------------------------------------------------------------------------------------------


def _get_scaler(trainer: Any) -> Any:
    return getattr(trainer.precision, "scaler", None)


def _is_model_parallel(trainer: Any) -> bool:
    return len(set((getattr(trainer.model, "hf_device_map", None) or {}).values())) > 1


ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    # Backends that Ostinato does not have are not in use.
    **dict.fromkeys(
        (
            "is_deepspeed_enabled",
            "is_distributed_loading_by_transformers",
            "is_fsdp_xla_enabled",
            "is_fsdp_xla_v1_enabled",
            "is_fsdp_xla_v2_enabled",
            "is_tp_enabled",
            "use_amp",  # autocast surrounds the model's forward by itself
            "use_apex",
            "use_cpu_amp",
            "use_cuda_amp",
        ),
        lambda trainer: False,
    ),
    **dict.fromkeys(("_past", "deepspeed", "fsdp", "sharded_ddp"), lambda trainer: None),
    **dict.fromkeys(("is_fsdp2", "is_fsdp_enabled"), lambda trainer: trainer.strategy.is_sharded),
    "do_grad_scaling": lambda trainer: _get_scaler(trainer) is not None,
    "gather_function": lambda trainer: trainer.accelerator.gather_for_metrics,
    "is_model_parallel": _is_model_parallel,
    "scaler": _get_scaler,
}


# ---- methods --------------------------------------------------------------------------------------------------------


def _nested_gather(trainer: Any, tensors: Any, name: str | None = None) -> Any:
    return None if tensors is None else trainer.strategy.gather(tensors)


def _gather_and_numpify(trainer: Any, tensors: Any, name: str | None = None) -> Any:
    return numpify(_nested_gather(trainer, tensors))


def _pad_across_processes(trainer: Any, tensor: Any, pad_index: int = -100) -> Any:
    return trainer.accelerator.pad_across_processes(tensor, dim=1, pad_index=pad_index)


def _sorted_checkpoints(
    trainer: Any, output_dir: str | None = None, checkpoint_prefix: str = "checkpoint", use_mtime: bool = False
) -> list[str]:
    directory = trainer.args.output_dir if output_dir is None else output_dir
    best = trainer.state.best_model_checkpoint
    return sort_checkpoints(directory, checkpoint_prefix, use_mtime, best_model_checkpoint=best)


def _rotate_checkpoints(trainer: Any, use_mtime: bool = False, output_dir: str | None = None) -> None:
    best = trainer.state.best_model_checkpoint
    directory = trainer.args.output_dir if output_dir is None else output_dir
    rotate(directory, trainer.args.save_total_limit, keep=[best] if best else [])


def _load_state_dict_in_model(trainer: Any, state_dict: dict[str, Any]) -> None:
    _issue_warnings_after_load(trainer, trainer.model.load_state_dict(state_dict, strict=False))


def _issue_warnings_after_load(trainer: Any, load_result: Any) -> None:
    for what, names in (("missing", load_result.missing_keys), ("unexpected", load_result.unexpected_keys)):
        if names:
            warn(f"the checkpoint has {what} keys: {', '.join(map(str, names))}")


def _count_tokens(trainer: Any, train_dl: Any, max_steps: int | None = None) -> int:
    tokens = 0
    for batch in train_dl:
        amount = batch["input_ids"].numel()
        if max_steps is not None:
            return amount * max_steps
        tokens += amount
    return tokens


def _compare_arguments(trainer: Any, training_args: Any, trainer_state: Any) -> None:
    for name in ("logging_steps", "eval_steps", "save_steps"):
        now, before = getattr(training_args, name, None), getattr(trainer_state, name, None)
        if now != before and before is not None:
            note_once(f"{name}={now} now, and {before} in the checkpoint: the present value is used")


def _get_grad_norm(trainer: Any, model: nn.Module, grad_norm: Any = None) -> float | None:
    run = trainer._run
    norm = grad_norm if grad_norm is not None else getattr(run, "grad_norm", None)
    return None if norm is None else float(norm)


METHODS: dict[str, Callable[..., Any]] = {
    "_fsdp_qlora_plugin_updates": lambda trainer: None,  # changes a plugin of FSDP, where there is one
    "_gather_and_numpify": _gather_and_numpify,
    "_get_grad_norm": _get_grad_norm,
    "_has_mixed_mesh_grads": lambda trainer, model: False,
    "_issue_warnings_after_load": _issue_warnings_after_load,
    "_load_state_dict_in_model": _load_state_dict_in_model,
    "_nested_gather": _nested_gather,
    "_pad_across_processes": _pad_across_processes,
    "_rotate_checkpoints": _rotate_checkpoints,
    "_sorted_checkpoints": _sorted_checkpoints,
    "_sync_replicated_trainable_parameters": lambda trainer, model: None,  # needed by FSDP alone
    "_validate_args": lambda trainer: trainer.args.validate(),
    "compare_trainer_and_checkpoint_args": _compare_arguments,
    "end": lambda trainer: trainer.accelerator.end_training(),
    "num_tokens": _count_tokens,
}


# ---- names without a replacement of the same shape ------------------------------------------------------------------

_LOOP = "the loop consists of the functions of ostinato.engine.loop"
_NO_DEEPSPEED = "DeepSpeed is not supported"
REPLACEMENTS: dict[str, tuple[str, str]] = {
    "_activate_neftune": ("train() adds the noise to the embeddings", "set neftune_noise_alpha"),
    "_add_sm_patterns_to_gitignore": ("no git repository is kept", "use push_to_hub()"),
    "_build_accelerator_args": ("no Accelerator is created", "pass Trainer(strategy=…)"),
    "_deactivate_neftune": ("train() removes the noise at its end", "set neftune_noise_alpha"),
    "_finalize_training": (_LOOP, "override train(), or use the callback event on_train_end"),
    "_init_training_state": (_LOOP, "read trainer.state, or use the callback event on_train_begin"),
    "_mixed_mesh_grad_norm": ("parameters are on one mesh", "override _clip_grad_norm"),
    "_prepare_for_training": (_LOOP, "override create_optimizer, create_scheduler or _wrap_model"),
    "_run_epoch": (_LOOP, "override get_batch_samples, training_step or _maybe_log_save_evaluate"),
    "_save_tpu": ("TPUs are not supported", "override _save"),
    "_update_auto_batch_size": (_LOOP, "set auto_find_batch_size"),
    "init_git_repo": ("no git repository is kept", "use push_to_hub()"),
    "ipex_optimize_model": ("transformers has removed Intel's extension", "set torch_compile=True"),
    "propagate_args_to_deepspeed": (_NO_DEEPSPEED, "train with torchrun"),
    "torch_jit_model_eval": ("transformers has removed tracing", "set torch_compile=True"),
}

# Steps of transformers' own loop, and what to do instead of overriding them: an override is never called.
_TRANSFORMERS_LOOP_METHODS = {
    **{
        name: REPLACEMENTS[name][1]
        for name in (
            "_build_accelerator_args",
            "_finalize_training",
            "_init_training_state",
            "_prepare_for_training",
            "_run_epoch",
            "_update_auto_batch_size",
        )
    },
    "set_initial_training_values": "set max_steps, or override get_train_dataloader",
}


def resolve_missing_attribute(trainer: Any, name: str) -> Any:
    """Return the value of an attribute that a trainer does not have, or raise an error that names its replacement."""
    if name in ATTRIBUTES:
        return ATTRIBUTES[name](trainer)
    if name in METHODS:
        return partial(METHODS[name], trainer)
    if name in REPLACEMENTS:
        why, fix = REPLACEMENTS[name]
        raise NoSuchNameError(what=f"{type(trainer).__name__} has no {name!r}", why=why, fix=fix)
    raise AttributeError(f"{type(trainer).__name__!r} object has no attribute {name!r}", name=name, obj=trainer)


def note_overrides_without_effect(kind: type, base: type) -> None:
    """Note each step of transformers' loop that a class between `kind` and `base` overrides, one line for each."""
    for cls in kind.__mro__[: kind.__mro__.index(base)]:
        for name, fix in _TRANSFORMERS_LOOP_METHODS.items():
            if name in vars(cls):
                note_once(f"{cls.__name__}.{name} has no effect: {_LOOP}; {fix}")
