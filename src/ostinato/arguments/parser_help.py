"""The help of options: grouped by subject, with defaults."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from .parser_types import string_to_bool

_DEFAULT_ALONE = "(default: %(default)s)"
_MAX_USAGE_OPTIONS = 20  # options: with more, the usage would fill the screen
_MAX_CHOICES_LENGTH = 60  # characters of choices beside an option; longer ones are listed in its text
_PERCENT = re.compile(r"%%|%(?!\((prog|default|type|choices|dest|metavar|nargs|const)\)s)")


class OptionHelp(argparse.ArgumentDefaultsHelpFormatter):
    """A formatter that shows one spelling of every option with its default, and required options in the usage."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        if usage is None and len(actions) > _MAX_USAGE_OPTIONS:
            needed = [
                f"{action.option_strings[0]} ..." for action in actions if action.option_strings and action.required
            ]
            positional = [
                action.dest if action.required else f"[{action.dest}]"
                for action in actions
                if not action.option_strings
            ]
            usage = " ".join(["%(prog)s [options]", *needed, *positional])
        super().add_usage(usage, actions, groups, prefix)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = "" if action.help == _DEFAULT_ALONE else action.help or ""
        if "%(default)" in text or action.default is argparse.SUPPRESS or not action.option_strings:
            return super()._get_help_string(action)
        if action.required:
            return text if "(required)" in text else f"{text} (required)"
        if _has_many_choices(action):
            text = f"{text} One of {', '.join(map(str, action.choices or ()))}.".strip()
        default = action.default.value if isinstance(action.default, Enum) else action.default
        if action.nargs == 0 or (text and default in (None, "", [])):  # the default is nothing, which needs no mention
            return text
        shown = repr(default) if isinstance(default, str) and not default.strip() else str(default)
        return f"{text} (default: {shown.replace('%', '%%')})".strip()

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return `--learning_rate FLOAT`, without the spelling `--learning-rate`."""
        if not action.option_strings or action.nargs == 0:
            return ", ".join(_drop_dashed(action.option_strings)) or super()._format_action_invocation(action)
        words = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(_drop_dashed(action.option_strings))} {words}"

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Any:
        if action.metavar is None and _has_many_choices(action):
            return lambda size: (default_metavar,) * size
        return super()._metavar_formatter(action, default_metavar)

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        kind = {str: "TEXT", string_to_bool: "BOOL"}.get(action.type)  # type: ignore[arg-type]
        return kind or (action.type.__name__.upper() if isinstance(action.type, type) else action.dest.upper())


def _has_many_choices(action: argparse.Action) -> bool:
    return action.choices is not None and len(",".join(map(str, action.choices))) > _MAX_CHOICES_LENGTH


def _drop_dashed(options: Sequence[str]) -> list[str]:
    return [option for option in options if "-" not in option.lstrip("-") or f"--{to_name(option)}" not in options]


def format_help_text(text: str | None, *, required: bool) -> str:
    if text:
        return _escape_percent(text)
    return (
        "(required)" if required else "(default: %(default)s)"
    )  # argparse prints nothing about an option without help


def _escape_percent(text: str) -> str:
    """Escape the percent signs of a help text, except in "%%" and "%(default)s", which argparse interpolates."""
    return _PERCENT.sub("%%", text)


def group_fields(cls: type[Any]) -> Iterator[tuple[tuple[str, str | None], list[dataclasses.Field[Any]]]]:
    """Yield title, description and fields of the groups of a dataclass: those of the class that declares the fields.

    A dataclass with `_argument_group_name` is one group of this title.
    """
    title = getattr(cls, "_argument_group_name", None)
    if title is not None:
        yield (title, None), list_init_fields(cls)
        return
    declared = {
        name: base for base in cls.__mro__ for name in inspect.get_annotations(base)
    }  # the first class in the hierarchy stays
    groups: dict[type, list[dataclasses.Field[Any]]] = {}
    for field in list_init_fields(cls):
        groups.setdefault(declared.get(field.name, cls), []).append(field)
    for owner, fields in groups.items():
        yield (_format_title(owner.__name__), _get_first_line(owner)), fields


def _format_title(name: str) -> str:
    """Return `TextClassificationArguments` as a title.

    >>> _format_title("TextClassificationArguments"), _format_title("Data"), _format_title("LoRAArguments")
    ('Text classification arguments', 'Data', 'LoRA arguments')
    """
    first, *others = re.sub(r"(?<=[a-zA-Z])(?=[A-Z][a-z])", " ", name).split(" ")
    return " ".join([first, *(word.lower() if word.istitle() else word for word in others)])


def _get_first_line(cls: type) -> str | None:
    text = inspect.cleandoc(vars(cls).get("__doc__") or "").split("\n")[0]
    return None if not text or text.startswith(f"{cls.__name__}(") else text  # generated by @dataclass


def list_init_fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    """Return the fields that are arguments of `__init__`."""
    return [field for field in dataclasses.fields(cls) if field.init]


def to_name(option: str) -> str:
    """Return `--learning-rate` as `learning_rate`."""
    return option.lstrip("-").replace("-", "_")
