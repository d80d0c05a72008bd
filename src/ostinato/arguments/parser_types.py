"""The conversion of words of a command line into values of annotated types.

`find_reading` returns, for an annotation, the function that converts a word, the number of words and the choices.
A bool is a flag, a list takes several words, a dict is JSON, and a union is read as its first member that accepts the
word. Where a union is ambiguous, it is read as in transformers.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import types
import typing
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence, MutableSet, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, Union

Word = Callable[[str], Any]

_NONE = type(None)
_LISTS = (list, Sequence, MutableSequence, Collection, Iterable)
_SETS = {set: set, Set: set, MutableSet: set, frozenset: frozenset}
_TRUE = ("yes", "true", "t", "y", "1")
_FALSE = ("no", "false", "f", "n", "0")
_READ_ERRORS = (ValueError, TypeError, ArgumentTypeError)


@dataclass(frozen=True)
class Reading:
    """How words are converted into a value."""

    read: Word
    """Converts one word."""
    nargs: int | str | None = None
    """The number of words, as for argparse."""
    choices: Collection[Any] | None = None
    """The values that are allowed."""
    gather: Callable[[list[Any]], Any] | None = None
    """Converts the list of values into the final value."""
    is_flag: bool = False
    """Whether the option without a word means True."""
    takes_none: bool = False
    """Whether None is a value, which no word can express."""
    takes_text: bool = False
    """Whether any text is a value."""


def find_reading(hint: Any) -> Reading:
    """Return how a value of a type is read.

    >>> find_reading(int | None).read("3")
    3
    >>> find_reading(list[float]).nargs
    '+'
    """
    hint = _unwrap(hint)
    kind = typing.get_origin(hint) or hint
    if kind in (Union, types.UnionType):
        return _read_union(typing.get_args(hint))
    if kind is typing.Literal:
        choices = typing.get_args(hint)
        return Reading(make_choice_type_function(choices), choices=choices)
    if hint is bool:
        return Reading(string_to_bool, is_flag=True)
    if kind in (str, os.PathLike, Any, object):  # Any and object: text is passed on
        return Reading(str, takes_text=True)
    if _is_many(hint):
        return _read_many(kind, typing.get_args(hint))
    if not isinstance(kind, type):
        return Reading(_refuse_words(hint))
    if issubclass(kind, Enum):
        return _read_enum(kind)
    if issubclass(kind, Mapping):
        return Reading(_read_json(dict))
    return Reading(_refuse_words(hint) if kind is type or inspect.isabstract(kind) else kind)


def string_to_bool(v: str | bool) -> bool:
    """Convert yes/no, true/false, t/f, y/n or 1/0, in any case.

    Args:
        v: The word; a bool is returned as it is.

    Returns:
        The bool.

    Raises:
        ArgumentTypeError: It is another word.

    >>> string_to_bool("Yes"), string_to_bool("0")
    (True, False)
    """
    if isinstance(v, bool):
        return v
    if v.lower() in _TRUE:
        return True
    if v.lower() in _FALSE:
        return False
    raise ArgumentTypeError(f"{v!r} is neither yes nor no: write one of yes/no, true/false, t/f, y/n, 1/0")


def make_choice_type_function(choices: Iterable[Any]) -> Word:
    """Return a function that converts the text of a choice into the choice, and returns other text unchanged.

    Args:
        choices: The values to choose from.

    Returns:
        A function for the `type` of an `argparse` option.

    >>> read = make_choice_type_function(["auto", 8, 16])
    >>> read("8"), read("auto"), read("9")
    (8, 'auto', '9')
    """
    by_text = {str(choice): choice for choice in choices}
    return lambda text: by_text.get(text, text)


def read_floats(hint: Any, value: Any) -> Any:
    """Convert text to a float where the type is float and not text, also in lists.

    >>> (
    ...     read_floats(float | None, "1e-4"),
    ...     read_floats(list[float], ["1e-4", 1]),
    ...     read_floats(str, "1e-4"),
    ... )
    (0.0001, [0.0001, 1], '1e-4')
    """
    members = [_unwrap(member) for member in _list_members(_unwrap(hint))]
    if isinstance(value, str) and float in members and str not in members:
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, list):
        items = [typing.get_args(member)[0] for member in members if _is_many(member) and typing.get_args(member)]
        if items:
            return [read_floats(items[0], item) for item in value]
    return value


# --- unions ----------------------------------------------------------------------------------------------------------


def _read_union(members: Sequence[Any]) -> Reading:
    """Read as the first member that accepts the word. str accepts any word, and comes last."""
    members = [_unwrap(member) for member in members]
    takes_none = _NONE in members
    kinds = [member for member in members if member is not _NONE]
    if len(kinds) == 1:
        return dataclasses.replace(find_reading(kinds[0]), takes_none=takes_none)
    listed = next((kind for kind in kinds if _is_many(kind)), None)
    if listed is not None:
        return _read_one_or_many(members, listed)
    takes_text = str in kinds
    if bool in kinds:
        first = bool
    elif takes_text:
        first = _choose_like_transformers(members)
    else:
        first = kinds[0]
    if isinstance(first, type) and issubclass(first, Enum) and set(kinds) == {first, str}:
        return find_reading(first)  # `SchedulerType | str`: a member or its value, not any text
    ordered = sorted(kinds, key=lambda kind: (kind != first, kind is str))
    readers = [(_format_type(kind), _check_choices(find_reading(kind))) for kind in ordered]
    return Reading(
        str if first is str else _try_in_turn(readers),
        is_flag=bool in kinds,
        takes_none=takes_none,
        takes_text=takes_text,
    )


def _choose_like_transformers(members: Sequence[Any]) -> Any:
    """Return the member as which transformers reads a union with str: the second, unless it is None (or str)."""
    absent = _NONE if _NONE in members else str
    return members[0] if members[1] is absent else members[1]


def _read_one_or_many(members: Sequence[Any], listed: Any) -> Reading:
    """Read `str | list[str] | None`: one word is one value, several are a list."""
    many = find_reading(listed)
    if str in members and (_NONE not in members or members[:2] == [listed, _NONE]):
        return many  # as in transformers: always a list
    alone = _read_union([member for member in members if member != listed])
    read_one, read_item = _check_choices(alone), _check_choices(many)

    def gather(words: list[str]) -> Any:
        if len(words) == 1:
            return read_one(words[0])
        items = [read_item(word) for word in words]
        return many.gather(items) if many.gather else items

    return Reading(str, nargs="+", gather=gather, takes_none=_NONE in members, takes_text=alone.takes_text)


def _try_in_turn(readers: Sequence[tuple[str, Word]]) -> Word:
    def read(word: str) -> Any:
        for _, reader in readers:
            try:
                return reader(word)
            except _READ_ERRORS:
                continue
        raise ArgumentTypeError(f"{word!r} is not {' or '.join(name for name, _ in readers)}")

    return read


def _check_choices(reading: Reading) -> Word:
    """Return a reader that also refuses what is not a choice; in a union, argparse does not check this."""

    def read(word: str) -> Any:
        value = reading.read(word)
        if reading.choices is not None and value not in reading.choices:
            raise ArgumentTypeError(f"{word!r} is not one of {_join(reading.choices)}")
        return value

    return read if reading.choices is not None else reading.read


# --- several values --------------------------------------------------------------------------------------------------


def _read_many(kind: Any, hints: Sequence[Any]) -> Reading:
    if kind is tuple and hints and Ellipsis not in hints:
        return _read_tuple(hints)
    item = _read_item(hints[0]) if hints else Reading(str)
    gather = tuple if kind is tuple else _SETS.get(kind)
    return dataclasses.replace(item, nargs="+", gather=gather, is_flag=False, takes_none=False, takes_text=False)


def _read_tuple(hints: Sequence[Any]) -> Reading:
    readers = [_check_choices(_read_item(hint)) for hint in hints]

    def gather(words: list[str]) -> tuple[Any, ...]:
        return tuple(reader(word) for reader, word in zip(readers, words, strict=True))

    return Reading(str, nargs=len(readers), gather=gather)


def _read_item(hint: Any) -> Reading:
    """Return how one item of a list is read from one word."""
    hint = _unwrap(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Reading(_read_member(hint))
    if _is_many(hint):
        return Reading(_read_json(list))
    return find_reading(hint)


# --- single words ----------------------------------------------------------------------------------------------------


def _read_enum(kind: type[Enum]) -> Reading:
    """Read a member's value; the dataclass converts it to the member, as with transformers."""
    values = [member.value for member in kind]
    return Reading(make_choice_type_function(values), choices=values) if values else Reading(str, takes_text=True)


