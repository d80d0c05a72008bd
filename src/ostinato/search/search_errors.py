"""The mistakes that end a search before its first trial, or with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from ..arguments.name_suggestion import suggest_name
from ..core.errors import ConfigError, MetricError, MissingPackageError


class NoModelInitError(ConfigError, RuntimeError):
    """A search without `model_init` (transformers raises RuntimeError here)."""


class EngineMissingError(MissingPackageError, RuntimeError):
    """A search library that is not installed (transformers raises RuntimeError here)."""


class ObjectiveError(MetricError, KeyError):
    """An objective that is not among the metrics (Python raises KeyError here)."""

    def __str__(self) -> str:  # KeyError would print its own form
        return Exception.__str__(self)


class AllTrialsFailedError(ConfigError, RuntimeError):
    """A search of which no trial came to an end."""


def no_model_init() -> NoModelInitError:
    return NoModelInitError(
        what="To use hyperparameter search, you need to pass your model through a model_init function.",
        why="every trial trains a new model, and this Trainer was given one that exists",
        fix="Trainer(model_init=make_model, ...), where make_model() returns a new model",
    )


def unknown_backend(name: Any, known: Iterable[str]) -> ConfigError:
    near = suggest_name(str(name), list(known))
    return ConfigError(
        what=f"{name} is not a valid HPSearchBackend, please select one of {list(known)}",
        why="backend names the library that proposes the values",
        fix=f"did you mean {near!r}?" if near else "leave backend out, and an installed one is taken",
    )


def engine_missing(title: str, install: str, why: str = "it is not installed") -> EngineMissingError:
    return EngineMissingError(what=f"the search needs {title}", why=why, fix=f"pip install {install}")


def wrong_direction(direction: Any) -> ConfigError:
    return ConfigError(
        what=f"direction={direction!r}",
        why="an objective is minimized or maximized",
        fix='direction="minimize", direction="maximize", or a list of them for several objectives',
    )


def wrong_option(name: str, given: Any, wanted: str, fix: str) -> ConfigError:
    return ConfigError(what=f"{name}={given!r}", why=f"it is {wanted}", fix=fix)


def unknown_option(name: str, known: Iterable[str], engine: str) -> ConfigError:
    near = suggest_name(name, list(known))
    return UnknownOptionError(
        what=f"hyperparameter_search() got an unexpected argument {name!r}",
        why=f"{engine} takes {', '.join(known)}",
        fix=f"did you mean {near!r}?" if near else "leave it out",
    )


class UnknownOptionError(ConfigError, TypeError):
    """An option that the search library does not have (Python raises TypeError here)."""


def check_num_trials(num_trials: Any, *, is_limited: bool = False) -> None:
    """Raise unless there is a number of trials, or another limit."""
    if not (is_limited if num_trials is None else isinstance(num_trials, Integral) and int(num_trials) >= 1):
        raise no_trials(num_trials)


def no_trials(num_trials: Any) -> ConfigError:
    why = (
        "neither n_trials nor timeout is set"
        if num_trials is None
        else f"n_trials={num_trials!r} is no number of them"
    )
    return ConfigError(what="the search has no trials", why=why, fix="set n_trials to 1 or more, or a timeout")


def objective_missing(name: str, metrics: Iterable[str]) -> ObjectiveError:
    known = sorted(metrics)
    near = suggest_name(name, known)
    return ObjectiveError(
        what=f"the objective {name!r} is not among the evaluation's metrics",
        why=f"an evaluation returned {', '.join(known)}",
        fix=f"did you mean {near!r}?" if near else "name one of them, or let compute_metrics return it",
    )


def wrong_objective(given: Any) -> ConfigError:
    return ConfigError(
        what=f"compute_objective={given!r}",
        why="it says which number of an evaluation a search is about",
        fix='pass a function of the metrics, or their names: compute_objective="f1"',
    )


def not_numbers(found: Any) -> ObjectiveError:
    return ObjectiveError(
        what=f"compute_objective returned {found!r}",
        why="an objective is a number, or a list of numbers for several directions",
        fix='return one: lambda metrics: metrics["eval_loss"]',
    )


def wrong_number_of_objectives(found: int, directions: Iterable[str]) -> ObjectiveError:
    wanted = list(directions)
    there_are = "there is 1 direction" if len(wanted) == 1 else f"there are {len(wanted)} directions"
    return ObjectiveError(
        what=f"compute_objective returned {found} number{'' if found == 1 else 's'}, and {there_are}",
        why=f"direction={wanted if len(wanted) > 1 else wanted[0]!r} has one for each objective",
        fix="return as many numbers as there are directions",
    )


def all_failed(reasons: Mapping[int, str]) -> AllTrialsFailedError:
    first = next(iter(reasons.values()), "no trial has ended")
    return AllTrialsFailedError(
        what=f"no trial of the search is complete: {len(reasons)} failed" if reasons else "no trial is complete",
        why=first,
        fix="mend what raises it",
    )


def other_space(study: str, differing: Iterable[str], place: Any) -> ConfigError:
    return ConfigError(
        what=f"the study {study!r} in {place} is not finished, and belongs to another search",
        why=f"different: {'; '.join(differing)}",
        fix="go on with the search that began it, or start another: study_name='...', or another output_dir",
    )
