"""`HfArgumentParser`: dataclasses from a command line, a JSON file, a YAML file or a dict.

    ModelArguments, TrainingArguments --fields--> options, grouped by the class that declares them
    words, files, dicts               --given---> keywords of each dataclass; what was not given is left to its default

A dataclass is called with the given values only, so that it can tell a given value from its default.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import Enum
from typing import Any, NoReturn

from ..core.errors import ConfigError
from ..core.notices import note_once
from .extras import NAMESPACE, PREFIX
from .name_suggestion import suggest_name
from .parser_files import check_mapping, insert_files, read_json, read_yaml
from .parser_help import OptionHelp, format_help_text, group_fields, list_init_fields, to_name
from .parser_types import Reading, find_reading, make_choice_type_function, read_floats, string_to_bool

__all__ = ["HfArg", "HfArgumentParser", "make_choice_type_function", "string_to_bool"]

DataClassType = type[Any]

_ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "<not given>"})()
_EXTRAS_HELP = f"Arguments that transformers does not have. Each can be written with the prefix {PREFIX} too."
_ARGPARSE_KEYWORDS = ("choices", "metavar", "nargs", "const", "action")


class NotADataclassError(ConfigError, TypeError):
    """A type without fields (transformers raises TypeError here)."""


class MissingArgumentError(ConfigError, TypeError):
    """A file or dict that lacks a value without a default (Python raises TypeError here)."""


class UnresolvedTypeError(ConfigError, RuntimeError):
    """An annotation that cannot be resolved (transformers raises RuntimeError here)."""


def HfArg(
    *,
    aliases: str | list[str] | None = None,
    help: str | None = None,
    default: Any = MISSING,
    default_factory: Callable[[], Any] = MISSING,  # type: ignore[assignment]
    metadata: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Declare a dataclass field that becomes an option.

    Args:
        aliases: Other names of the option, with dashes.
        help: The help text of the option.
        default: The default value.
        default_factory: Makes the default value.
        metadata: Further metadata of the field.
        **kwargs: Further keywords of `dataclasses.field`.

    Returns:
        A dataclass field.

    Example:
        >>> @dataclasses.dataclass
        ... class Arguments:
        ...     learning_rate: float = HfArg(default=5e-5, aliases=["--lr"], help="The highest rate.")
        >>> HfArgumentParser(Arguments).parse_args_into_dataclasses(["--lr", "0.1"])
        (Arguments(learning_rate=0.1),)
    """
    words = {name: word for name, word in (("aliases", aliases), ("help", help)) if word is not None}
    return dataclasses.field(
        default=default, default_factory=default_factory, metadata={**(metadata or {}), **words}, **kwargs
    )


@dataclass(frozen=True)
class _Option:
    """The option of one field."""

    owner: str
    reading: Reading
    action: argparse.Action
    default: Any  # of the field; that of the action may be changed later


