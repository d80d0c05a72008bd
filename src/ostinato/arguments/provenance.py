"""Where the value of each argument comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ConfigError

if TYPE_CHECKING:
    from .training_args import TrainingArguments


@dataclass(frozen=True)
class Origin:
    """Who decided, and why if it was not the user."""

    kind: Literal["given", "default", "derived", "environment", "changed"]
    because: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.because}" if self.because else self.kind


DEFAULT, GIVEN = Origin("default"), Origin("given")
CHANGED = Origin("changed", "set after the arguments were made")


@dataclass
class Record:
    """What arguments remember of how they came about."""

    origins: dict[str, Origin] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)  # values given under old names
    problems: list[ConfigError] = field(default_factory=list)  # found before the object was made; told with the others
    settled: dict[str, Any] = field(default_factory=dict)  # every value, the last time all were settled

    def copy(self) -> Record:
        """What is known now, whatever is learned later."""
        return replace(self, origins=dict(self.origins))

    def record_changes(self, args: TrainingArguments) -> None:
        """Whatever differs from when it was settled was set by somebody since."""
        for name in self._find_differing(args, self.settled):
            self.origins[name] = CHANGED

    def derived(self, args: TrainingArguments, name: str, value: Any, because: str) -> None:
        """Set an argument to what follows from others."""
        setattr(args, name, value)
        self.origins[name] = Origin("derived", because)

    def settle(self, args: TrainingArguments) -> None:
        """Every value is final, until somebody changes it."""
        self.settled = get_values(args)
        self.problems = []

    def origin(self, args: TrainingArguments, name: str) -> Origin:
        """Where the present value comes from."""
        return CHANGED if name in self._find_differing(args, self.settled) else self.origins.get(name, DEFAULT)

    def get_origins(self, args: TrainingArguments) -> dict[str, Origin]:
        """The same of every argument at once."""
        differing = set(self._find_differing(args, self.settled))
        return {name: CHANGED if name in differing else self.origins.get(name, DEFAULT) for name in get_values(args)}

    @staticmethod
    def _find_differing(args: TrainingArguments, before: Mapping[str, Any]) -> list[str]:
        now = get_values(args)
        return [name for name, value in before.items() if not _same(now[name], value)]


def get_values(args: TrainingArguments) -> dict[str, Any]:
    """The value of every argument, as it is now."""
    return {one.name: getattr(args, one.name, None) for one in fields(args) if one.init}


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # values of any type may be compared here, arrays among them
        return False