def _read_member(kind: type[Enum]) -> Word:
    by_text = {str(member.value): member for member in kind}

    def read(word: str) -> Enum:
        try:
            return by_text[word] if word in by_text else kind(word)
        except ValueError:
            raise ArgumentTypeError(f"{word!r} is not one of {_join(by_text)}") from None

    return read


def _read_json(kind: type) -> Word:
    def read(word: str) -> Any:
        try:
            value = json.loads(word)
        except ValueError as error:
            raise ArgumentTypeError(f"{word!r} is not JSON: {error}") from None
        if not isinstance(value, kind):
            raise ArgumentTypeError(f"{word!r} is not a JSON {'object' if kind is dict else 'array'}")
        return value

    return read


def _refuse_words(hint: Any) -> Word:
    def read(word: str) -> Any:
        raise ArgumentTypeError(f"a {_format_type(hint)} cannot be written on a command line: set it in the script")

    return read


# --- annotations -----------------------------------------------------------------------------------------------------


def _unwrap(hint: Any) -> Any:
    """Return the type inside `Annotated`, `Final`, `NewType` and `type X = ...`."""
    while True:
        if typing.get_origin(hint) in (typing.Annotated, typing.Final):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # Python 3.12 and later
            hint = hint.__value__
        else:
            return hint


def _list_members(hint: Any) -> Sequence[Any]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else [hint]


def _is_many(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    return kind is tuple or kind in _LISTS or kind in _SETS


def _format_type(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


def _join(choices: Iterable[Any]) -> str:
    return ", ".join(map(str, choices))
