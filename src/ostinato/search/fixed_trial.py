"""A trial whose values are known: for `hp_space` and `model_init`, without the library that drew them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError

ANNOTATIONS = ("assignments", "metric")  # of a run of a sweep; transformers returns them among its values


class FixedTrial(dict[str, Any]):
    """The values by name, as Ray's trials are, with the methods of an Optuna trial, which return them.

    >>> FixedTrial({"hidden": 16}, 3).suggest_int("hidden", 8, 64)
    16
    """

    def __init__(self, params: Mapping[str, Any], number: int = 0) -> None:
        super().__init__(params)
        self.number = number
        self.drawn: set[str] = set()  # names that were asked for
        self.user_attrs: dict[str, Any] = {}

    @property
    def params(self) -> dict[str, Any]:
        """The values by name."""
        return dict(self)

    def suggest_float(self, name: str, *args: Any, **kwargs: Any) -> float:
        return self._get(name)

    def suggest_int(self, name: str, *args: Any, **kwargs: Any) -> int:
        return self._get(name)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return self._get(name)

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self._get(name)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self._get(name)

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def report(self, value: float, step: int) -> None:
        """Do nothing: there is no study."""

    def should_prune(self) -> bool:
        return False

    def _get(self, name: str) -> Any:
        if name not in self:
            raise ConfigError(
                what=f"the trial has no value of {name!r}",
                why=f"it has {', '.join(map(repr, self))}",
                fix="let hp_space and model_init draw what they drew during the search",
            )
        self.drawn.add(name)
        return self[name]
