"""`optim_args`: the options of an optimizer, from text to the types that its constructor expects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from ..arguments.settings import OptimizerSettings
from ..core.errors import ConfigError

OptionTypes = Mapping[str, Any]  # a type, or a default of that type, for each option

_NOT_OPTIONS = ("params", "model")


def read_option_types(cls: type) -> dict[str, Any]:
    """Return the arguments that a constructor takes, with their defaults.

    >>> read_option_types(torch.optim.SGD)["nesterov"]
    False
    """
    return {
        name: _read_default(parameter)
        for name, parameter in inspect.signature(cls).parameters.items()
        if name not in _NOT_OPTIONS and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _read_default(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter; `momentum: float = 0` is a float."""
    is_float = parameter.annotation in (float, "float") and type(parameter.default) is int
    return float(parameter.default) if is_float else parameter.default


def parse_options(settings: OptimizerSettings, types: OptionTypes, owner: str) -> dict[str, Any]:
    """Return `optim_args` with the types of `types`; `owner` is the name of the class in messages.

    Raises:
        ConfigError: an option is unknown, of another type, or contradicts a training argument.
    """
    owned = {"lr": ("learning_rate", settings.learning_rate), "weight_decay": ("weight_decay", settings.weight_decay)}
    options = {}
    for name, text in settings.options.items():
        if name not in types:
            raise ConfigError(
                what=f"{settings.name.value} has no option {name!r}",
                why=f"{owner} takes {', '.join(option for option in types if option not in owned)}",
                fix=f"correct optim_args, or leave {name!r} out",
            )
        options[name] = parse_option(name, text, types[name])
        if name in owned:
            _refuse_second_source(name, options[name], *owned[name])
    return options


def parse_option(name: str, text: Any, kind: Any) -> Any:
    """Return the value that `text` represents, of the type `kind` or of the type of the default `kind`.

    >>> parse_option("rank", "8", int), parse_option("betas", "(0.9,0.95)", (0.9, 0.999))
    (8, (0.9, 0.95))
    """
    if not isinstance(text, str):
        return text
    value, default = _literal(text), None if isinstance(kind, type) else kind
    if kind is str or isinstance(default, str):
        return text.strip()
    if isinstance(default, torch.dtype):
        value = getattr(torch, text.strip(), None)
        fits, words = isinstance(value, torch.dtype), "a type of torch, such as bfloat16"
    elif isinstance(default, bool):
        fits, words = isinstance(value, bool), "true or false"
    elif isinstance(default, tuple):
        fits = isinstance(value, tuple) and len(value) == len(default) and all(map(_is_number, value))
        value = tuple(map(float, value)) if fits and isinstance(value, tuple) else value
        words = f"{len(default)} numbers in parentheses"
    elif kind is int:
        fits, words = type(value) is int, "a whole number"
    elif kind is float or isinstance(default, (int, float)):
        fits, words = _is_number(value), "a number"
        value = value if type(default) is int or not fits else float(text)
    else:
        fits, words = not isinstance(value, str), "none, true, false or a number"
    if not fits:
        raise ConfigError(
            what=f"optim_args says {name}={text}",
            why=f"{name} is {words}",
            fix=f"write it as {name}={'…' if default is None else str(default).removeprefix('torch.')}",
        )
    return value


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _literal(text: str) -> bool | float | tuple[Any, ...] | str | None:
    """Return None, a truth value, a number or a tuple of them; any other text as it is."""
    text = text.strip()
    words: Mapping[str, bool | None] = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if text[:1] + text[-1:] in ("()", "[]"):
        return tuple(_literal(part) for part in text[1:-1].split(",") if part.strip())
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _refuse_second_source(name: str, value: Any, argument: str, argument_value: float) -> None:
    """Raise if two arguments for one number disagree, as only the training argument has an effect."""
    if value != argument_value:
        raise ConfigError(
            what=f"optim_args says {name}={value}, but {argument}={argument_value}",
            why=f"{argument} is what every parameter group is given, so the other one would have no effect",
            fix=f"set {argument}={value} and leave {name} out of optim_args",
        )
