"""Log to Weights & Biases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from ..checkpoint.weights import save_model
from ..core.notices import note_once
from ..core.state import TrainerControl, TrainerState
from .checkpoint_upload import UploadsCheckpoints
from .sink import Held, Numbers, RunInfo, Sink
from .variables import is_set
from .wandb_files import find_run_files, read_history

STEP = "train/global_step"  # the axis of every chart


class WandbSink(Sink):
    """Logs rows to a run of wandb, which its own variables (`WANDB_MODE`, `WANDB_ENTITY`, …) configure.

    A resumed run continues with the run's id. What the run holds already is asked of the service, or read from the
    files of the earlier attempts where the run is offline.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.run: Any = None
        self._next_row: int | None = None  # of a continued offline run; wandb does not know it

    def start(self, run: RunInfo) -> str | None:
        self.run = self.module.run
        if self.run is None:
            options: dict[str, Any] = {"id": run.run_id, "resume": "allow"} if run.run_id is not None else {}
            name = run.trial or run.name
            if name is not None:
                options["name"] = name
            if run.trial is not None:
                options["group"] = run.name
            project = os.environ.get("WANDB_PROJECT") or getattr(run.args, "project", None) or "huggingface"
            self.run = self.module.init(project=project, **options)
        self.run.config.update(run.everything, allow_val_change=True)
        count = getattr(run.model, "num_parameters", None)
        if callable(count):
            self.run.config["model/num_parameters"] = count()
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP, step_sync=True)
        watched = os.environ.get("WANDB_WATCH", "false")
        if watched in ("all", "parameters", "gradients"):
            every = max(100, getattr(run.args, "logging_steps", 100) or 100)
            self.run.watch(run.model, log=watched, log_freq=int(every))
        return self.run.id

    def held(self, run: RunInfo) -> Held:
        if run.run_id is None or run.step is None:
            return Held()
        if not self.run.offline:
            last = self.run.summary.get(STEP) if self.run.resumed else None
            return Held(complete_before=0 if last is None else int(last) + 1)
        held = Held()
        directory = Path(self.run.settings.sync_dir)
        for path in find_run_files(directory.parent, self.run.id):
            if path.parent.resolve() == directory.resolve():
                continue
            for row in read_history(path):
                self._next_row = max(self._next_row or 0, int(row.get("_step", 0)) + 1)
                for name, value in row.items():
                    if STEP in row and isinstance(value, (int, float)) and not name.startswith("_"):
                        held.add(int(row[STEP]), name, value)
        return held

    def log(self, numbers: Numbers, step: int) -> None:
        row, self._next_row = self._next_row, None  # wandb counts on from there
        self.run.log({**numbers, STEP: step}, **({} if row is None else {"step": row, "commit": True}))

    def summarize(self, numbers: Numbers) -> None:
        self.run.summary.update(dict(numbers))


class WandbCallback(UploadsCheckpoints):
    """Logs to Weights & Biases. The run stays open after training, for `wandb.log` of your own; wandb ends it at exit.

    >>> TrainingArguments("out", report_to="wandb", run_name="first try")  # doctest: +SKIP
    """

    tracker = "wandb"
    logs_predictions = True
    variables = {
        "WANDB_PROJECT": "the project, before the argument project",
        "WANDB_WATCH": "all, gradients or parameters: what is recorded of the weights",
        "WANDB_LOG_MODEL": "checkpoint: every checkpoint is uploaded; end: the final model is",
        "WANDB_DISABLED": "true: nothing is sent",
    }

    def __init__(self) -> None:
        super().__init__()
        self._wandb: Any = None
        self._is_off = off = is_set("WANDB_DISABLED")
        if off:
            note_once("WANDB_DISABLED is set: nothing is sent to wandb")
        else:
            self._wandb = self.package()

    def open(self) -> WandbSink:
        return WandbSink(self._wandb)

    def setup(self, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        if self._wandb is None:
            return
        run = self._wandb.run
        is_previous = run is not None and run.sweep_id is None  # a sweep has made that of this trial
        if state.is_hyper_param_search and state.global_step == 0 and is_previous:
            self._wandb.finish()
        super().setup(args, state, model, **kwargs)

    @property
    def _log_model(self) -> str:
        """When WANDB_LOG_MODEL asks for weights to be uploaded: `checkpoint`, `end` or `false`."""
        if is_set("WANDB_LOG_MODEL"):
            return "end"
        value = os.environ.get("WANDB_LOG_MODEL", "false").lower()
        return value if value in ("checkpoint", "end") else "false"

    def uploads_checkpoints(self) -> bool:
        return self._log_model == "checkpoint"

    def upload_checkpoint(self, directory: Path, args: Any, state: TrainerState) -> None:
        self._upload(directory, directory.name, {"step": state.global_step})

    def on_train_end(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        if self._sink is not None and self._log_model in ("end", "checkpoint"):
            with self._report_errors("did not accept the model"), tempfile.TemporaryDirectory() as directory:
                save_model(model, Path(directory), processing_class=processing_class)
                name = f"model-{self.run_id}" if args.run_name is None else f"model-{args.run_name}"
                self._upload(Path(directory), name, {"train/global_step": state.global_step})
        super().on_train_end(args, state, control, **kwargs)

    def _upload(self, directory: Path, name: str, metadata: dict[str, Any]) -> None:
        artifact = self._wandb.Artifact(name=name, type="model", metadata=metadata)
        artifact.add_dir(str(directory))
        self._wandb.run.log_artifact(artifact)
