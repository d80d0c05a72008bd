"""The construction of `TrainingArguments`: old names, unknown names, defaults from the environment.

Every subclass gets an `__init__` of its own from `@dataclass`, so what applies to all of them happens around it.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from ..core.notices import note_once
from .env_defaults import VARIABLE, format_values, read_env_defaults
from .extras import EXTRAS, PREFIX, ArgumentFields, take_extras
from .fields.extensions import Extras
from .name_suggestion import suggest_name
from .provenance import GIVEN, Origin, Record
from .renamed_arguments import OLD_ARGUMENTS, OldArgument, translate
from .secrets import format_argument


class UnknownArgumentError(ConfigError, TypeError):
    """An argument that does not exist (Python raises TypeError here)."""


class CheckedType(ABCMeta):
    """A metaclass for classes that check the arguments of a call before `__init__`.

    It is an `ABCMeta`, so that a subclass may also inherit from an abstract class.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """Return the signature of `__init__` instead of that of `__call__`."""
        return inspect.Signature(list(_get_parameters(cls).values()))


class TrainerType(CheckedType):
    """The metaclass of `Trainer`: the error for an unknown keyword suggests the nearest name.

    When the constructor of a subclass has ended, what it may have replaced is checked.
    """

    if not TYPE_CHECKING:  # type checkers see `__init__`

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            parameters = _get_parameters(cls)
            if not _accepts_any(parameters):
                for name in keywords.keys() - parameters.keys():
                    raise make_unknown_error(cls.__name__, name, ..., parameters)
            trainer = super().__call__(*args, **keywords)
            if trainer._is_replaced("__init__"):
                trainer._check_replaceable(lambda method: method != "__init__" and trainer._is_replaced(method))
            return trainer


class ArgumentsType(CheckedType):
    """The metaclass of `TrainingArguments`."""

    def __setattr__(cls, name: str, value: Any) -> None:
        """Set an attribute of the class; `@dataclass` sets its fields last, once for every subclass."""
        super().__setattr__(name, ArgumentFields(value) if name == "__dataclass_fields__" else value)

    if not TYPE_CHECKING:  # type checkers see the fields

        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            parameters = _get_parameters(cls)
            positional = list(parameters)[: len(args)]
            translation = translate(keywords, _get_old_names(parameters))
            given, problems = translation.given, translation.problems
            extras, unknown = take_extras(given, parameters)
            problems += [make_unknown_error(Extras.__name__, name, ..., EXTRAS) for name in unknown]
            if not _accepts_any(parameters):
                known = [*parameters, *EXTRAS]
                for name in [name for name in given if name not in parameters]:
                    problems.append(make_unknown_error(cls.__name__, name, given.pop(name), known))
            names = [*positional, *given, *(PREFIX + name if name in parameters else name for name in extras)]
            record = Record(origins=dict.fromkeys(names, GIVEN), kept=translation.kept, problems=problems)
            if translation.lines:
                note_once(f"older argument names: {'; '.join(translation.lines)}")
            _add_env_defaults(extras, record, parameters)
            self = cls.__new__(cls, *args, **given)
            self.__dict__.update(_record=record, _extras=Extras(**extras))
            cls.__init__(self, *args, **given)
            return self


def make_unknown_error(owner: str, name: str, value: Any, parameters: Collection[str]) -> UnknownArgumentError:
    """Return the error for an unknown argument, with the nearest name as suggestion."""
    near = suggest_name(name, parameters)
    is_short = value is not ... and len(repr(value)) <= 40
    return UnknownArgumentError(
        what=f"{owner} has no argument {name!r}" + (f" ({format_argument(name, value)})" if is_short else ""),
        why="an unknown argument would have no effect",
        fix=f"did you mean {near!r}?" if near else f"leave it out; {_describe_names(parameters)}",
    )


def _describe_names(parameters: Collection[str]) -> str:
    return f"there is {', '.join(parameters)}" if len(parameters) < 20 else "args.explain() lists all arguments"


def _get_parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {name: parameter for name, parameter in parameters.items() if name != "self"}


def _accepts_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def _get_old_names(parameters: Mapping[str, inspect.Parameter]) -> dict[str, OldArgument]:
    """Return the old names, without those that a subclass uses for arguments of its own."""
    return {name: old for name, old in OLD_ARGUMENTS.items() if name not in parameters}


def _add_env_defaults(extras: dict[str, Any], record: Record, parameters: Collection[str]) -> None:
    values, problems = read_env_defaults(parameters)
    record.problems.extend(problems)
    used = {name: value for name, value in values.items() if name not in extras}
    extras.update(used)
    origin = Origin("environment", VARIABLE)
    record.origins.update({PREFIX + name if name in parameters else name: origin for name in used})
    if used:
        note_once(f"{VARIABLE}: {format_values(used)}")
