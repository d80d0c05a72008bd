"""How a call of `TrainingArguments` becomes an object: old names, unknown names, defaults from outside.

A dataclass's `__init__` is written anew for every subclass, so what holds for all of them happens around it: here.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from ..core.notices import note_once
from .env_defaults import VARIABLE, format_values, read_env_defaults
from .name_suggestion import suggest_name
from .provenance import GIVEN, Origin, Record
from .renamed_arguments import OLD_ARGUMENTS, Old, translate
from .secrets import format_argument


class UnknownArgumentError(ConfigError, TypeError):
    """An argument that does not exist (Python raises TypeError here)."""


class CheckedType(ABCMeta):
    """The type of classes that look at the arguments of a call before `__init__` does.

    From `ABCMeta`, so that a subclass may also inherit from an abstract class.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature people look at is that of `__init__`, not that of `__call__`."""
        return inspect.Signature(list(_get_parameters(cls).values()))


class TrainerType(CheckedType):
    """The type of `Trainer` and of every class made from it: an unknown keyword gets the nearest name."""

    if not TYPE_CHECKING:  # type checkers see `__init__`

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            parameters = _get_parameters(cls)
            if not _accepts_any(parameters):
                for name in keywords.keys() - parameters.keys():
                    raise make_unknown_error(cls.__name__, name, ..., parameters)
            return super().__call__(*args, **keywords)


class ArgumentsType(CheckedType):
    """The type of `TrainingArguments` and of every class made from it."""

    if not TYPE_CHECKING:  # type checkers see the fields

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            parameters = _get_parameters(cls)
            positional = list(parameters)[: len(args)]
            translation = translate(keywords, _get_old_names(parameters))
            given, problems = translation.given, translation.problems
            if not _accepts_any(parameters):
                for name in [name for name in given if name not in parameters]:
                    problems.append(make_unknown_error(cls.__name__, name, given.pop(name), parameters))
            record = Record(
                origins=dict.fromkeys([*positional, *given], GIVEN), kept=translation.kept, problems=problems
            )
            if translation.lines:
                note_once(f"older argument names: {'; '.join(translation.lines)}")
            _add_env_defaults(given, record, parameters, known=positional)
            self = cls.__new__(cls, *args, **given)
            self.__dict__["_record"] = record
            cls.__init__(self, *args, **given)
            return self


def make_unknown_error(owner: str, name: str, value: Any, parameters: Collection[str]) -> UnknownArgumentError:
    """A name that is none: with the nearest that is one."""
    near = suggest_name(name, parameters)
    is_short = value is not ... and len(repr(value)) <= 40
    return UnknownArgumentError(
        what=f"{owner} has no argument {name!r}" + (f" ({format_argument(name, value)})" if is_short else ""),
        why="an argument that does not exist would change nothing",
        fix=f"did you mean {near!r}?" if near else f"leave it out; {_describe_names(parameters)}",
    )


def _describe_names(parameters: Collection[str]) -> str:
    return f"there is {', '.join(parameters)}" if len(parameters) < 20 else "args.explain() lists what there is"


def _get_parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


def _accepts_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def _get_old_names(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Old]:
    """A subclass may have an argument of its own under a name that has become free."""
    return {name: old for name, old in OLD_ARGUMENTS.items() if name not in parameters}


def _add_env_defaults(
    given: dict[str, Any], record: Record, parameters: Mapping[str, inspect.Parameter], *, known: Collection[str]
) -> None:
    values, problems = read_env_defaults(parameters)
    record.problems.extend(problems)
    used = {name: value for name, value in values.items() if name not in given and name not in known}
    given.update(used)
    record.origins.update({name: Origin("environment", VARIABLE) for name in used})
    if used:
        note_once(f"{VARIABLE}: {format_values(used)}")
