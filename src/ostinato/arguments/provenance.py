"""The origin of the value of each argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ConfigError
from .extras import list_fields

if TYPE_CHECKING:
    from .training_args import TrainingArguments


@dataclass(frozen=True)
class Origin:
    """Where a value comes from, and why."""

    kind: Literal["given", "default", "derived", "environment", "changed"]
    because: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.because}" if self.because else self.kind


DEFAULT, GIVEN = Origin("default"), Origin("given")
CHANGED = Origin("changed", "set after construction")


@dataclass
class Record:
    """The origins of the values of one `TrainingArguments`."""

    origins: dict[str, Origin] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)  # values given under old names
    problems: list[ConfigError] = field(default_factory=list)  # found before `__init__`; reported with all others
    settled: dict[str, Any] = field(default_factory=dict)  # the values when they were checked last

    def copy(self) -> Record:
        """Return a copy that later changes do not affect."""
        return replace(self, origins=dict(self.origins))

    def record_changes(self, args: TrainingArguments) -> None:
        """Mark the arguments that were set since they were checked last."""
        for name in self._find_differing(args, self.settled):
            self.origins[name] = CHANGED

    def set_derived(self, args: TrainingArguments, name: str, value: Any, because: str) -> None:
        """Set an argument to what follows from others."""
        setattr(args, name, value)
        self.origins[name] = Origin("derived", because)

    def record_values(self, args: TrainingArguments) -> None:
        """Remember the values, which have been checked."""
        self.settled = get_values(args)
        self.problems = []

    def get_origin(self, args: TrainingArguments, name: str) -> Origin:
        """Return where the present value of an argument comes from."""
        return CHANGED if name in self._find_differing(args, self.settled) else self.origins.get(name, DEFAULT)

    def get_origins(self, args: TrainingArguments) -> dict[str, Origin]:
        """Return where the present value of every argument comes from."""
        differing = set(self._find_differing(args, self.settled))
        return {name: CHANGED if name in differing else self.origins.get(name, DEFAULT) for name in get_values(args)}

    @staticmethod
    def _find_differing(args: TrainingArguments, before: Mapping[str, Any]) -> list[str]:
        now = get_values(args)
        return [name for name, value in before.items() if not _is_same(now[name], value)]


def get_values(args: TrainingArguments) -> dict[str, Any]:
    """Return the present value of every argument."""
    return {name: getattr(args, name, None) for name, one in list_fields(args).items() if one.init}


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # values may be of any type, arrays included
        return False
