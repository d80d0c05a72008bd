"""Optimizers by name: from the name to the class and its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from ..arguments.settings import OptimizerSettings
from ..core.choices import OptimizerNames
from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import note_once
from .adafactor import Adafactor

_CLASSES: dict[OptimizerNames, type[Optimizer]] = {
    OptimizerNames.ADAMW_TORCH: torch.optim.AdamW,
    OptimizerNames.ADAMW_TORCH_FUSED: torch.optim.AdamW,
    OptimizerNames.ADAFACTOR: Adafactor,
    OptimizerNames.SGD: torch.optim.SGD,
    OptimizerNames.ADAGRAD: torch.optim.Adagrad,
    OptimizerNames.RMSPROP: torch.optim.RMSprop,
}

_LIBRARIES: dict[str, tuple[OptimizerNames, ...]] = {
    "torch_xla": (OptimizerNames.ADAMW_TORCH_XLA,),
    "torch_npu": (OptimizerNames.ADAMW_TORCH_NPU_FUSED,),
    "torchdistx": (OptimizerNames.ADAMW_ANYPRECISION,),
    "torchao": (OptimizerNames.ADAMW_TORCH_4BIT, OptimizerNames.ADAMW_TORCH_8BIT),
    "bitsandbytes": (
        OptimizerNames.ADEMAMIX,
        OptimizerNames.ADAMW_BNB,
        OptimizerNames.ADAMW_8BIT,
        OptimizerNames.ADEMAMIX_8BIT,
        OptimizerNames.LION_8BIT,
        OptimizerNames.LION,
        OptimizerNames.PAGED_ADAMW,
        OptimizerNames.PAGED_ADAMW_8BIT,
        OptimizerNames.PAGED_ADEMAMIX,
        OptimizerNames.PAGED_ADEMAMIX_8BIT,
        OptimizerNames.PAGED_LION,
        OptimizerNames.PAGED_LION_8BIT,
        OptimizerNames.RMSPROP_BNB,
        OptimizerNames.RMSPROP_8BIT,
        OptimizerNames.RMSPROP_32BIT,
    ),
    "galore_torch": (
        OptimizerNames.GALORE_ADAMW,
        OptimizerNames.GALORE_ADAMW_8BIT,
        OptimizerNames.GALORE_ADAFACTOR,
        OptimizerNames.GALORE_ADAMW_LAYERWISE,
        OptimizerNames.GALORE_ADAMW_8BIT_LAYERWISE,
        OptimizerNames.GALORE_ADAFACTOR_LAYERWISE,
    ),
    "lomo_optim": (OptimizerNames.LOMO, OptimizerNames.ADALOMO),
    "grokadamw": (OptimizerNames.GROKADAMW,),
    "schedulefree": (
        OptimizerNames.SCHEDULE_FREE_RADAM,
        OptimizerNames.SCHEDULE_FREE_ADAMW,
        OptimizerNames.SCHEDULE_FREE_SGD,
    ),
    "apollo_torch": (OptimizerNames.APOLLO_ADAMW, OptimizerNames.APOLLO_ADAMW_LAYERWISE),
    "optimi": (OptimizerNames.STABLE_ADAMW,),
}
_LIBRARY_OF = {name: library for library, names in _LIBRARIES.items() for name in names}

# These update the weights while gradients are still being computed: no optimizer object can do the same.
_STEPS_IN_BACKWARD = {
    OptimizerNames.LOMO,
    OptimizerNames.ADALOMO,
    OptimizerNames.GALORE_ADAMW_LAYERWISE,
    OptimizerNames.GALORE_ADAMW_8BIT_LAYERWISE,
    OptimizerNames.GALORE_ADAFACTOR_LAYERWISE,
    OptimizerNames.APOLLO_ADAMW_LAYERWISE,
}


def choose_optimizer(settings: OptimizerSettings) -> tuple[type[Optimizer], dict[str, Any]]:
    """Return the class of the requested optimizer, and its arguments.

    Weight decay is absent: it belongs to the parameter groups.

    >>> settings = OptimizerSettings(OptimizerNames.SGD, 0.1, 0.0, (0.9, 0.999), 1e-8, {"momentum": "0.9"}, None)
    >>> choose_optimizer(settings)
    (<class 'torch.optim.sgd.SGD'>, {'lr': 0.1, 'momentum': 0.9})
    """
    if settings.name not in _CLASSES:
        raise _build_unsupported_error(settings.name)
    if settings.target_modules is not None:
        note_once(f"optim_target_modules is not used: {settings.name} updates every trainable parameter")
    cls = _CLASSES[settings.name]
    kwargs = {**_select_arguments(settings), **_convert_options(settings, cls)}
    if kwargs.get("relative_step"):
        note_once("learning_rate is not used: with relative_step=True, Adafactor derives its rate from the step")
        kwargs["lr"] = None
    return cls, kwargs


def _select_arguments(settings: OptimizerSettings) -> dict[str, Any]:
    """Return the training arguments that apply to this optimizer."""
    adam = {"lr": settings.learning_rate, "betas": settings.betas, "eps": settings.epsilon}
    match settings.name:
        case OptimizerNames.ADAMW_TORCH:
            return adam
        case OptimizerNames.ADAMW_TORCH_FUSED:
            return {**adam, "fused": True}
        case OptimizerNames.ADAFACTOR:
            return {"lr": settings.learning_rate, "scale_parameter": False, "relative_step": False}
        case _:
            return {"lr": settings.learning_rate}


def _convert_options(settings: OptimizerSettings, cls: type[Optimizer]) -> dict[str, Any]:
    """Return `optim_args` with the types that the constructor expects."""
    parameters = inspect.signature(cls).parameters
    valid = {name: parameter.default for name, parameter in parameters.items() if name != "params"}
    owned = {"lr": ("learning_rate", settings.learning_rate), "weight_decay": ("weight_decay", settings.weight_decay)}
    options = {}
    for name, text in settings.options.items():
        if name not in valid:
            raise ConfigError(
                what=f"{settings.name} has no option {name!r}",
                why=f"{cls.__name__} takes {', '.join(option for option in valid if option not in owned)}",
                fix=f"correct optim_args, or leave {name!r} out",
            )
        options[name] = _parse(name, text, valid[name])
        if name in owned:
            _refuse_second_source(name, options[name], *owned[name])
    return options


def _refuse_second_source(name: str, value: Any, argument: str, argument_value: float) -> None:
    """Raise if two arguments for one number disagree, as only the training argument has an effect."""
    if value != argument_value:
        raise ConfigError(
            what=f"optim_args says {name}={value}, but {argument}={argument_value}",
            why=f"{argument} is what every parameter group is given, so the other one would have no effect",
            fix=f"set {argument}={value} and leave {name} out of optim_args",
        )


def _parse(name: str, text: Any, default: Any) -> Any:
    """Return the value that `text` represents, of the type of `default`; return other values unchanged."""
    if not isinstance(text, str):
        return text
    value = _parse_literal(text)
    if default is None:
        fits, kind = not isinstance(value, str), "none, true, false or a number"
    elif isinstance(default, bool):
        fits, kind = isinstance(value, bool), "true or false"
    elif isinstance(default, tuple):
        fits = isinstance(value, tuple) and len(value) == len(default) and all(isinstance(one, float) for one in value)
        kind = f"{len(default)} numbers in parentheses"
    else:
        fits, kind = isinstance(value, float), "a number"
    if not fits:
        raise ConfigError(
            what=f"optim_args says {name}={text}",
            why=f"{name} is {kind}",
            fix=f"write it as {name}={default}",
        )
    return value


def _parse_literal(text: str) -> bool | float | tuple[Any, ...] | str | None:
    """Return None, a truth value, a number or a tuple of them; any other text as it is."""
    text = text.strip()
    words: Mapping[str, bool | None] = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if text[:1] + text[-1:] in ("()", "[]"):
        return tuple(_parse_literal(part) for part in text[1:-1].split(",") if part.strip())
    try:
        return float(text)
    except ValueError:
        return text


def _build_unsupported_error(name: OptimizerNames) -> NotSupportedError:
    library = _LIBRARY_OF[name]
    if name in _STEPS_IN_BACKWARD:
        return NotSupportedError(
            what=f"optim={str(name)!r} is not supported",
            why=f"it comes from {library} and updates the weights during the backward pass: there is no step to call",
            fix="use optim='adafactor', which also needs little memory",
        )
    return NotSupportedError(
        what=f"optim={str(name)!r} is not supported",
        why=f"it comes from {library}; only optimizers of torch, and Adafactor, are made by name",
        fix=f"make it with {library} and pass Trainer(optimizers=(your_optimizer, None)), "
        "or Trainer(optimizer_cls_and_kwargs=(ItsClass, {'lr': ...}))",
    )
