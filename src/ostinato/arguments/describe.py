"""`args.explain()`: every argument, its value, where that came from and what it changes."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from .name_suggestion import nearest
from .provenance import Origin

if TYPE_CHECKING:
    from .training_args import TrainingArguments


@dataclass(frozen=True)
class Setting:
    """One argument as it stands."""

    subject: str
    name: str
    value: Any
    origin: Origin
    changes: str  # what it changes, in words


def settings_of(args: TrainingArguments) -> list[Setting]:
    """Every argument, subject by subject."""
    values, subjects = args.to_dict(), dict(_subjects(type(args)))
    origins = args._record.all_origins(args)
    help_of = {one.name: one.metadata.get("help", "") for one in fields(args)}
    found = [
        Setting(subjects.get(name, ""), name, value, origins[name], help_of[name]) for name, value in values.items()
    ]
    order = list(dict.fromkeys(subjects.values()))
    return sorted(found, key=lambda setting: order.index(setting.subject))


def in_words(settings: list[Setting], names: tuple[str, ...] = (), *, width: int | None = None) -> str:
    """The settings as text, those called `names` or all."""
    known = [setting.name for setting in settings]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            raise ConfigError(
                what=f"there is no argument {name!r}",
                why=f"there are {len(known)} arguments, and none has this name",
                fix=f"did you mean {near!r}?" if near else "explain() without a name lists all of them",
            )
    width = width or min(shutil.get_terminal_size((120, 24)).columns, 160)
    lines, subject = [], None
    for setting in settings:
        if names and setting.name not in names:
            continue
        if setting.subject != subject:
            subject = setting.subject
            lines += ["", subject]
        lines += _lines(setting, width)
    return "\n".join(lines[1:])


def _lines(setting: Setting, width: int) -> Iterator[str]:
    value = textwrap.shorten(repr(setting.value), 60, placeholder=" ...")
    yield f"  {setting.name} = {value}  ({setting.origin})"
    yield from textwrap.wrap(setting.changes, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _subjects(cls: type) -> Iterator[tuple[str, str]]:
    """The subject of every argument: the first line of the group, or of the subclass, that brought it."""
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            inherited = {name for parent in base.__bases__ if is_dataclass(parent) for name in _names(parent)}
            for name in _names(base) - inherited:
                yield name, (base.__doc__ or base.__name__).strip().splitlines()[0]


def _names(cls: type) -> set[str]:
    return {one.name for one in fields(cls)}  # type: ignore[arg-type]
