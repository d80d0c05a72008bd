"""Log to ClearML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..core.state import TrainerState
from .checkpoint_upload import UploadsCheckpoints
from .sink import Numbers, RunInfo, Sink
from .variables import is_set


class ClearMLSink(Sink):
    """Logs to the current task of ClearML, or to one that it makes and closes (CLEARML_PROJECT, CLEARML_TASK)."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.task: Any = None
        self._closes_it = False
        self._models: list[Any] = []  # uploaded checkpoints that are still there

    def start(self, run: RunInfo) -> str | None:
        self.task = self.module.Task.current_task()
        if self.task is None:
            self.task = self.module.Task.init(
                project_name=os.environ.get("CLEARML_PROJECT", "HuggingFace Transformers"),
                task_name=run.trial or os.environ.get("CLEARML_TASK") or run.name or "Trainer",
                auto_connect_frameworks={"tensorboard": False, "pytorch": False},
                continue_last_task=run.run_id if run.run_id is not None else False,
                reuse_last_task_id=False,
                output_uri=True,  # where the server keeps models
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

    def upload(self, directory: Path, step: int, limit: int | None) -> None:
        """Upload a checkpoint as a model, and remove the oldest ones of this process beyond `limit`."""
        model = self.module.OutputModel(task=self.task, name=directory.name)
        model.connect(task=self.task, name=directory.name)
        model.update_weights_package(
            weights_path=str(directory), target_filename=directory.name, iteration=step, auto_delete_file=False
        )
        self._models.append(model)
        while limit is not None and len(self._models) > limit:
            self.module.Model.remove(self._models.pop(0), delete_weights_file=True, force=True)

    def finish(self) -> None:
        if self._closes_it:
            self.task.close()


class ClearMLCallback(UploadsCheckpoints):
    """Logs to ClearML; needs the package clearml.

    >>> TrainingArguments("out", report_to="clearml")  # doctest: +SKIP
    """

    tracker = "clearml"
    variables = {
        "CLEARML_PROJECT": "the project of a new task",
        "CLEARML_TASK": "the name of a new task, before run_name",
        "CLEARML_LOG_MODEL": "true: every checkpoint is uploaded as a model; save_total_limit of them are kept",
    }

    def open(self) -> ClearMLSink:
        return ClearMLSink(self.package())

    def uploads_checkpoints(self) -> bool:
        return is_set("CLEARML_LOG_MODEL")

    def upload_checkpoint(self, directory: Path, args: Any, state: TrainerState) -> None:
        assert isinstance(self._sink, ClearMLSink)
        self._sink.upload(directory, state.global_step, args.save_total_limit)
