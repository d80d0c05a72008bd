"""The search space of a study, in whatever form it is given, as each library needs it.

    a description    {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}, "optim": ["adamw_torch", "sgd"]}
    a file           the same, as YAML or JSON
    Optuna's form    a function of a trial that calls trial.suggest_float and the like
    Ray's form       a dict of tune.uniform(...) and the like, or a function that returns one
    wandb's form     a sweep configuration, or a function that returns one

A function of Optuna's form may draw other parameters in every trial; all other forms are lists of parameters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arguments.trial_values import read_value
from .defaults import PLAIN_SPACE
from .fixed_trial import FixedTrial
from .parameter import Parameter, SpaceError, check_names
from .ray_domains import is_domain, read_domain
from .recorded_trial import RecordedTrial


@dataclass(frozen=True)
class SearchSpace:
    """What is searched: a list of parameters, or a function that draws them from a trial."""

    parameters: tuple[Parameter, ...] | None
    function: Callable[[Any], Any] | None = None
    given: Any = None

    def describe(self) -> list[dict[str, Any]] | None:
        """Return the parameters as plain data; None if a function draws others in other trials or needs a real one."""
        try:
            return [one.describe() for one in list_parameters(self)]
        except Exception:  # also one of the user's function
            return None

    def draw(self, trial: Any) -> dict[str, Any]:
        """Return the values of the arguments in a trial of Optuna's; those drawn may have other names."""
        if self.function is None:
            return {one.name: one.suggest(trial) for one in self.parameters or ()}
        values = self.function(trial)
        if not isinstance(values, Mapping):
            raise SpaceError(
                what=f"hp_space returned {values!r}",
                why="it returns the value of each argument by name",
                fix='return {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-3)}, or {} if it has none',
            )
        return dict(values)

    __call__ = draw  # `trainer.hp_space`, as subclasses call it

    def translate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the arguments in a trial for which these parameters were drawn."""
        if self.function is None:
            return dict(params)
        trial = FixedTrial(params)
        values = self.draw(trial)
        return {**{name: value for name, value in params.items() if name not in trial.drawn}, **values}

    def list_samples(self) -> Iterator[dict[str, Any]]:
        """Yield values of arguments that trials may have: both ends of every range, and every choice."""
        if self.function is None:
            for one in self.parameters or ():
                yield from ({one.name: value} for value in one.list_samples())
            return
        first = RecordedTrial()
        yield self.draw(first)
        for one in first.parameters.values():
            yield from (self.draw(RecordedTrial(chosen={one.name: value})) for value in one.list_samples())


def read_space(given: Any, args: Any, *, takes_rays: bool = False) -> SearchSpace:
    """Return the space of any form, checked as far as it can be before the first trial.

    With `takes_rays`, it may have what only Ray can draw, such as a normal distribution.

    Raises:
        SpaceError: A range is empty, reversed, or logarithmic from 0; a file cannot be read.
    """
    if isinstance(given, SearchSpace):
        return given
    if given is None:
        return _parse_description(PLAIN_SPACE, args, given, takes_rays)
    if isinstance(given, (str, os.PathLike)):
        return _parse_description(_read_file(Path(given)), args, given, takes_rays)
    if isinstance(given, Mapping):
        return _parse_description(given, args, given, takes_rays)
    if not callable(given):
        raise SpaceError(
            what=f"hp_space is of type {type(given).__name__}",
            why="it describes what is searched",
            fix='pass {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}, a file, or a function of a trial',
        )
    trial = RecordedTrial()
    try:
        returned = given(trial)
    except SpaceError:
        raise
    except Exception:  # it needs a real trial
        return SearchSpace(None, given, given)
    if isinstance(returned, Mapping) and not trial.parameters and _is_list_of_parameters(returned):
        return _parse_description(returned, args, given, takes_rays)
    return SearchSpace(None, given, given)


def list_parameters(space: SearchSpace) -> tuple[Parameter, ...]:
    """Return the parameters of a space, also those that a function of Optuna's form draws in every trial.

    Raises:
        SpaceError: The function draws other parameters for other values.
    """
    if space.parameters is not None:
        return space.parameters
    assert space.function is not None
    found = []
    for end in ("low", "high"):
        trial = RecordedTrial(end)
        space.function(trial)
        found.append(tuple(trial.parameters.values()))
    if found[0] != found[1]:
        raise SpaceError(
            what="hp_space draws other parameters, or from other ranges, in other trials",
            why="this library needs all of them before the first trial",
            fix="search with backend='optuna', or give a list of parameters",
        )
    return found[0]


def _is_list_of_parameters(returned: Mapping[str, Any]) -> bool:
    values = returned.values()
    return "parameters" in returned or (bool(returned) and all(is_domain(one) or _is_range(one) for one in values))


def _is_range(one: Any) -> bool:
    return isinstance(one, Mapping) and not {"low", "high", "choices"}.isdisjoint(one)


def _parse_description(given: Mapping[str, Any], args: Any, original: Any, takes_rays: bool) -> SearchSpace:
    if isinstance(given.get("parameters"), Mapping):
        given = {name: _translate_sweep(one) for name, one in given["parameters"].items()}
    if not given:
        raise SpaceError(what="the search space is empty", why="there is nothing to try", fix="add a parameter to it")
    parameters = tuple(
        read_domain(str(name), one, takes_rays=takes_rays)
        if is_domain(one)
        else Parameter.parse(str(name), one, present=read_value(args, str(name)))
        for name, one in given.items()
    )
    check_names(parameters)
    return SearchSpace(parameters, given=original)


def _translate_sweep(one: Any) -> Any:
    """Return a parameter of a wandb sweep as a description."""
    if not isinstance(one, Mapping):
        return one
    if "values" in one:
        return {"choices": list(one["values"])}
    if "value" in one:
        return {"choices": [one["value"]]}
    distribution = str(one.get("distribution", ""))
    translated = {
        "low": one.get("min"),
        "high": one.get("max"),
        "log": "log_uniform" in distribution,
        "step": one.get("q"),
    }
    if distribution.startswith("int"):
        translated["type"] = "int"
    elif distribution in ("uniform", "log_uniform_values"):
        translated["type"] = "float"
    return {name: value for name, value in translated.items() if value is not None}


def _read_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise SpaceError(what=f"there is no search space {path}", why="no such file", fix="name a YAML or JSON file")
    text = path.read_text("utf-8")
    try:
        content = json.loads(text) if path.suffix == ".json" else _parse_yaml(text)
    except ValueError as error:
        raise SpaceError(
            what=f"the search space {path} cannot be read", why=str(error), fix="correct the file"
        ) from None
    if not isinstance(content, Mapping):
        raise SpaceError(
            what=f"{path} holds no search space",
            why=f"it holds {type(content).__name__}",
            fix="one line per parameter: 'learning_rate: {low: 1.0e-5, high: 1.0e-3, log: true}'",
        )
    return content


def _parse_yaml(text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 - optional
    except ImportError:
        raise SpaceError(
            what="a search space in YAML needs PyYAML",
            why="it is not installed",
            fix="pip install 'ostinato[yaml]', or write the space as JSON",
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
