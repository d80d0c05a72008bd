"""The names of experiment trackers in `report_to`, and whether their packages are installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from ..core.errors import ConfigError, NotSupportedError
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
}
# Trackers of transformers that are not supported.
UNSUPPORTED = ("azure_ml", "codecarbon", "dagshub", "flyte", "kubeflow")


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
    if name not in KNOWN:
        return name in find_third_party()
    package = KNOWN[name][0]
    return package is None or find_spec(package) is not None


def list_installed() -> list[str]:
    """Return every tracker that can be used: what `report_to="all"` selects."""
    return [name for name in [*KNOWN, *sorted(find_third_party())] if is_installed(name)]


def find_problem(name: object) -> ConfigError | None:
    """Return what is wrong with a name in `report_to`; None if there is such a tracker, installed or not."""
    if name in KNOWN or name in find_third_party():
        return None
    if name in UNSUPPORTED:
        return NotSupportedError(
            what=f"report_to={name!r} is not supported",
            why="there is no callback for it",
            fix="pass a callback of your own in callbacks=[...]",
        )
    names = [*KNOWN, *sorted(find_third_party())]
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
    return TrackerMissing(
        what=f"report_to={name!r} needs the package {KNOWN[name][1]}, which is not installed",
        why="the packages of trackers are optional and not installed with this library",
        fix=f"pip install {KNOWN[name][1]}; or report_to='none'",
    )
