"""Experiment trackers, found by the names that `report_to` takes.

Trackers are thin callbacks over one small interface (sink.py). Every library is optional, imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..arguments import tracker_names

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
}
_MODULE_OF = {callback: home for home, callback in _MODULES.values()}
_MODULE_OF |= {"TrackerCallback": "base", "rewrite_logs": "base", "Sink": "sink", "RunInfo": "sink"}


def find_callback_class(name: str) -> Any:
    """Return the callback class of a name in `report_to`; of another package's, what its entry point names.

    >>> find_callback_class("csv").__name__
    'CsvCallback'
    """
    if name in _MODULES:
        home, callback = _MODULES[name]
        return getattr(import_module(f".{home}", __name__), callback)
    problem = tracker_names.find_problem(name)
    if problem is not None:
        raise problem
    return tracker_names.find_third_party()[name].load()


def get_available_reporting_integrations() -> list[str]:
    """Return the trackers that are installed: what `report_to="all"` means."""
    return tracker_names.list_installed()


def get_reporting_integration_callbacks(report_to: list[str]) -> list[Any]:
    """Return the callback classes of the names in `report_to`."""
    return [find_callback_class(name) for name in report_to]


class _Callbacks(Mapping[str, Any]):
    """Maps every name in `report_to` to its callback class, which is imported on access."""

    def __getitem__(self, name: str) -> Any:
        if name not in list(self):
            raise KeyError(name)
        return find_callback_class(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*_MODULES, *(name for name in sorted(tracker_names.find_third_party()) if name not in _MODULES)])

    def __len__(self) -> int:
        return len(list(iter(self)))


INTEGRATION_TO_CALLBACK: Mapping[str, Any] = _Callbacks()


def hp_params(trial: Any) -> Any:
    """Return the hyper-parameters of a trial, whichever library made it."""
    return getattr(trial, "params", trial)


# Functions of transformers that scripts call before they use a library.
_AVAILABILITY_CHECKS = {
    "is_clearml_available": "clearml",
    "is_codecarbon_available": "codecarbon",
    "is_comet_available": "comet_ml",
    "is_dvclive_available": "dvclive",
    "is_mlflow_available": "mlflow",
    "is_neptune_available": "neptune",
    "is_optuna_available": "optuna",
    "is_swanlab_available": "swanlab",
    "is_tensorboard_available": "tensorboard",
    "is_trackio_available": "trackio",
    "is_wandb_available": "wandb",
}


def __getattr__(name: str) -> Any:
    if name in _AVAILABILITY_CHECKS:
        package = _AVAILABILITY_CHECKS[name]
        return lambda: find_spec(package) is not None
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
