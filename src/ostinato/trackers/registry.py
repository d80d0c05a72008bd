"""Find the callbacks of trackers by the names that `report_to` takes, and build them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..arguments import tracker_names
from ..callbacks.events import TrainerCallback, is_callback_of

_MODULES = {
    "tensorboard": ("tensorboard", "TensorBoardCallback"),
    "wandb": ("wandb", "WandbCallback"),
    "mlflow": ("mlflow", "MLflowCallback"),
    "trackio": ("trackio", "TrackioCallback"),
    "csv": ("files", "CsvCallback"),
    "jsonl": ("files", "JsonlCallback"),
    "comet_ml": ("comet", "CometCallback"),
    "clearml": ("clearml", "ClearMLCallback"),
    "dvclive": ("dvclive", "DVCLiveCallback"),
    "neptune": ("neptune", "NeptuneCallback"),
    "swanlab": ("swanlab", "SwanLabCallback"),
    "codecarbon": ("codecarbon", "CodeCarbonCallback"),
}


def find_callback_class(name: str) -> Any:
    """Return the callback class of a name in `report_to`; of another package's, what its entry point names.

    >>> find_callback_class("csv").__name__
    'CsvCallback'
    """
    if name in tracker_names.added:
        return tracker_names.added[name]
    if name in _MODULES:
        home, callback = _MODULES[name]
        return getattr(import_module(f".{home}", __package__), callback)
    if name in tracker_names.BY_TRANSFORMERS:
        if find_spec("transformers") is None:
            raise tracker_names.make_missing_error(name)
        return getattr(import_module("transformers.integrations"), tracker_names.BY_TRANSFORMERS[name][0])
    problem = tracker_names.find_problem(name)
    if problem is not None:
        raise problem
    return tracker_names.find_third_party()[name].load()


def build_trackers(report_to: Any, given: Iterable[Any] | None) -> list[TrainerCallback]:
    """Return a callback for each tracker, except for those that the user has passed."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    found: list[TrainerCallback] = []
    for name in names:
        if name == "none":
            continue
        known = name in tracker_names.KNOWN or name in tracker_names.BY_TRANSFORMERS
        if known and not tracker_names.is_installed(name):
            raise tracker_names.make_missing_error(name)
        kind = find_callback_class(name)
        if not (isinstance(kind, type) and any(is_callback_of(one, kind) for one in given or ())):
            found.append(kind())
    return found


# ---- the names of transformers.integrations -------------------------------------------------------------------------


def get_available_reporting_integrations() -> list[str]:
    """Return the trackers that are installed: what `report_to="all"` means.

    >>> "csv" in get_available_reporting_integrations()
    True
    """
    return tracker_names.list_installed()


def get_reporting_integration_callbacks(report_to: list[str] | str | None) -> list[Any]:
    """Return the callback classes of the names in `report_to`.

    Args:
        report_to: The names, or one; "none" and None select none, "all" those that are installed.

    Returns:
        The classes, in the order of the names.

    >>> [found.__name__ for found in get_reporting_integration_callbacks(["csv"])]
    ['CsvCallback']
    """
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    if names == ["all"]:
        names = tracker_names.list_installed()
    return [find_callback_class(name) for name in names if name != "none"]


class _Callbacks(MutableMapping[str, Any]):
    """Maps every name in `report_to` to its callback class, which is imported on access.

    A class that a script sets here is used for its name, which may be a new one.
    """

    def __getitem__(self, name: str) -> Any:
        if name not in list(self):
            raise KeyError(name)
        return find_callback_class(name)

    def __setitem__(self, name: str, callback: Any) -> None:
        tracker_names.added[name] = callback

    def __delitem__(self, name: str) -> None:
        del tracker_names.added[name]

    def __iter__(self) -> Iterator[str]:
        others = [*sorted(tracker_names.find_third_party()), *tracker_names.added]
        return iter(dict.fromkeys([*_MODULES, *tracker_names.BY_TRANSFORMERS, *others]))

    def __len__(self) -> int:
        return len(list(iter(self)))


INTEGRATION_TO_CALLBACK: MutableMapping[str, Any] = _Callbacks()


def hp_params(trial: Any) -> Any:
    """Return the hyper-parameters of a trial, whichever library made it."""
    return getattr(trial, "params", trial)


def _check_of(package: str) -> Callable[[], bool]:
    return lambda: find_spec(package) is not None


# Functions of transformers that scripts call before they use a library.
is_clearml_available = _check_of("clearml")
is_codecarbon_available = _check_of("codecarbon")
is_comet_available = _check_of("comet_ml")
is_dvclive_available = _check_of("dvclive")
is_mlflow_available = _check_of("mlflow")
is_neptune_available = _check_of("neptune")
is_optuna_available = _check_of("optuna")
is_swanlab_available = _check_of("swanlab")
is_tensorboard_available = _check_of("tensorboard")
is_trackio_available = _check_of("trackio")
is_wandb_available = _check_of("wandb")
