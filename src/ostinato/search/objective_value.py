"""The objective of a trial: what is computed from the metrics of an evaluation, as one number for each direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.notices import note_once
from . import search_errors
from .defaults import default_compute_objective, is_measurement


class NamedObjective:
    """Returns metrics by name: one number, or one for each of several names.

    >>> NamedObjective(["eval_f1"])({"eval_f1": 0.5, "eval_loss": 1.0})
    0.5
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(name if name.startswith(("eval_", "test_")) else f"eval_{name}" for name in names)

    def __call__(self, metrics: Mapping[str, float]) -> Any:
        missing = [name for name in self.names if name not in metrics]
        if missing:
            raise search_errors.objective_missing(missing[0], metrics)
        values = [metrics[name] for name in self.names]
        return values[0] if len(values) == 1 else values


def choose_objective(given: Any) -> Any:
    """Return the function that a name, a list of names, a function or None stands for."""
    if given is None:
        return default_compute_objective
    if isinstance(given, str):
        return NamedObjective([given])
    if isinstance(given, (list, tuple)) and given and all(isinstance(one, str) for one in given):
        return NamedObjective(given)
    if not callable(given):
        raise search_errors.wrong_objective(given)
    return given


def name_objectives(objective: Any, count: int) -> list[str]:
    """Return the names of the objectives, for the record."""
    if isinstance(objective, NamedObjective):
        return list(objective.names)
    if objective is default_compute_objective:
        return ["objective"]
    name = getattr(objective, "__name__", type(objective).__name__)
    name = "objective" if name == "<lambda>" else name
    return [name] if count == 1 else [f"{name}[{index}]" for index in range(count)]


def compute(objective: Any, metrics: Mapping[str, Any], directions: Sequence[str]) -> Any:
    """Return what the function of the user returns.

    Raises:
        ObjectiveError: It asks for a metric that there is not, or returns another number of values.
    """
    if objective is default_compute_objective:
        _note_sum(metrics, directions)
    try:
        value = objective(dict(metrics))
    except search_errors.ObjectiveError:
        raise
    except KeyError as error:
        name = error.args[0] if error.args else ""
        if name in metrics or not isinstance(name, str):
            raise
        raise search_errors.objective_missing(name, metrics) from error
    found = list_values(value)
    if len(found) != len(directions):
        raise search_errors.wrong_number_of_objectives(len(found), directions)
    return value


def _note_sum(metrics: Mapping[str, Any], directions: Sequence[str]) -> None:
    names = [name for name in metrics if not is_measurement(name) and name != "eval_loss"]
    if names:
        note_once(
            f"the objective to {directions[0]} is {' + '.join(names)}, as in transformers; to choose: "
            f'compute_objective="{names[0].removeprefix("eval_")}", direction="maximize" or "minimize"'
        )


def list_values(objective: Any) -> tuple[float, ...]:
    """Return an objective as floats.

    >>> list_values(0.5), list_values([1, 2.0])
    ((0.5,), (1.0, 2.0))
    """
    values = objective if isinstance(objective, (list, tuple)) else (objective,)
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise search_errors.not_numbers(objective) from None


def has_nan(values: Sequence[float]) -> bool:
    """Return whether a value cannot be compared."""
    return any(math.isnan(value) for value in values)
