"""Log to Comet."""

from __future__ import annotations

import os
from typing import Any

from ..core.notices import note_once
from ..core.state import TrainerControl, TrainerState
from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink
from .variables import is_set

_MODES = ("get_or_create", "get", "create")


class CometSink(Sink):
    """Logs to an experiment of Comet, which its own variables (`COMET_MODE`, `COMET_PROJECT_NAME`, …) configure."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.experiment: Any = None

    def start(self, run: RunInfo) -> str | None:
        options: dict[str, Any] = {"experiment_key": run.run_id, "mode": "get"} if run.run_id is not None else {}
        mode = _read_mode()
        if mode and run.run_id is None:
            options["mode"] = mode
        self.experiment = self.module.start(**options)
        if run.run_id is None:
            if run.trial or run.name:
                self.experiment.set_name(run.trial or run.name)
            self.experiment.log_parameters(run.hyper_parameters, prefix="args")
            if run.model_config:
                self.experiment.log_parameters(run.model_config, prefix="config")
        return self.experiment.get_key()

    def log(self, numbers: Numbers, step: int) -> None:
        self.experiment.log_metrics(dict(numbers), step=step)

    def finish(self) -> None:
        self.experiment.end()


def _read_mode() -> str:
    return os.environ.get("COMET_MODE", "").lower()


class CometCallback(TrackerCallback):
    """Logs to Comet; needs the package comet-ml.

    >>> TrainingArguments("out", report_to="comet_ml")  # doctest: +SKIP
    """

    tracker = "comet_ml"
    logs_predictions = True
    variables = {
        "COMET_MODE": "get_or_create, get or create: whether an experiment continues or begins",
        "COMET_START_ONLINE": "0: the experiment is written to files",
        "COMET_PROJECT_NAME": "the project of a new experiment",
        "COMET_LOG_ASSETS": "true: the files of output_dir are uploaded after training",
    }

    def open(self) -> CometSink:
        return CometSink(self.package())

    def setup(self, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        mode = _read_mode()
        if mode and mode not in _MODES:
            self._is_off = True
            note_once(f"COMET_MODE={mode} is none of {', '.join(_MODES)}: nothing is sent to Comet")
            return
        super().setup(args, state, model, **kwargs)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if isinstance(self._sink, CometSink) and is_set("COMET_LOG_ASSETS"):
            with self._report_errors("did not accept the files of output_dir"):
                self._sink.experiment.log_asset_folder(
                    args.output_dir, recursive=True, log_file_name=True, step=state.global_step
                )
        super().on_train_end(args, state, control, **kwargs)
