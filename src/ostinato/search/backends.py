"""The libraries that propose values, under the names that transformers has for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

from ..arguments import usage_errors
from ..core.choices import HPSearchBackend
from ..core.notices import note_once
from ..core.outputs import BestRun
from . import objective_value, search_errors
from .defaults import (
    PLAIN_SPACE,
    default_compute_objective,
    default_hp_space_optuna,
    default_hp_space_ray,
    default_hp_space_wandb,
)
from .display import format_params, format_values
from .host import SearchHost
from .objective_value import NamedObjective
from .search_space import SearchSpace, read_space
from .session import SearchSession, check_directions, keep_session
from .trial_setup import check_samples

Result = BestRun | list[BestRun]


# ---- the libraries -------------------------------------------------------------------------------------------------


def run_hp_search_optuna(trainer: Any, n_trials: int | None, direction: str | Sequence[str], **kwargs: Any) -> Result:
    """Search with Optuna.

    Args:
        trainer: The trainer, with `hp_space`, `hp_name` and `compute_objective` set.
        n_trials: The number of trials of the study, in all.
        direction: "minimize" or "maximize", or one for each objective.
        **kwargs: Optuna's own: storage, sampler, pruner, study_name, load_if_exists, timeout, n_jobs, gc_after_trial.

    Returns:
        The best trial, or all that no other surpasses if there are several objectives.

    Raises:
        ConfigError: There are neither trials nor a timeout.

    >>> run_hp_search_optuna(trainer, n_trials=10, direction="minimize")  # doctest: +SKIP
    """
    from . import optuna_engine  # noqa: PLC0415 - loads Optuna

    options = optuna_engine.StudyOptions.parse(kwargs)
    search_errors.check_num_trials(n_trials, is_limited=options.timeout is not None)
    with _open_session(trainer, n_trials, direction, HPSearchBackend.OPTUNA) as session:
        best = optuna_engine.run(trainer, session, options)
        _end_search(session)
        return best


def run_hp_search_ray(trainer: Any, n_trials: int | None, direction: str | Sequence[str], **kwargs: Any) -> Result:
    """Search with Ray Tune, on the cluster that `ray.init` has connected to, or on this machine.

    Args:
        trainer: The trainer, with `hp_space`, `hp_name` and `compute_objective` set.
        n_trials: The number of trials.
        direction: "minimize" or "maximize", or one for each objective.
        **kwargs: Ray's own, as `ray.tune.run` takes them: resources_per_trial, scheduler, search_alg, ...

    Returns:
        The best trial.

    Raises:
        ConfigError: `n_trials` is not at least 1.

    >>> run_hp_search_ray(trainer, n_trials=10, direction="minimize")  # doctest: +SKIP
    """
    from . import ray_engine  # noqa: PLC0415 - loads Ray

    search_errors.check_num_trials(n_trials)
    with _open_session(trainer, n_trials, direction, HPSearchBackend.RAY) as session:
        best = ray_engine.run(trainer, session, kwargs)
        _end_search(session)
        return best


def run_hp_search_wandb(trainer: Any, n_trials: int | None, direction: str | Sequence[str], **kwargs: Any) -> Result:
    """Search with a sweep of wandb.

    Args:
        trainer: The trainer, with `hp_space`, `hp_name` and `compute_objective` set.
        n_trials: The number of trials.
        direction: "minimize" or "maximize".
        **kwargs: sweep_id, name, project, entity, and metric, the name of the objective in the sweep.

    Returns:
        The best trial.

    >>> run_hp_search_wandb(trainer, n_trials=10, direction="minimize")  # doctest: +SKIP
    """
    from . import wandb_engine  # noqa: PLC0415 - loads wandb

    search_errors.check_num_trials(n_trials)
    with _open_session(trainer, n_trials, direction, HPSearchBackend.WANDB) as session:
        best = wandb_engine.run(trainer, session, kwargs)
        _end_search(session)
        return best


class HyperParamSearchBackendBase:
    """A library that proposes values.

    >>> sorted(backend.name for backend in ALL_HYPERPARAMETER_SEARCH_BACKENDS.values())
    ['optuna', 'ray', 'wandb']
    """

    name: ClassVar[str]
    pip_package: ClassVar[str | None] = None
    _modules: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def is_available(cls) -> bool:
        """Return whether it is installed."""
        return all(find_spec(module) is not None for module in cls._modules)

    def run(self, trainer: Any, n_trials: int, direction: str, **kwargs: Any) -> Any:
        """Search with a trainer.

        Args:
            trainer: The trainer.
            n_trials: The number of trials.
            direction: "minimize" or "maximize", or a list of them.
            **kwargs: What is the library's own.

        Returns:
            The best trial.

        Raises:
            NotImplementedError: The class does not override it.
        """
        raise NotImplementedError

    def default_hp_space(self, trial: Any) -> dict[str, Any]:
        """Return transformers' default space in the form of this library.

        Args:
            trial: The trial.

        Returns:
            The space: drawn values for Optuna, a description of them for the others.

        Raises:
            NotImplementedError: The class does not override it.
        """
        raise NotImplementedError

    def ensure_available(self) -> None:
        """Raise if the library is not installed.

        Raises:
            EngineMissingError: It is not; the error says how to install it.
        """
        if not self.is_available():
            extra = {"optuna": "search", "ray": "ray", "wandb": "trackers"}[self.name]
            raise search_errors.engine_missing(self.name, f"'ostinato[{extra}]'")

    @classmethod
    def pip_install(cls) -> str:
        """Return the command that installs the library."""
        return f"`pip install {cls.pip_package or cls.name}`"


class OptunaBackend(HyperParamSearchBackendBase):
    """Optuna, in this process.

    >>> OptunaBackend.name
    'optuna'
    >>> trainer.hyperparameter_search(backend="optuna", n_trials=10)  # doctest: +SKIP
    """

    name = "optuna"
    _modules = ("optuna",)

    def run(self, trainer: Any, n_trials: int | None, direction: Any, **kwargs: Any) -> Any:
        return run_hp_search_optuna(trainer, n_trials, direction, **kwargs)

    def default_hp_space(self, trial: Any) -> dict[str, Any]:
        return default_hp_space_optuna(trial)


class RayTuneBackend(HyperParamSearchBackendBase):
    """Ray Tune, on a cluster.

    >>> RayTuneBackend.name
    'ray'
    >>> trainer.hyperparameter_search(backend="ray", n_trials=10)  # doctest: +SKIP
    """

    name = "ray"
    pip_package = "'ray[tune]'"
    _modules = ("ray", "ray.tune", "pyarrow", "fsspec")

    @classmethod
    def is_available(cls) -> bool:
        return find_spec("ray") is not None and super().is_available()

    def run(self, trainer: Any, n_trials: int | None, direction: Any, **kwargs: Any) -> Any:
        return run_hp_search_ray(trainer, n_trials, direction, **kwargs)

    def default_hp_space(self, trial: Any) -> dict[str, Any]:
        return default_hp_space_ray(trial)


class WandbBackend(HyperParamSearchBackendBase):
    """A sweep of wandb.

    >>> WandbBackend.name
    'wandb'
    >>> trainer.hyperparameter_search(backend="wandb", n_trials=10)  # doctest: +SKIP
    """

    name = "wandb"
    _modules = ("wandb",)

    def run(self, trainer: Any, n_trials: int | None, direction: Any, **kwargs: Any) -> Any:
        return run_hp_search_wandb(trainer, n_trials, direction, **kwargs)

    def default_hp_space(self, trial: Any) -> dict[str, Any]:
        return default_hp_space_wandb(trial)


ALL_HYPERPARAMETER_SEARCH_BACKENDS: dict[HPSearchBackend, type[HyperParamSearchBackendBase]] = {
    HPSearchBackend(backend.name): backend for backend in (OptunaBackend, RayTuneBackend, WandbBackend)
}


def default_hp_search_backend() -> str:
    """Return the name of the first library that is installed: Optuna, Ray Tune, wandb.

    Raises:
        EngineMissingError: None is.

    >>> default_hp_search_backend()  # doctest: +SKIP
    'optuna'
    """
    for backend in ALL_HYPERPARAMETER_SEARCH_BACKENDS.values():
        if backend.is_available():
            return backend.name
    raise search_errors.engine_missing(
        "a library that proposes values", "'ostinato[search]'", "none of optuna, ray and wandb is installed"
    )


# ---- a search ------------------------------------------------------------------------------------------------------


def search(
    trainer: SearchHost,
    hp_space: Any,
    compute_objective: Any,
    n_trials: int | None,
    direction: str | Sequence[str],
    backend: Any,
    hp_name: Any,
    options: dict[str, Any],
) -> Result:
    """Check what was asked for, and search."""
    library = _choose_backend(backend)
    library.ensure_available()
    if hp_space is None:
        note_once(
            f"no hp_space: searching {', '.join(PLAIN_SPACE)}, and not the seed "
            f"(hp_space=default_hp_space_{library.name} searches it, as transformers does)"
        )
    if not trainer._makes_models():
        raise search_errors.no_model_init()
    _check_hp_name(hp_name)
    trainer.hp_search_backend = HPSearchBackend(library.name)
    trainer.hp_space, trainer.hp_name = hp_space, hp_name
    trainer.compute_objective = objective_value.choose_objective(compute_objective)
    try:
        return library.run(trainer, n_trials, direction, **options)  # type: ignore[arg-type]
    finally:
        trainer.hp_search_backend = None


def _check_hp_name(hp_name: Any) -> None:
    if hp_name is not None and not callable(hp_name):
        fix = 'hp_name=lambda trial: f"trial-{trial.number}"'
        raise search_errors.wrong_option("hp_name", hp_name, "no function of the trial", fix)


def _choose_backend(given: Any) -> HyperParamSearchBackendBase:
    known = {backend.value: kind for backend, kind in ALL_HYPERPARAMETER_SEARCH_BACKENDS.items()}
    name = default_hp_search_backend() if given is None else str(getattr(given, "value", given))
    if name not in known:
        raise search_errors.unknown_backend(name, known)
    return known[name]()


@contextlib.contextmanager
def _open_session(
    trainer: SearchHost, n_trials: int | None, direction: str | Sequence[str], backend: HPSearchBackend
) -> Iterator[SearchSession]:
    space, directions = check_search(trainer, direction)
    session = SearchSession(trainer, space, directions, n_trials, backend.value)
    with keep_session(session):
        yield session


def check_search(trainer: SearchHost, direction: str | Sequence[str]) -> tuple[SearchSpace, tuple[str, ...]]:
    """Return the space and the directions of a search, as far as they can be checked before its first trial."""
    directions = check_directions(direction)
    if not directions or any(one not in ("minimize", "maximize") for one in directions):
        raise search_errors.wrong_direction(direction)
    takes_rays = trainer.hp_search_backend == HPSearchBackend.RAY
    space = read_space(trainer.hp_space, trainer.args, takes_rays=takes_rays)
    check_samples(trainer, space)
    _check_objective(trainer, directions)
    return space, directions


def _check_objective(trainer: SearchHost, directions: Sequence[str]) -> None:
    """Raise if there is nothing to evaluate, or if no evaluation will return the objective."""
    if trainer.eval_dataset is None and not trainer._is_overridden("evaluate"):
        raise usage_errors.no_eval_dataset()
    objective = trainer.compute_objective
    if isinstance(objective, NamedObjective):
        if len(objective.names) != len(directions):
            raise search_errors.wrong_number_of_objectives(len(objective.names), directions)
        known = trainer._list_metric_names()
        missing = [name for name in objective.names if known is not None and name not in known]
        if missing:
            raise search_errors.objective_missing(missing[0], known or ())
    elif objective is default_compute_objective and len(directions) > 1:
        raise search_errors.wrong_number_of_objectives(1, directions)


def _end_search(session: SearchSession) -> None:
    """Print what is best."""
    session.trainer._searched = session.study
    if not session.is_leader:
        return
    best = session.read().find_best()
    if len(best) == 1:
        text = f"trial {best[0].number}, {format_values(best[0].values)}, {format_params(best[0].params)}"
        where = "" if best[0].weights is None else f"; weights in {session.directory.output_dir / best[0].weights}"
        session.display.end(f"best: {text}{where}")
    elif best:
        session.display.end(
            f"best: trials {', '.join(str(one.number) for one in best)}, none of which surpasses another"
        )
