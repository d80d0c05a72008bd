"""Log to Comet."""

from __future__ import annotations

from typing import Any

from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink


class CometSink(Sink):
    """Logs to an experiment of Comet, which its own variables (`COMET_MODE`, `COMET_PROJECT_NAME`, …) configure."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.experiment: Any = None

    def start(self, run: RunInfo) -> str | None:
        options: dict[str, Any] = {"experiment_key": run.run_id, "mode": "get"} if run.run_id is not None else {}
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


class CometCallback(TrackerCallback):
    """Logs to Comet; needs the package comet-ml."""

    tracker = "comet_ml"
    logs_predictions = True

    def open(self) -> CometSink:
        return CometSink(self.package())
