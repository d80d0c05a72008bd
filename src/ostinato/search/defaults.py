"""The default search space and objective, under the names that transformers has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError

# Searched without `hp_space`. Not the seed: the best seed of a few says nothing about the others.
PLAIN_SPACE: dict[str, Any] = {
    "learning_rate": {"low": 1e-6, "high": 1e-4, "log": True},
    "num_train_epochs": {"low": 1, "high": 5},
    "per_device_train_batch_size": [4, 8, 16, 32, 64],
}
_MEASUREMENTS = ("epoch",)
_MEASUREMENT_ENDINGS = ("_runtime", "_per_second", "_compilation_time", "_model_preparation_time")


def default_compute_objective(metrics: dict[str, float]) -> float:
    """Return the sum of the evaluation's metrics, or the loss if it is the only one.

    Args:
        metrics: The metrics of an evaluation. Times and speeds are left out.

    Returns:
        The objective. With one metric other than the loss, that metric; to minimize, pass a function of your own.

    >>> default_compute_objective({"eval_loss": 0.5, "eval_runtime": 2.0, "epoch": 1.0})
    0.5
    >>> default_compute_objective({"eval_loss": 0.5, "eval_accuracy": 0.75, "eval_f1": 0.5})
    1.25
    """
    return sum_metrics(metrics)


def sum_metrics(metrics: Mapping[str, Any]) -> Any:
    """Return what `default_compute_objective` does, for metrics that are only read."""
    rest = {name: value for name, value in metrics.items() if not is_measurement(name) and name != "eval_loss"}
    return sum(rest.values()) if rest else metrics["eval_loss"]


def is_measurement(name: str) -> bool:
    """Return whether a metric tells the time, the speed or the position of an evaluation, not its result."""
    return name in _MEASUREMENTS or name.endswith(_MEASUREMENT_ENDINGS)


def default_hp_space_optuna(trial: Any) -> dict[str, Any]:
    """Return transformers' default space, drawn from an Optuna trial. It also searches the seed.

    Args:
        trial: The trial.

    Returns:
        The drawn values by the name of their argument.

    >>> trainer.hyperparameter_search(hp_space=default_hp_space_optuna)  # doctest: +SKIP
    """
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-6, 1e-4, log=True),
        "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 5),
        "seed": trial.suggest_int("seed", 1, 40),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [4, 8, 16, 32, 64]),
    }


def default_hp_space_ray(trial: Any) -> dict[str, Any]:
    """Return transformers' default space for Ray Tune. It also searches the seed.

    Args:
        trial: Not used.

    Returns:
        The distributions by the name of their argument.

    Raises:
        ConfigError: Ray Tune is not installed.

    >>> trainer.hyperparameter_search(hp_space=default_hp_space_ray, backend="ray")  # doctest: +SKIP
    """
    try:
        from ray import tune  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            what="default_hp_space_ray needs Ray Tune", why=str(error), fix="pip install 'ostinato[ray]'"
        ) from None
    return {
        "learning_rate": tune.loguniform(1e-6, 1e-4),
        "num_train_epochs": tune.choice(list(range(1, 6))),
        "seed": tune.uniform(1, 40),
        "per_device_train_batch_size": tune.choice([4, 8, 16, 32, 64]),
    }


def default_hp_space_wandb(trial: Any) -> dict[str, Any]:
    """Return transformers' default sweep for wandb. It also searches the seed.

    Args:
        trial: Not used.

    Returns:
        The configuration of a sweep.

    >>> sorted(default_hp_space_wandb(None)["parameters"])[0]
    'learning_rate'
    """
    return {
        "method": "random",
        "metric": {"name": "objective", "goal": "minimize"},
        "parameters": {
            "learning_rate": {"distribution": "uniform", "min": 1e-6, "max": 1e-4},
            "num_train_epochs": {"distribution": "int_uniform", "min": 1, "max": 6},
            "seed": {"distribution": "int_uniform", "min": 1, "max": 40},
            "per_device_train_batch_size": {"values": [4, 8, 16, 32, 64]},
        },
    }
