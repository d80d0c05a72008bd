"""The beginning of a trial in a trainer: its values become arguments, and its run gets a directory."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from ..arguments.name_suggestion import suggest_name
from ..arguments.trial_values import (
    ArgumentValues,
    has_argument,
    list_names,
    make_unknown_value_error,
    set_values,
)
from ..arguments.validate import find_wrong_values, raise_problems
from ..core.choices import HPSearchBackend
from ..core.errors import ConfigError, OstinatoError
from ..core.notices import note_once, warn
from .fixed_trial import ANNOTATIONS, FixedTrial
from .host import SearchHost
from .search_space import SearchSpace
from .session import get_params


def set_up_trial(trainer: SearchHost, trial: Any) -> None:
    """Draw the values of a trial, and set them as arguments."""
    values = draw_values(trainer, trial)
    if trainer._search is not None:
        trainer._search.values = values
    unknown = set_values(trainer.args, values)
    if unknown:
        check_unknown_names(trainer, unknown)
    trainer.create_accelerator_and_postprocess()
    trainer._trial_directory = None if trainer._search is None else _choose_directory(trainer, trial)


def take_trial(trainer: SearchHost, trial: Any) -> Any:
    """Return the trial to train: outside of a search, a dict of values also has the methods of a trial."""
    if trainer._search is not None or type(trial) is not dict:
        return trial
    known = {name: value for name, value in trial.items() if name not in ANNOTATIONS}
    return FixedTrial(known if len(trial) - len(known) == len(ANNOTATIONS) else trial)


def draw_values(trainer: SearchHost, trial: Any) -> dict[str, Any]:
    """Return the values of the arguments in a trial, by name. After a search, its space is asked for them again."""
    space: Any = trainer.hp_space
    is_optunas = callable(getattr(trial, "suggest_float", None)) and not isinstance(trial, FixedTrial)
    if space is not None and (trainer.hp_search_backend == HPSearchBackend.OPTUNA or is_optunas):
        return dict(space(trial) or {})
    params = get_params(trial)
    return space.translate(params) if isinstance(space, SearchSpace) else params


def takes_trial(trainer: SearchHost) -> bool:
    """Return whether the model is made from the trial."""
    if trainer._is_overridden("call_model_init") or trainer.model_init is None:
        return True
    return bool(inspect.signature(trainer.model_init).parameters)


def check_unknown_names(trainer: SearchHost, names: list[str]) -> None:
    """Raise for a name that is no argument, unless `model_init` or a subclass may use it.

    Raises:
        UnknownArgumentError: Its values would have no effect.
    """
    args = trainer.args
    for name in names:
        if has_argument(args, name):
            continue
        if not takes_trial(trainer) and not trainer._is_overridden("_hp_search_setup"):
            raise make_unknown_value_error(args, name)
        near = suggest_name(name, list_names(args))
        if near is not None:
            warn(f"the search space has {name!r}, which is no argument; did you mean {near!r}?", key=f"space {name}")
        else:
            note_once(f"the search space has {name!r}, which is no argument: it is for model_init")


def check_samples(trainer: SearchHost, space: SearchSpace) -> None:
    """Raise for a name or a value of a space that the arguments do not take, before a trial has it.

    What arguments say of one another is left to the trials: another value may go with it.
    """
    samples = space.list_samples()
    while (values := _draw_sample(samples)) is not None:
        before = ArgumentValues(trainer.args)
        try:
            unknown = set_values(trainer.args, values)
            raise_problems(find_wrong_values(trainer.args))
        finally:
            before.restore()
        check_unknown_names(trainer, unknown)


def _draw_sample(samples: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return next(samples, None)
    except OstinatoError:
        raise
    except Exception as error:  # the user's function needs a real trial
        note_once(f"hp_space cannot be checked before the first trial: {type(error).__name__}: {error}")
        return None


def name_trial(trainer: SearchHost, trial: Any, number: int) -> str:
    """Return the name of a trial: that of `hp_name`, or run-N."""
    if trainer.hp_name is None:
        return f"run-{number}"
    name = str(trainer.hp_name(trial))
    if not name or PurePath(name).is_absolute() or ".." in PurePath(name).parts or name == ".":
        raise ConfigError(
            what=f"hp_name returned {name!r}",
            why="the name of a trial is that of its directory in output_dir",
            fix="return a name without '..', relative to output_dir",
        )
    return name


def _choose_directory(trainer: SearchHost, trial: Any) -> Path:
    """Return the directory of a trial, which no other trial of the study has."""
    session = trainer._search
    name = name_trial(trainer, trial, session.number)
    taken = session.directory.read_run(session.number).get("directory") if trainer.is_world_process_zero() else None
    if trainer.is_world_process_zero() and name != taken and trainer.hp_name is not None:
        others = {one.directory for one in _list_trials(session) if one.number != session.number}
        name = name if name not in others else f"{name}-{session.number}"
    if trainer.strategy.size > 1:
        name = trainer.strategy.broadcast_object(name)
    return trainer._output_path / name


def _list_trials(session: Any) -> list[Any]:
    try:
        return session.read().trials
    except OSError:  # nothing is recorded yet
        return []
