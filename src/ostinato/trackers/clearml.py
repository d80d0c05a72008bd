"""Log to ClearML."""

from __future__ import annotations

import os
from typing import Any

from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink


class ClearMLSink(Sink):
    """Logs to the current task of ClearML, or to one that it makes and closes (CLEARML_PROJECT, CLEARML_TASK)."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.task: Any = None
        self._closes_it = False

    def start(self, run: RunInfo) -> str | None:
        self.task = self.module.Task.current_task()
        if self.task is None:
            self.task = self.module.Task.init(
                project_name=os.environ.get("CLEARML_PROJECT", "HuggingFace Transformers"),
                task_name=run.trial or run.name or os.environ.get("CLEARML_TASK", "Trainer"),
                auto_connect_frameworks={"tensorboard": False, "pytorch": False},
                continue_last_task=run.run_id if run.run_id is not None else False,
                reuse_last_task_id=False,
            )
            self.task.set_initial_iteration(
                0
            )  # steps are counted from the beginning of training, also when it is resumed
            self._closes_it = True
        if run.run_id is None:
            self.task.connect(run.hyper_parameters, "Args")
            if run.model_config:
                self.task.connect_configuration(name="Model Configuration", configuration=run.model_config)
        return self.task.id

    def log(self, numbers: Numbers, step: int) -> None:
        for name, value in numbers.items():
            folder, _, series = name.partition("/")
            self.task.get_logger().report_scalar(title=series, series=folder, value=value, iteration=step)

    def finish(self) -> None:
        if self._closes_it:
            self.task.close()


class ClearMLCallback(TrackerCallback):
    """Logs to ClearML; needs the package clearml."""

    tracker = "clearml"

    def open(self) -> ClearMLSink:
        return ClearMLSink(self.package())
