"""The names of experiment trackers in `report_to`, and whether their packages are installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from ..core.errors import ConfigError
from .name_suggestion import suggest_name

GROUP = "ostinato.trackers"

# The package to import (None: the standard library is enough), and its name on PyPI.
KNOWN: dict[str, tuple[str | None, str]] = {
    "tensorboard": ("tensorboard", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "trackio": ("trackio", "trackio"),
    "csv": (None, ""),
    "jsonl": (None, ""),
    "comet_ml": ("comet_ml", "comet-ml"),
    "clearml": ("clearml", "clearml"),
    "dvclive": ("dvclive", "dvclive"),
    "neptune": ("neptune", "neptune"),
    "swanlab": ("swanlab", "swanlab"),
    "codecarbon": ("codecarbon", "codecarbon"),
}
# Trackers whose callback is that of transformers: its name, the package to import (None: no other) and that on PyPI.
BY_TRANSFORMERS: dict[str, tuple[str, str | None, str]] = {
    "azure_ml": ("AzureMLCallback", "azureml.core", "azureml-core"),
    "dagshub": ("DagsHubCallback", "dagshub", "dagshub mlflow"),
    "flyte": ("FlyteCallback", "flytekit", "flytekit"),
    "kubeflow": ("KubeflowCallback", None, ""),
}
# Set by Kubeflow in the processes of a training job.
KUBEFLOW_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"

# The callbacks that a script has set, by name, in `INTEGRATION_TO_CALLBACK`.
added: dict[str, Callable[[], Any]] = {}


class TrackerMissing(ConfigError, RuntimeError):
    """A tracker whose package is not installed (transformers raises RuntimeError here)."""


def find_third_party() -> dict[str, EntryPoint]:
    """Return the trackers that installed packages register, by name."""
    return {found.name: found for found in entry_points(group=GROUP)}


def is_installed(name: str) -> bool:
    """Return whether a tracker can be used.

    >>> is_installed("csv"), is_installed("no such tracker")
    (True, False)
    """
    if name in added:
        return True
    if name == "kubeflow" and not is_in_kubeflow():
        return False
    if name in BY_TRANSFORMERS:
        return not _list_missing(name)
    if name not in KNOWN:
        return name in find_third_party()
    return _is_importable(KNOWN[name][0])


def is_in_kubeflow() -> bool:
    """Return whether this process belongs to a training job of Kubeflow that collects its progress."""
    is_disabled = os.environ.get("DISABLE_KUBEFLOW_INTEGRATION", "").lower() in ("1", "true", "yes", "on")
    return bool(os.environ.get(KUBEFLOW_VARIABLE)) and not is_disabled


def list_installed() -> list[str]:
    """Return every tracker that can be used: what `report_to="all"` selects."""
    return [name for name in _list_names() if is_installed(name)]


def _list_names() -> list[str]:
    return [*KNOWN, *BY_TRANSFORMERS, *sorted(find_third_party())]


def _is_importable(package: str | None) -> bool:
    try:
        return package is None or find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        return False
    except ValueError:  # a stand-in that was put among the loaded modules has no spec
        return True


def _list_missing(name: str) -> list[str]:
    """Return what has to be installed for a tracker, by its names on PyPI."""
    if name in KNOWN:
        return [KNOWN[name][1]]
    _, package, requirement = BY_TRANSFORMERS[name]
    return ([] if _is_importable("transformers") else ["transformers"]) + (
        [] if _is_importable(package) else [requirement]
    )


def find_problem(name: object) -> ConfigError | None:
    """Return what is wrong with a name in `report_to`; None if there is such a tracker, installed or not."""
    names = list(dict.fromkeys([*_list_names(), *added]))
    if name in names:
        return None
    meant = suggest_name(str(name), [*names, "all", "none"])
    return ConfigError(
        what=f"report_to={name!r} is not a tracker",
        why=f"there are {', '.join(names)}; 'all' selects the installed ones",
        fix=f"did you mean {meant!r}?"
        if meant is not None
        else f"leave it out, or install the package that registers it under the entry points {GROUP!r}",
    )


def make_missing_error(name: str) -> TrackerMissing:
    """Return the error for a tracker whose package is not installed."""
    missing = " ".join(_list_missing(name))
    if not missing:
        return TrackerMissing(
            what="report_to='kubeflow' outside of a training job of Kubeflow",
            why=f"{KUBEFLOW_VARIABLE}, which names the server to report to, is not set, or the tracker is disabled",
            fix="leave it out: inside of such a job it is added",
        )
    return TrackerMissing(
        what=f"report_to={name!r} needs the package {missing}, which is not installed",
        why="the packages of trackers are optional and not installed with this library",
        fix=f"pip install {missing}; or report_to='none'",
    )
