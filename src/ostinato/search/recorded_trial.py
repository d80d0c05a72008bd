"""A trial that is not one: it records what a function of Optuna's form draws, before the search begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .parameter import Parameter


class RecordedTrial:
    """Stands for an Optuna trial, and takes one end of every range; of some, the values in `chosen`.

    >>> trial = RecordedTrial()
    >>> trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True)
    1e-05
    >>> trial.parameters["learning_rate"]
    learning_rate: 1e-05 to 0.001, logarithmic
    """

    number = 0

    def __init__(self, end: Literal["low", "high"] = "low", chosen: Mapping[str, Any] | None = None) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        self._end, self._chosen = end, chosen or {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return self._take(Parameter.range(name, float(low), float(high), step=step, log=log, whole=False))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        return self._take(Parameter.range(name, low, high, step=None if step == 1 else step, log=log, whole=True))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._take(Parameter.choose(name, list(choices)))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return self.suggest_float(name, low, high, step=q)

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def report(self, value: float, step: int) -> None:
        """Do nothing: there is no study."""

    def should_prune(self) -> bool:
        return False

    def _take(self, parameter: Parameter) -> Any:
        self.parameters[parameter.name] = parameter
        taken = self._chosen.get(parameter.name, parameter.get_end(self._end))
        return self.params.setdefault(parameter.name, taken)