class HfArgumentParser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` whose options are the fields of dataclasses.

    Further options may be added with `add_argument`; they are returned in a namespace after the dataclasses. If a
    dataclass has the attribute `_argument_group_name`, it is the title of its options in the help. The names in its
    `__old_spellings__` (name to type) are accepted as well and passed to it under these names. So are the fields of
    the dataclass `__extras__`, with the prefix of `extras.py`; without it too, where nothing else has the name.

    Args:
        dataclass_types: One dataclass or several.
        **kwargs: Keywords of `argparse.ArgumentParser`.

    Raises:
        ConfigError: If two dataclasses have a field of the same name, or a type is not a dataclass.

    Example:
        >>> @dataclasses.dataclass
        ... class Arguments:
        ...     model_name: str
        ...     learning_rate: float = 5e-5
        ...     shuffle: bool = True
        >>> parser = HfArgumentParser(Arguments)
        >>> parser.parse_args_into_dataclasses(["--model_name", "tiny", "--no_shuffle"])
        (Arguments(model_name='tiny', learning_rate=5e-05, shuffle=False),)
        >>> parser.parse_dict({"model_name": "tiny", "learning_rate": 0.1})
        (Arguments(model_name='tiny', learning_rate=0.1, shuffle=True),)
    """

    def __init__(self, dataclass_types: DataClassType | Iterable[DataClassType] | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", OptionHelp)
        super().__init__(**kwargs)
        self.dataclass_types = _as_list(dataclass_types)
        self._hints: dict[DataClassType, Mapping[str, Any]] = {}
        self._options: dict[str, _Option] = {}
        self._offered: set[str] = set()  # old names and extras that are options
        for cls in self.dataclass_types:
            _check_dataclass(cls)
            self._hints[cls] = _resolve_hints(cls)
            self._add_fields(cls)

    # --- options -----------------------------------------------------------------------------------------------------

    def _add_fields(self, cls: DataClassType) -> None:
        for (title, text), fields in group_fields(cls):
            group = self.add_argument_group(title, text)
            for field in fields:
                self._add_field(group, cls, field)

    def _add_field(self, group: Any, cls: DataClassType, field: dataclasses.Field[Any]) -> None:
        other = self._options.get(field.name)
        if other is not None and self.conflict_handler != "resolve":
            raise ConfigError(
                what=f"{other.owner} and {cls.__name__} both have a field {field.name!r}",
                why=f"--{field.name} can only fill one of them",
                fix="rename one, or pass conflict_handler='resolve' to fill both",
            )
        reading = find_reading(self._hints[cls][field.name])
        default = _get_default(field)
        keywords = _build_keywords(field.metadata, reading, default)
        aliases = field.metadata.get("aliases", [])
        names = [*_list_spellings(field.name), *([aliases] if isinstance(aliases, str) else aliases)]
        try:
            action = group.add_argument(*names, dest=field.name, **keywords)
            if reading.is_flag and default is True:
                self._add_opposite(group, field.name, default=True)
        except argparse.ArgumentError as error:
            raise ConfigError(
                what=f"{cls.__name__}.{field.name} cannot be an option: {error.message}",
                why="another option has that name already",
                fix="rename the field, or take the name out of its aliases",
            ) from None
        if "action" not in field.metadata:  # a user's action may need the default to be set
            self._options[field.name] = _Option(cls.__name__, reading, action, action.default)

    def _add_opposite(self, group: Any, name: str, *, default: Any, help: str | None = None) -> None:
        help = help or f"The opposite of --{name}."
        group.add_argument(*_list_spellings(f"no_{name}"), dest=name, action="store_false", default=default, help=help)

    def set_defaults(self, **kwargs: Any) -> None:
        """Set defaults of options by name, also of extras.

        Args:
            **kwargs: The defaults by the name of their option.
        """
        taken = {action.dest for action in self._actions}
        extras = {name for cls in self.dataclass_types for name in _list_extra_names(cls)}
        renamed = {name: PREFIX + name for name in kwargs if name not in taken and PREFIX + name in extras}
        super().set_defaults(**{renamed.get(name, name): value for name, value in kwargs.items()})

    def format_help(self) -> str:
        """Return the help of all options."""
        self._add_extras()
        return super().format_help()

    def _add_extras(self) -> None:
        """Add the fields of `__extras__` as options. Called late, so that options of the script have precedence."""
        for extras in {cls.__extras__: None for cls in self.dataclass_types if getattr(cls, "__extras__", None)}:
            hints = typing.get_type_hints(extras)
            missing = [field for field in list_init_fields(extras) if PREFIX + field.name not in self._offered]
            group = self.add_argument_group(NAMESPACE, _EXTRAS_HELP) if missing else self
            for field in missing:
                reading, default = find_reading(hints[field.name]), _get_default(field)
                keywords = {**_build_keywords(field.metadata, reading, default), "default": argparse.SUPPRESS}
                self._offered.add(PREFIX + field.name)
                group.add_argument(*self._spell_extra("", field.name), dest=PREFIX + field.name, **keywords)
                if reading.is_flag and default is True:
                    names, text = self._spell_extra("no_", field.name), f"The opposite of --{field.name}."
                    group.add_argument(
                        *names, dest=PREFIX + field.name, action="store_false", default=argparse.SUPPRESS, help=text
                    )

    def _spell_extra(self, before: str, name: str) -> list[str]:
        """Return the options that set an extra: with the prefix, and without it where nothing else has the name."""
        plain = [] if name in self._field_names() else _list_spellings(before + name)
        return [*(one for one in plain if one not in self._option_string_actions), f"--{PREFIX}{before}{name}"]

    def _add_old_spellings(self) -> None:
        """Add the old names as options. Called when parsing starts, so that options of the script have precedence."""
        for name, hint in self._get_old_spellings().items():
            if any(spelling in self._option_string_actions for spelling in _list_spellings(name)):
                continue
            reading = find_reading(hint)
            keywords = {**_build_keywords({}, reading, None), "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
            self.add_argument(*_list_spellings(name), dest=name, **keywords)
            self._offered.add(name)
            if reading.is_flag and f"--no_{name}" not in self._option_string_actions:
                self._add_opposite(self, name, default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def _get_old_spellings(self, cls: DataClassType | None = None) -> dict[str, Any]:
        """Return the old names and types of one dataclass or of all, without those that are fields of any."""
        classes = self.dataclass_types if cls is None else [cls]
        found = {name: hint for each in classes for name, hint in getattr(each, "__old_spellings__", {}).items()}
        return {name: hint for name, hint in found.items() if name not in self._field_names()}

    def _field_names(self) -> set[str]:
        return {field.name for cls in self.dataclass_types for field in list_init_fields(cls)}

    # --- the command line --------------------------------------------------------------------------------------------

    def parse_args_into_dataclasses(
        self,
        args: Sequence[str] | None = None,
        return_remaining_strings: bool = False,
        look_for_args_file: bool = True,
        args_filename: str | os.PathLike[str] | None = None,
        args_file_flag: str | None = None,
    ) -> tuple[Any, ...]:
        """Parse a command line, and files with arguments, into one object per dataclass.

        Arguments in files come before those of the command line, which therefore override them.

        Args:
            args: The words of the command line. Default: `sys.argv`.
            return_remaining_strings: Whether unknown words are returned instead of being an error.
            look_for_args_file: Whether to read the file next to the script that has its name and ends in `.args`.
            args_filename: A file to read instead.
            args_file_flag: An option that names files to read; later files override earlier ones.

        Returns:
            An object per dataclass; a namespace of the options that belong to no dataclass, if there are any; and the
            unknown words, if requested.

        Raises:
            ConfigError: If words are unknown, or a file does not exist.

        Example:
            >>> @dataclasses.dataclass
            ... class Arguments:
            ...     learning_rate: float = 5e-5
            >>> HfArgumentParser(Arguments).parse_args_into_dataclasses(["--learning_rte", "1"])
            Traceback (most recent call last):
            ...
            ostinato.core.errors.ConfigError: arguments not used by the HfArgumentParser: ['--learning_rte', '1']
              why: no option takes them
              fix: did you mean --learning_rate for --learning_rte?
        """
        words = list(sys.argv[1:] if args is None else args)
        words = insert_files(words, args_filename, args_file_flag, look_beside_script=look_for_args_file)
        namespace, rest = self._read(words, None)
        given = {name: value for name, value in vars(namespace).items() if value is not _ABSENT}
        calls = [(cls, self._collect_keywords(cls, given)) for cls in self.dataclass_types]
        if rest and not return_remaining_strings:
            raise ConfigError(
                what=f"arguments not used by the HfArgumentParser: {rest}",
                why="no option takes them",
                fix=self._suggest_options(rest) or f"leave them out; {self.prog} --help lists every option",
            )
        made = [cls(**keywords) for cls, keywords in calls]
        known = self._field_names() | self._offered
        others = {name: value for name, value in given.items() if name not in known}
        return (
            *made,
            *([argparse.Namespace(**others)] if others else []),
            *([rest] if return_remaining_strings else []),
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line into a namespace, as `argparse` does; the error for an unknown option suggests another.

        Args:
            args: The words of the command line; by default those of this process.
            namespace: An object to set the values on; by default a new namespace.

        Returns:
            The namespace, with every option.

        >>> @dataclasses.dataclass
        ... class Arguments:
        ...     learning_rate: float = 5e-5
        >>> HfArgumentParser(Arguments).parse_args([])
        Namespace(learning_rate=5e-05)
        """
        namespace, rest = self.parse_known_args(args, namespace)
        if rest:
            text = f"unrecognized arguments: {' '.join(rest)}"
            hint = self._suggest_options(rest)
            self._refuse(f"{text} ({hint})" if hint else text)
        return namespace

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse a command line into a namespace and a list of unknown words, as `argparse` does.

        Args:
            args: The words of the command line; by default those of this process.
            namespace: An object to set the values on; by default a new namespace.

        Returns:
            The namespace, and the words that no option takes.
        """
        namespace, rest = self._read(args, namespace)
        for name, option in self._options.items():
            if getattr(namespace, name) is _ABSENT:
                setattr(namespace, name, self._get_option_default(option))
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Print the error without the usage of a hundred options, and exit with code 2.

        Args:
            message: What is wrong with the command line.
        """
        usage = f"usage: {self.prog} [options]; --help lists them\n" if self.add_help else ""
        self.exit(2, f"{usage}{self.prog}: error: {message}\n")

    def _refuse(self, message: str) -> NoReturn:
        if not self.exit_on_error:
            raise argparse.ArgumentError(None, message)
        self.error(message)

    def _read(self, args: Sequence[str] | None, namespace: Any) -> tuple[Any, list[str]]:
        """Parse, leaving `_ABSENT` where no value was given: argparse sets a default only where nothing is set."""
        self._add_old_spellings()
        self._add_extras()
        namespace = argparse.Namespace() if namespace is None else namespace
        for name in self._options:
            setattr(namespace, name, getattr(namespace, name, _ABSENT))
        return super().parse_known_args(args, namespace)

    def _get_option_default(self, option: _Option) -> Any:
        """Return the default of an option. Text is converted, as argparse does, unless the option may be text."""
        value, reading = option.action.default, option.reading
        is_word = isinstance(value, str) and not isinstance(value, Enum)
        if not is_word or (reading.is_flag and reading.takes_text) or reading.nargs is not None:
            return value
        try:
            return reading.read(value)
        except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
            self._refuse(f"the default of --{option.action.dest}, {value!r}, cannot be read: {error}")

    def _collect_keywords(self, cls: DataClassType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given values of a dataclass, and defaults of the parser that are not its own."""
        old = [name for name in self._get_old_spellings(cls) if name in self._offered]
        names = [*_list_init_names(cls), *old, *_list_extra_names(cls)]
        keywords = {name: given[name] for name in names if name in given}
        for field in list_init_fields(cls):
            if field.name in keywords:
                continue
            option = self._options[field.name]
            value = self._get_option_default(option)
            if _has_no_default(field) or not _is_same(value, option.default):
                keywords[field.name] = value
        return keywords

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = suggest_name(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(
                action, f"{error.message}{f'; did you mean {near}?' if near else ''}"
            ) from None

    def _suggest_options(self, words: Iterable[str]) -> str:
        """Return the nearest option of every unknown option."""
        shown = {name for name, action in self._option_string_actions.items() if action.help is not argparse.SUPPRESS}
        known = {to_name(option): option for option in sorted(shown, key=lambda option: "_" in option)}
        answers = []
        for word in (word.split("=")[0] for word in words if word.startswith("--")):
            name = to_name(word)
            switched_off = self._options.get(name.removeprefix("no_")) if name.startswith("no_") else None
            if switched_off is not None and switched_off.reading.is_flag:
                answers.append(f"--{switched_off.action.dest} false for {word}")
            elif near := suggest_name(name, known):
                answers.append(f"{known[near]} for {word}")
        return f"did you mean {', '.join(answers)}?" if answers else ""

    # --- dicts and files ---------------------------------------------------------------------------------------------

    def parse_dict(self, args: Mapping[str, Any], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Make one object per dataclass from names and values, which are not converted.

        Args:
            args: The values by name.
            allow_extra_keys: Whether names that no dataclass has are ignored.

        Returns:
            An object per dataclass.

        Raises:
            ConfigError: If a name is unknown, or a value without a default is missing.

        Example:
            >>> @dataclasses.dataclass
            ... class Arguments:
            ...     learning_rate: float = 5e-5
            >>> HfArgumentParser(Arguments).parse_dict({"learning_rate": 1e-3})
            (Arguments(learning_rate=0.001),)
        """
        return self._from_mapping(check_mapping(args, "the dict"), "the dict", allow_extra_keys=allow_extra_keys)

    def parse_json_file(self, json_file: str | os.PathLike[str], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Make one object per dataclass from a JSON file.

        Args:
            json_file: The path of the file.
            allow_extra_keys: Whether names that no dataclass has are ignored.

        Returns:
            An object per dataclass.

        Raises:
            ConfigError: If the file is not valid, a name is unknown, or a value without a default is missing.

        Example:
            >>> HfArgumentParser(TrainingArguments).parse_json_file("args.json")  # doctest: +SKIP
        """
        return self._from_mapping(read_json(json_file), str(json_file), allow_extra_keys=allow_extra_keys)

    def parse_yaml_file(self, yaml_file: str | os.PathLike[str], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Make one object per dataclass from a YAML file. Needs PyYAML.

        In YAML, `1e-4` is a string (`1.0e-4` is a number). If the field is a float, it is converted.

        Args:
            yaml_file: The path of the file.
            allow_extra_keys: Whether names that no dataclass has are ignored.

        Returns:
            An object per dataclass.

        Raises:
            ConfigError: If the file is not valid, a name is unknown, or a value without a default is missing.

        Example:
            >>> HfArgumentParser(TrainingArguments).parse_yaml_file("args.yaml")  # doctest: +SKIP
        """
        content = self._read_floats(read_yaml(yaml_file), yaml_file)
        return self._from_mapping(content, str(yaml_file), allow_extra_keys=allow_extra_keys)

    def _read_floats(self, content: Mapping[str, Any], source: Any) -> dict[str, Any]:
        hints = self._get_old_spellings()
        for cls in self.dataclass_types:
            for name, hint in typing.get_type_hints(getattr(cls, "__extras__", object)).items():
                hints |= {name: hint, PREFIX + name: hint}
        for cls in self.dataclass_types:
            hints.update(self._hints[cls])
        read = {name: read_floats(hints.get(name), value) for name, value in content.items()}
        changed = [f"{name}: {content[name]}" for name, value in read.items() if repr(value) != repr(content[name])]
        if changed:
            note_once(
                f"{source}: read as a number, although it is a string in YAML: {', '.join(changed)} "
                "(1.0e-4 is a number in YAML)"
            )
        return read

    def _from_mapping(self, content: Mapping[str, Any], source: str, *, allow_extra_keys: bool) -> tuple[Any, ...]:
        self._check_keys(content, source, allow_extra_keys=allow_extra_keys)
        made = []
        for cls in self.dataclass_types:
            names = [*_list_init_names(cls), *self._get_old_spellings(cls), *self._list_extra_keys(cls)]
            keywords = {name: content[name] for name in names if name in content}
            _check_complete(cls, keywords, source)
            made.append(cls(**keywords))
        return tuple(made)

    def _check_keys(self, content: Mapping[str, Any], source: str, *, allow_extra_keys: bool) -> None:
        fields = self._field_names() | {key for cls in self.dataclass_types for key in self._list_extra_keys(cls)}
        extra = sorted(str(name) for name in content if name not in fields and name not in self._get_old_spellings())
        near = {name: suggest_name(name.replace("-", "_"), fields) for name in extra}
        hints = [f"{field} for {name}" for name, field in near.items() if field]
        if extra and not allow_extra_keys:
            raise ConfigError(
                what=f"keys not used by the HfArgumentParser: {extra}",
                why=f"{source} has them, and no dataclass has such a field",
                fix=f"did you mean {', '.join(hints)}?" if hints else "leave them out, or pass allow_extra_keys=True",
            )
        if hints:
            note_once(f"{source}: no field takes {', '.join(extra)}; did you mean {', '.join(hints)}?")

    def _list_extra_keys(self, cls: DataClassType) -> list[str]:
        """Return the keys of a dict or file that give extras of a dataclass."""
        plain = [name.removeprefix(PREFIX) for name in _list_extra_names(cls)]
        prefixed = [*_list_extra_names(cls), NAMESPACE] if plain else []
        return [*(name for name in plain if name not in self._field_names()), *prefixed]


# --- dataclasses -----------------------------------------------------------------------------------------------------


def _as_list(types: DataClassType | Iterable[DataClassType] | None) -> list[DataClassType]:
    if types is None:
        return []
    return [types] if dataclasses.is_dataclass(types) or not isinstance(types, Iterable) else list(types)


def _check_dataclass(cls: Any) -> None:
    if dataclasses.is_dataclass(cls) and isinstance(cls, type):
        return
    is_object = dataclasses.is_dataclass(cls)
    raise NotADataclassError(
        what=f"an object of {type(cls).__name__} is not a class" if is_object else f"{cls!r} is not a dataclass",
        why="the fields of a dataclass become options",
        fix=f"pass {type(cls).__name__}, the class" if is_object else "put @dataclass above the class",
    )


def _resolve_hints(cls: DataClassType) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except (NameError, AttributeError) as error:
        name = getattr(error, "name", None) or "it"
        raise UnresolvedTypeError(
            what=f"the types of {cls.__name__}'s fields cannot be resolved: {error}",
            why=f"annotations are resolved with the top-level names of {cls.__module__}",
            fix=f"define or import {name} there, not in a function or under `if TYPE_CHECKING`",
        ) from error


def _list_init_names(cls: DataClassType) -> list[str]:
    return [field.name for field in list_init_fields(cls)]


def _list_extra_names(cls: DataClassType) -> list[str]:
    extras = getattr(cls, "__extras__", None)
    return [] if extras is None else [PREFIX + field.name for field in list_init_fields(extras)]


def _get_default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _check_complete(cls: DataClassType, given: Mapping[str, Any], source: str) -> None:
    missing = [field.name for field in list_init_fields(cls) if _has_no_default(field) and field.name not in given]
    if missing:
        raise MissingArgumentError(
            what=f"{cls.__name__} needs {', '.join(missing)}",
            why=f"{source} does not give a value, and there is no default",
            fix=f"add {', '.join(missing)}",
        )


# --- keywords --------------------------------------------------------------------------------------------------------


def _list_spellings(name: str) -> list[str]:
    return [f"--{name}", f"--{name.replace('_', '-')}"] if "_" in name else [f"--{name}"]


def _build_keywords(metadata: Mapping[str, Any], reading: Reading, default: Any) -> dict[str, Any]:
    """Return the keywords of `add_argument` for one field."""
    keywords: dict[str, Any] = {name: metadata[name] for name in _ARGPARSE_KEYWORDS if name in metadata}
    keywords["type"] = reading.read
    if reading.choices is not None:
        keywords["choices"] = reading.choices
    if reading.nargs is not None:
        keywords.setdefault("nargs", reading.nargs)
    if reading.gather is not None:
        keywords.update(action=_make_gather_action(reading.gather))
    if reading.is_flag:
        keywords.update(_build_flag_keywords(reading, default))
    else:
        keywords.update(required=default is MISSING, default=None if default is MISSING else default)
    return {**keywords, "help": format_help_text(metadata.get("help"), required=keywords.get("required", False))}


def _build_flag_keywords(reading: Reading, default: Any) -> dict[str, Any]:
    """Return the keywords of a flag: `--flag`, `--flag false`. One that defaults to None needs a value."""
    if reading.takes_none and default in (None, MISSING) and not reading.takes_text:
        return {"default": None}
    return {"nargs": "?", "const": True, "default": False if default is MISSING else default}


def _make_gather_action(gather: Callable[[list[Any]], Any]) -> type[argparse.Action]:
    class Gather(argparse.Action):
        """Make one value of several words."""

        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
            try:
                setattr(namespace, self.dest, gather(values))
            except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
                raise argparse.ArgumentError(self, str(error)) from None

    return Gather
