"""`args.explain()`: the value of every argument, where it comes from and what it changes."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from .extras import list_extras, list_fields, shorten_names
from .fields.extensions import Extras
from .name_suggestion import suggest_name
from .provenance import Origin

if TYPE_CHECKING:
    from .training_args import TrainingArguments


@dataclass(frozen=True)
class ArgumentDescription:
    """One argument with its present value."""

    subject: str
    name: str
    value: Any
    origin: Origin
    changes: str  # its help text


def describe_arguments(args: TrainingArguments) -> list[ArgumentDescription]:
    """Return the description of every argument, grouped by subject."""
    subjects, origins = dict(_find_subjects(type(args))), args._record.get_origins(args)
    subjects |= dict.fromkeys(list_extras(args), (Extras.__doc__ or "").splitlines()[0])
    helps = {field.name: field.metadata.get("help", "") for field in list_fields(args).values()}
    found = [
        ArgumentDescription(subjects.get(name, ""), name, value, origins[name], helps[name])
        for name, value in shorten_names(args, args.to_dict()).items()
    ]
    order = list(dict.fromkeys(subjects.values()))
    return sorted(found, key=lambda one: order.index(one.subject))


def format_descriptions(
    descriptions: list[ArgumentDescription], names: tuple[str, ...] = (), *, width: int | None = None
) -> str:
    """Return the descriptions as text: all, or those of `names`.

    Raises:
        ConfigError: If there is no argument of one of the names.
    """
    known = [one.name for one in descriptions]
    for name in names:
        if name not in known:
            near = suggest_name(name, known)
            raise ConfigError(
                what=f"there is no argument {name!r}",
                why=f"none of the {len(known)} arguments has this name",
                fix=f"did you mean {near!r}?" if near else "explain() without a name lists all of them",
            )
    width = width or min(shutil.get_terminal_size((120, 24)).columns, 160)
    lines, subject = [], None
    for one in descriptions:
        if names and one.name not in names:
            continue
        if one.subject != subject:
            subject = one.subject
            lines += ["", subject]
        lines += _format_lines(one, width)
    return "\n".join(lines[1:])


def _format_lines(one: ArgumentDescription, width: int) -> Iterator[str]:
    value = textwrap.shorten(repr(one.value), 60, placeholder=" ...")
    yield f"  {one.name} = {value}  ({one.origin})"
    yield from textwrap.wrap(one.changes, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _find_subjects(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the subject of every argument: the first line of the docstring of the class that declares it."""
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            inherited = {name for parent in base.__bases__ if is_dataclass(parent) for name in _list_names(parent)}
            for name in _list_names(base) - inherited:
                yield name, (base.__doc__ or base.__name__).strip().splitlines()[0]


def _list_names(cls: type) -> set[str]:
    return {one.name for one in fields(cls)}  # type: ignore[arg-type]
