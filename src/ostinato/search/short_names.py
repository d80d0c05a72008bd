"""Short names for trials, made of the parameters that differ from their defaults: `hp_lr3e-05_ws100`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..core.errors import ConfigError


class TrialShortNamer:
    """Names trials by their parameters. Subclasses set `PREFIX` and `DEFAULTS`.

    >>> class Namer(TrialShortNamer):
    ...     PREFIX = "run"
    ...     DEFAULTS = {"learning_rate": 1e-4, "warmup_steps": 0}
    >>> Namer.shortname({"learning_rate": 3e-05, "warmup_steps": 100})
    'run_lr3e-05_ws100'
    >>> Namer.parse_repr("run_lr3e-05")
    {'learning_rate': 3e-05, 'warmup_steps': 0}
    """

    PREFIX: ClassVar[str] = "hp"
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    NAMING_INFO: ClassVar[dict[str, dict[str, str]] | None] = None

    @classmethod
    def set_defaults(cls, prefix: str, defaults: dict[str, Any]) -> None:
        """Set the prefix and the defaults, and choose the short names anew.

        Args:
            prefix: What every name begins with.
            defaults: The value of every parameter that is left out of a name.
        """
        cls.PREFIX, cls.DEFAULTS, cls.NAMING_INFO = prefix, defaults, None
        cls.build_naming_info()

    @staticmethod
    def shortname_for_word(info: dict[str, dict[str, str]], word: str) -> str:
        """Return the shortest beginning of a word that no other word has, and remember it.

        Args:
            info: The short names chosen so far.
            word: A part of a parameter's name, without digits: they would run into the value.

        Returns:
            The short word.

        Raises:
            ConfigError: The word contains a digit.
        """
        if not word:
            return ""
        if any(letter.isdigit() for letter in word):
            raise ConfigError(
                what=f"Parameters should not contain numbers: {word!r} contains a number",
                why="in the name of a trial, the number would run into the value",
                fix="rename the parameter, or name trials by a function of your own: hp_name=...",
            )
        if word in info["short_word"]:
            return info["short_word"][word]
        taken = info["reverse_short_word"]
        short = next((word[:end] for end in range(1, len(word) + 1) if word[:end] not in taken), f"{word}#")
        count = 0
        while short in taken:
            short, count = f"{word}#{_to_letters(count)}", count + 1
        info["short_word"][word], taken[short] = short, word
        return short

    @staticmethod
    def shortname_for_key(info: dict[str, dict[str, str]], param_name: str) -> str:
        """Return the short name of a parameter: the short words in a row, or between underscores.

        Args:
            info: The short names chosen so far.
            param_name: The name of the parameter.

        Returns:
            The short name, or the whole name if every shorter one is taken.
        """
        words = [TrialShortNamer.shortname_for_word(info, word) for word in param_name.split("_")]
        for separator in ("", "_"):
            if (short := separator.join(words)) not in info["reverse_short_param"]:
                return short
        return param_name

    @staticmethod
    def add_new_param_name(info: dict[str, dict[str, str]], param_name: str) -> None:
        """Choose a short name for a parameter and remember it.

        Args:
            info: The short names chosen so far.
            param_name: The name of the parameter.
        """
        short = TrialShortNamer.shortname_for_key(info, param_name)
        info["short_param"][param_name], info["reverse_short_param"][short] = short, param_name

    @classmethod
    def build_naming_info(cls) -> None:
        """Choose the short names of all parameters that have a default, unless they are chosen."""
        if cls.NAMING_INFO is not None:
            return
        info: dict[str, dict[str, str]] = {
            name: {} for name in ("short_word", "reverse_short_word", "short_param", "reverse_short_param")
        }
        for name in cls.DEFAULTS:
            cls.add_new_param_name(info, name)
        cls.NAMING_INFO = info

    @classmethod
    def shortname(cls, params: Mapping[str, Any]) -> str:
        """Return the name of a trial.

        Args:
            params: Its parameters.

        Returns:
            The prefix, and the short name and value of every parameter that differs from its default.

        Raises:
            ConfigError: A parameter has no default.
        """
        cls.build_naming_info()
        assert cls.NAMING_INFO is not None
        parts = [cls.PREFIX]
        for name, value in params.items():
            if name not in cls.DEFAULTS:
                raise ConfigError(
                    what=f"You should provide a default value for the param name {name} with value {value}",
                    why=f"the name of a trial leaves out defaults, and {cls.__name__}.DEFAULTS has none for it",
                    fix=f"add it: DEFAULTS = {{{name!r}: ..., ...}}",
                )
            if value != cls.DEFAULTS[name]:
                shown = int(value) if isinstance(value, bool) else value
                separator = "" if isinstance(shown, (int, float)) else "-"
                parts.append(f"{cls.NAMING_INFO['short_param'][name]}{separator}{shown}")
        return "_".join(parts)

    @classmethod
    def parse_repr(cls, repr: str) -> dict[str, Any]:
        """Return the parameters that a name stands for: numbers as floats, other values as text.

        Args:
            repr: A name that `shortname` returned.

        Returns:
            Every parameter by name; those that are not in the name have their defaults.
        """
        cls.build_naming_info()
        assert cls.NAMING_INFO is not None
        found, names = {}, cls.NAMING_INFO["reverse_short_param"]
        rest = repr[len(cls.PREFIX) + 1 :]
        for part in rest.split("_") if rest else []:
            short = max((one for one in names if part.startswith(one)), key=len)
            found[names[short]] = _parse_value(part[len(short) :])
        return {**cls.DEFAULTS, **found}


def _parse_value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text.removeprefix("-")


def _to_letters(number: int) -> str:
    """Return 0 as A, 1 as B, …, 26 as AA.

    >>> _to_letters(0), _to_letters(27)
    ('A', 'AB')
    """
    letters = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters
