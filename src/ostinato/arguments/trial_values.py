"""The values of a trial, as arguments: set by name, and taken back before the next trial.

A dot leads into an argument: `generation_config.num_beams`, or an option of a text such as `optim_args.momentum`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from ..core.notices import note_once
from .extras import list_declarations, shorten_names
from .generation_settings import load_generation_config
from .metaclass import UnknownArgumentError
from .name_suggestion import suggest_name

if TYPE_CHECKING:
    from .training_args import TrainingArguments

_TEXT_OF_OPTIONS = ("optim_args",)  # "momentum=0.9,nesterov=true"
_PLAIN = (bool, int, float, str)


class ArgumentValues:
    """The arguments as they were before a search.

    >>> from types import SimpleNamespace
    >>> args = SimpleNamespace(learning_rate=1e-3)
    >>> before = ArgumentValues(args)
    >>> set_values(args, {"learning_rate": 0.5})
    []
    >>> before.restore()
    >>> args.learning_rate
    0.001
    """

    def __init__(self, args: Any) -> None:
        self._args = args
        self._kept = {name: _copy_containers(value) for name, value in vars(args).items()}

    def restore(self) -> None:
        """Give every argument the value that it had, and remove those that were added."""
        values = vars(self._args)
        values.clear()
        values.update({name: _copy_containers(value) for name, value in self._kept.items()})


def set_values(args: Any, values: Mapping[str, Any]) -> list[str]:
    """Set arguments by name, each with the type of its present value; return the names that are no arguments.

    >>> from types import SimpleNamespace
    >>> args = SimpleNamespace(num_train_epochs=3.0, generation_config=None, optim_args="eps=1e-6")
    >>> set_values(args, {"num_train_epochs": 2, "generation_config.num_beams": 4, "optim_args.momentum": 0.9, "a": 1})
    ['a']
    >>> args
    namespace(num_train_epochs=2.0, generation_config={'num_beams': 4}, optim_args='eps=1e-6,momentum=0.9')
    """
    unknown = []
    for name, value in values.items():
        if has_argument(args, name):
            root, _, rest = name.partition(".")
            present = getattr(args, root)
            setattr(args, root, _set_inside(root, present, rest, value) if rest else _convert(name, present, value))
        else:
            unknown.append(name)
    return unknown


def has_argument(args: Any, name: str) -> bool:
    """Return whether a name, up to its first dot, is an argument or another attribute that can be set."""
    root = name.partition(".")[0]
    return not root.startswith("_") and hasattr(args, root) and not _is_computed(args, root)


def list_names(args: Any) -> list[str]:
    """Return the names of the arguments."""
    names = [field.name for field in dataclasses.fields(args)] if dataclasses.is_dataclass(args) else vars(args)
    return list(shorten_names(args, dict.fromkeys(names)))


def list_deciding_values(args: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that a result depends on, as plain data: not those of directories, logs and evaluation."""
    declared = list_declarations(args)
    return {
        name: value
        for name, value in shorten_names(args, args.to_dict()).items()
        if name not in declared or declared[name].on_resume is not None
    }


def read_value(args: Any, name: str) -> Any:
    """Return the present value of an argument, without what a dot leads to; None if there is none."""
    return getattr(args, name, None) if "." not in name else None


def make_unknown_value_error(args: Any, name: str) -> UnknownArgumentError:
    """Return the error for a name in a search space that is not an argument."""
    near = suggest_name(name.partition(".")[0], list_names(args))
    return UnknownArgumentError(
        what=f"the search space has {name!r}, which is not an argument of {type(args).__name__}",
        why="its values would have no effect, since model_init takes no trial that could use them",
        fix=f"did you mean {near!r}?" if near else "leave it out, or let model_init take the trial and use it there",
    )


def _is_computed(args: Any, name: str) -> bool:
    found = getattr(type(args), name, None)
    return callable(found) or (isinstance(found, property) and found.fset is None)


def _convert(name: str, present: Any, value: Any) -> Any:
    """Return a value with the type of the present one, as far as it is a number, a text or a choice."""
    if value is None or present is None or type(value) is type(present):
        return value
    if isinstance(present, bool):
        return value if not isinstance(value, str) else value.lower() in ("1", "true", "yes", "on")
    if isinstance(present, (*_PLAIN, Enum)):
        try:
            converted = type(present)(value)
        except ConfigError as error:  # of a set of words, which knows them
            raise ConfigError(what=f"the search space has {name}={value!r}", why=error.why, fix=error.fix) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(
                what=f"the search space has {name}={value!r}, which does not fit the argument's type",
                why=f"its present value is {present!r}: {error}",
                fix=f"let the search space hold values of the type {type(present).__name__}",
            ) from None
        if isinstance(value, float) and isinstance(present, int) and converted != value:
            note_once(
                f"{name} takes whole numbers: of those drawn for it the fraction is cut off, as in transformers",
                key=f"fraction of {name}",
            )
        return converted
    return value


def _set_inside(root: str, present: Any, path: str, value: Any) -> Any:
    """Return a copy of an argument's value in which what `path` leads to is set."""
    if root == "generation_config" and present is not None and not isinstance(present, Mapping):
        present = load_generation_config(present)
    if root in _TEXT_OF_OPTIONS:
        return _set_option(None if present is None else str(present), path, value)
    name, _, rest = path.partition(".")
    if present is None or isinstance(present, Mapping):
        inside = dict(present or {})
        known = inside.get(name)
        inside[name] = _set_inside(name, known, rest, value) if rest else _convert(name, known, value)
        return inside
    if not hasattr(present, name):
        near = suggest_name(name, vars(present)) if hasattr(present, "__dict__") else None
        raise UnknownArgumentError(
            what=f"the search space has {root}.{path}, but {type(present).__name__} has no {name!r}",
            why="its values would have no effect",
            fix=f"did you mean {root}.{near}?" if near else "leave it out",
        )
    changed, inner = copy.copy(present), getattr(present, name)
    setattr(changed, name, _set_inside(name, inner, rest, value) if rest else _convert(name, inner, value))
    return changed


def _set_option(text: str | None, name: str, value: Any) -> str:
    """Return a text of options with one of them set.

    >>> _set_option("eps=1e-6,momentum=0.5", "momentum", 0.9)
    'eps=1e-6,momentum=0.9'
    """
    parts = [part.split("=", 1) for part in (text or "").replace(" ", "").split(",") if part]
    options = {part[0]: part[1] if len(part) == 2 else "" for part in parts}
    options[name] = str(value)
    return ",".join(f"{key}={one}" for key, one in options.items())


def _copy_containers(value: Any) -> Any:
    """Return a copy of a dict, list or set, so that a change in place can be taken back; else the value."""
    if isinstance(value, dict):
        return {name: _copy_containers(one) for name, one in value.items()}
    if isinstance(value, (list, set)):
        return type(value)(value)
    return copy.copy(value) if hasattr(value, "copy") and hasattr(value, "origins") else value
