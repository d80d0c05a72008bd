"""One parameter of a search space, as plain data: a range of numbers, or a list of choices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..arguments.name_suggestion import suggest_name
from ..core.errors import ConfigError

Kind = Literal["float", "int", "choice", "other"]  # other: what only the library itself can draw from
_KEYS = ("low", "high", "step", "log", "type", "choices")
_SCALARS = (str, int, float, bool, type(None))


class SpaceError(ConfigError):
    """A search space with a range or a name that cannot be meant."""


@dataclass(frozen=True)
class Parameter:
    """A range, with both ends, or a list of choices.

    >>> Parameter.parse("learning_rate", {"low": 1e-5, "high": 1e-3, "log": True})
    learning_rate: 1e-05 to 0.001, logarithmic
    >>> Parameter.parse("optim", ["adamw_torch", "adafactor"])
    optim: one of 'adamw_torch', 'adafactor'
    """

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, name: str, given: Any, present: Any = None) -> Parameter:
        """Return the parameter that a description stands for.

        Args:
            name: Its name.
            given: A list of choices; or a dict of low and high, and step, log or type; or of choices.
            present: The present value of the argument of this name, which decides what two whole ends mean: floats
                for an argument that is a float, except a number of epochs.

        Raises:
            SpaceError: The description is empty, reversed, or cannot be read.
        """
        if isinstance(given, (list, tuple)):
            return cls.choose(name, given)
        if not isinstance(given, Mapping):
            raise SpaceError(
                what=f"the space of {name!r} is {given!r}",
                why="a parameter is a list of choices, or a range with low and high",
                fix=f"{name}: [{given!r}, ...], or {name}: {{low: ..., high: ...}}; a fixed value belongs in the "
                "arguments",
            )
        unknown = [key for key in given if key not in _KEYS]
        if unknown:
            near = suggest_name(str(unknown[0]), _KEYS)
            raise SpaceError(
                what=f"the space of {name!r} has {unknown[0]!r}",
                why=f"a range has {', '.join(_KEYS[:5])}; a list has choices",
                fix=f"did you mean {near!r}?" if near else "leave it out",
            )
        if "choices" in given:
            return cls.choose(name, given["choices"])
        return cls._parse_range(name, given, present)

    @classmethod
    def choose(cls, name: str, choices: Iterable[Any]) -> Parameter:
        """Return a list of choices."""
        found = tuple(choices) if isinstance(choices, (list, tuple)) else ()
        if not found:
            raise SpaceError(
                what=f"the space of {name!r} is empty: {choices!r}",
                why="a trial takes one of its values",
                fix=f"{name}: [first, second, ...]",
            )
        wrong = [one for one in found if not isinstance(one, _SCALARS)]
        if wrong:
            raise SpaceError(
                what=f"the space of {name!r} has the choice {wrong[0]!r}",
                why="a study stores its choices: texts, numbers, true, false and null",
                fix="name the choices, and let model_init or a subclass look them up",
            )
        return cls(name, "choice", choices=found)

    @classmethod
    def range(
        cls, name: str, low: float, high: float, *, step: float | None = None, log: bool = False, whole: bool
    ) -> Parameter:
        """Return a range of numbers, checked."""
        if not (math.isfinite(low) and math.isfinite(high)) or low > high:
            raise SpaceError(
                what=f"the range of {name!r} is {'reversed' if low > high else 'not finite'}: {low:g} to {high:g}",
                why="low has to be at most high, and both are finite",
                fix=f"{name}: {{low: {min(low, high):g}, high: {max(low, high):g}}}",
            )
        if log and low <= 0:
            raise SpaceError(
                what=f"the range of {name!r} is logarithmic and begins at {low:g}",
                why="the logarithm of numbers up to 0 does not exist",
                fix=f"begin above 0 ({name}: {{low: {'1' if whole else '1.0e-8'}, ...}}), or leave log out",
            )
        if step is not None and (step <= 0 or (log and step != 1)):
            raise SpaceError(
                what=f"the range of {name!r} has the step {step:g}",
                why="a logarithmic range has no steps" if log else "a step is above 0",
                fix="leave step out, or leave log out" if log else "leave step out, or make it positive",
            )
        return cls(name, "int" if whole else "float", low=low, high=high, step=None if log else step, log=log)

    @classmethod
    def _parse_range(cls, name: str, given: Mapping[str, Any], present: Any) -> Parameter:
        missing = [end for end in ("low", "high") if given.get(end) is None]
        if missing:
            raise SpaceError(
                what=f"the range of {name!r} has no {' and no '.join(missing)}",
                why="a range has two ends, which belong to it",
                fix=f"{name}: {{low: ..., high: ...}}",
            )
        low, high = (_read_number(name, end, given[end]) for end in ("low", "high"))
        step = None if given.get("step") is None else _read_number(name, "step", given["step"])
        kind = given.get("type")
        if kind not in (None, "int", "float"):
            raise SpaceError(
                what=f"the range of {name!r} has the type {kind!r}",
                why="a range holds numbers",
                fix="type: int, or type: float",
            )
        numbers = [low, high, *([] if step is None else [step])]
        if kind == "int" and not all(float(number).is_integer() for number in numbers):
            raise SpaceError(
                what=f"the range of {name!r} has the type int, and the numbers {numbers}",
                why="not all of them are whole",
                fix="type: float, or whole numbers",
            )
        takes_floats = isinstance(present, float) and not name.startswith("num_")
        whole = kind == "int" or (kind is None and not takes_floats and all(type(one) is int for one in numbers))
        if whole:
            low, high, step = int(low), int(high), None if step is None else int(step)
        else:
            low, high = float(low), float(high)
        return cls.range(name, low, high, step=step, log=bool(given.get("log", False)), whole=whole)

    # ---- what it stands for ---------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the parameter as plain data, which is recorded with the study."""
        if self.kind in ("choice", "other"):
            return {"name": self.name, "kind": self.kind, "choices": list(self.choices)}
        ends = {"low": self.low, "high": self.high, "step": self.step, "log": self.log}
        return {"name": self.name, "kind": self.kind, **ends}

    def get_end(self, end: str) -> Any:
        """Return the "low" or "high" end; of a list, the smallest or largest number, or the first or last choice."""
        if self.kind != "choice":
            return getattr(self, end)
        numbers = [one for one in self.choices if isinstance(one, (int, float)) and not isinstance(one, bool)]
        if len(numbers) == len(self.choices):
            return min(numbers) if end == "low" else max(numbers)
        return self.choices[0 if end == "low" else -1]

    def list_samples(self) -> tuple[Any, ...]:
        """Return every choice, or both ends; nothing if only the library can draw from it."""
        return {"choice": self.choices, "other": ()}.get(self.kind, (self.low, self.high))

    def suggest(self, trial: Any) -> Any:
        """Draw a value from an Optuna trial."""
        if self.kind == "choice":
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.kind == "int":
            step = {} if self.log or self.step is None else {"step": self.step}
            return trial.suggest_int(self.name, self.low, self.high, log=self.log, **step)
        return trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)

    def __repr__(self) -> str:
        if self.kind == "other":
            return f"{self.name}: {self.choices[0]}"
        if self.kind == "choice":
            return f"{self.name}: one of {', '.join(map(repr, self.choices))}"
        by = f" in steps of {self.step:g}" if self.step is not None and (self.kind, self.step) != ("int", 1) else ""
        whole = ", whole numbers" if self.kind == "int" else ""
        return f"{self.name}: {self.low:g} to {self.high:g}{by}{whole}{', logarithmic' if self.log else ''}"


def _read_number(name: str, end: str, given: Any) -> float:
    """Return a number; YAML reads 1e-5, without a dot, as text."""
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError:
            pass
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        return given
    raise SpaceError(
        what=f"the range of {name!r} has {end}: {given!r}", why="it is not a number", fix=f"{end}: 1.0e-5, for example"
    )


def check_names(parameters: Sequence[Parameter]) -> None:
    """Raise if a name occurs twice, or both it and a part of it are searched."""
    names = [one.name for one in parameters]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpaceError(
            what=f"the search space has {twice[0]!r} twice", why="a trial has one value of each", fix="keep one"
        )
