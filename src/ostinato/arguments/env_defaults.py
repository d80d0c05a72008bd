"""`OSTINATO_DEFAULTS`: defaults for the arguments that transformers does not have, for scripts that stay unchanged."""

from __future__ import annotations

import os
import typing
from collections.abc import Collection
from dataclasses import MISSING, Field
from types import NoneType, UnionType
from typing import Any

from ..core.errors import ConfigError
from .extras import EXTRAS
from .fields.extensions import Extras
from .name_suggestion import suggest_name

VARIABLE = "OSTINATO_DEFAULTS"
_BOOLS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def read_env_defaults(known: Collection[str] = ()) -> tuple[dict[str, Any], list[ConfigError]]:
    """Return the defaults that the environment sets, and the problems with it.

    Args:
        known: Other arguments, which the environment may not set; for the error.

    Returns:
        The values by name, and the problems.

    >>> os.environ[VARIABLE] = "isolate_rng=false, nonfinite_patience=3"
    >>> read_env_defaults()
    ({'isolate_rng': False, 'nonfinite_patience': 3}, [])
    >>> del os.environ[VARIABLE]
    """
    values: dict[str, Any] = {}
    problems: list[ConfigError] = []
    for part in os.environ.get(VARIABLE, "").split(","):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        if not name and not equals:
            continue
        try:
            if name not in EXTRAS or not equals:
                raise _refuse_name(part.strip(), name, known)
            values[name] = _read_value(EXTRAS[name], text)
        except ConfigError as problem:
            problems.append(problem)
    return values, problems


def format_values(values: dict[str, Any]) -> str:
    """Return `isolate_rng=False, nonfinite_patience=3`."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _refuse_name(part: str, name: str, known: Collection[str]) -> ConfigError:
    if name in EXTRAS:
        return ConfigError(
            what=f"{VARIABLE}: {part!r} has no value", why="it is a list of name=value", fix=f"write {name}=VALUE"
        )
    near = suggest_name(name, EXTRAS)
    if name in known:
        why = f"{name} is an argument that transformers has too: only the script sets it"
    else:
        why = f"our own arguments are {', '.join(EXTRAS)}"
    return ConfigError(
        what=f"{VARIABLE} names {name!r}, which it cannot set",
        why=why,
        fix=f"did you mean {near!r}?" if near and name not in known else f"take {name!r} out of {VARIABLE}",
    )


def _read_value(argument: Field[Any], text: str) -> Any:
    kind = typing.get_type_hints(Extras)[argument.name]
    kinds = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if NoneType in kinds and text.lower() == "none":
        return None
    for one in kinds:
        try:
            if one is bool:
                return _BOOLS[text.lower()]
            if one in (int, float, str):
                return _check_choice(argument, one(text))
        except (KeyError, ValueError):
            continue
    default = argument.default if argument.default is not MISSING else None
    choices = argument.metadata.get("choices")
    wanted = f"one of {list(choices)}" if choices else f"a {' or a '.join(one.__name__ for one in kinds)}"
    raise ConfigError(
        what=f"{VARIABLE}: {argument.name}={text!r} is not {wanted}",
        why="the value has to be of the argument's type",
        fix=f"the default is {argument.name}={default!r}",
    )


def _check_choice(argument: Field[Any], value: Any) -> Any:
    choices = argument.metadata.get("choices")
    if choices and value not in choices:
        raise ValueError(value)
    return value
