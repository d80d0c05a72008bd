"""Our own arguments as part of `TrainingArguments`: how they are named, taken from keywords, and listed.

They are in `args.ostinato`, an `Extras`, and can be given, read and set by name, as fields can: `args.packing`. Where
the class of the arguments has an attribute of that name, as TRL's `SFTConfig.packing`, the name is that attribute's,
and ours has a prefix: `SFTConfig(**{"ostinato.packing": True})`, `--ostinato.packing`. What is copied from one object
to another always has the prefix, since the other may be of a class that has the name.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Mapping
from dataclasses import Field, fields
from typing import Any

from .argument import ArgumentField, Declaration, get_declarations
from .fields.extensions import Extras

NAMESPACE = "ostinato"
PREFIX = f"{NAMESPACE}."
_ABSENT = object()
EXTRAS: Mapping[str, Field[Any]] = {field.name: field for field in fields(Extras)}


class ArgumentFields:
    """The `__dataclass_fields__` of an arguments class: of the class, its fields; of an object, our own as well.

    `dataclasses.replace` and `asdict`, and whatever else copies arguments field by field, therefore keep our own. They
    have the prefix there: a library makes its own arguments from those of `TrainingArguments`, as TRL does with
    `SFTConfig(**args.to_dict())`, and a field of its own must not get a value of ours.
    """

    def __init__(self, fields: dict[str, Field[Any]]) -> None:
        self.fields = fields

    def __get__(self, args: Any, cls: type | None = None) -> dict[str, Field[Any]]:
        return self.fields if args is None else {**self.fields, **_PREFIXED}


def list_fields(args: Any) -> dict[str, Field[Any]]:
    """Return the fields of an object of arguments, our own by the names that they have in it."""
    return {**type(args).__dataclass_fields__, **list_extras(args)}


def list_extras(args: Any) -> dict[str, Field[Any]]:
    """Return our own arguments by the names that they have in an object or a class of arguments."""
    return {
        name if plain else PREFIX + name: field if plain else _rename(field, PREFIX + name)
        for name, field in EXTRAS.items()
        for plain in [not is_taken(args, name)]
    }


def list_declarations(args: Any) -> dict[str, Declaration]:
    """Return the declarations of all arguments of an object or a class, by name."""
    cls = args if isinstance(args, type) else type(args)
    ours = {name: field.declaration for name, field in list_extras(args).items() if isinstance(field, ArgumentField)}
    return {**get_declarations(cls), **ours}


def shorten_names(args: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `args.to_dict()` with our own arguments under the names that they have in the object."""
    extras = {name: name.removeprefix(PREFIX) for name in _PREFIXED}
    return {
        extras[name] if name in extras and not is_taken(args, extras[name]) else name: value
        for name, value in content.items()
    }


def find_extra(args: Any, name: str) -> str | None:
    """Return the argument of ours that a name stands for in an object of arguments, or None."""
    plain = name.removeprefix(PREFIX)
    return plain if plain in EXTRAS and (plain != name or not is_taken(args, name)) else None


def is_taken(args: Any, name: str) -> bool:
    """Return whether a name of ours is an attribute that an object or a class of arguments has itself."""
    cls = args if isinstance(args, type) else type(args)
    is_set = args is not cls and name in vars(args)
    is_field = name in getattr(cls, "__dataclass_fields__", ())  # a stand-in of arguments has none
    return is_set or is_field or inspect.getattr_static(cls, name, _ABSENT) is not _ABSENT


def take_extras(given: dict[str, Any], parameters: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Remove our own arguments from keywords. A name without the prefix counts most: `replace` gives the others.

    Args:
        given: The keywords, from which ours are removed.
        parameters: The parameters of the class. A parameter with the name of one of ours is not ours.

    Returns:
        Our own arguments by name, and the names in the namespace that do not exist.
    """
    whole = given.pop(NAMESPACE, None) or {}
    found = {name.removeprefix(PREFIX): given.pop(name) for name in list(given) if name.startswith(PREFIX)}
    found |= {name: getattr(whole, name) for name in EXTRAS} if isinstance(whole, Extras) else dict(whole)
    found |= {name: given.pop(name) for name in list(given) if name in EXTRAS and name not in parameters}
    unknown = [name for name in found if name not in EXTRAS]
    return {name: value for name, value in found.items() if name in EXTRAS}, unknown


def _rename(field: Field[Any], name: str) -> Field[Any]:
    renamed = copy.copy(field)
    renamed.name = name
    return renamed


_PREFIXED: Mapping[str, Field[Any]] = {PREFIX + name: _rename(field, PREFIX + name) for name, field in EXTRAS.items()}
