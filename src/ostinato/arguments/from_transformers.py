"""The conversion of transformers' `TrainingArguments`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ..core.errors import ConfigError
from ..core.notices import note_once
from .training_args import TrainingArguments


class WrongTypeError(ConfigError, TypeError):
    """A value of a type that the trainer cannot use (transformers fails with TypeError or AttributeError)."""


def convert_arguments(args: Any) -> TrainingArguments:
    """Return `args`, converted if it is an object of transformers. None stands for the defaults.

    >>> convert_arguments(None).output_dir
    'tmp_trainer'
    """
    if args is None:
        return TrainingArguments(output_dir="tmp_trainer")
    if isinstance(args, TrainingArguments):
        return args
    if not is_dataclass(args) or isinstance(args, type) or getattr(args, "output_dir", None) is None:
        raise _refuse_type(args)
    known = {one.name for one in fields(TrainingArguments)}
    values = {one.name: getattr(args, one.name) for one in fields(args) if one.init}
    ours = TrainingArguments(**{name: value for name, value in values.items() if name in known})
    for name in values.keys() - known:  # fields of a subclass, for the code that added them
        vars(ours)[name] = values[name]  # one with the name of an argument of ours does not become ours
    owner = type(args).__module__.partition(".")[0]
    note_once(
        f"args is a {type(args).__name__} of {owner}: its values are taken over; trainer.args is another object "
        f"(from ostinato import {type(ours).__name__} avoids this)"
    )
    return ours


def _refuse_type(args: Any) -> WrongTypeError:
    hints = {
        dict: "pass args=TrainingArguments(**args)",
        str: f"pass args=TrainingArguments(output_dir={args!r})",
    }
    is_class = isinstance(args, type)
    return WrongTypeError(
        what=f"args is {'the class ' + args.__name__ if is_class else 'a ' + type(args).__name__}, "
        "not TrainingArguments",
        why="all settings of a run are read from it",
        fix="create an object: TrainingArguments(output_dir='out')"
        if is_class
        else hints.get(type(args), "pass args=TrainingArguments(output_dir='out')"),
    )
