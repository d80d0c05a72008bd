"""Log to MLflow."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.notices import note_once
from ..core.state import TrainerState
from .checkpoint_upload import UploadsCheckpoints
from .sink import Held, Logged, Numbers, RunInfo, Sink
from .variables import choose_run_id, is_set

_PARAMS_PER_REQUEST = 100  # the service's limit
_POINTS_PER_REQUEST = 1000


class MlflowSink(Sink):
    """Logs to the active run of mlflow, or to one that it starts and ends.

    A resumed run continues with the run's id. Points are in the store when `log` returns; what it has of later steps
    is read from it, because a point cannot be removed.
    """

    patience = 1.0  # a request takes about as long for many points as for one

    def __init__(self, module: Any) -> None:
        self.module = module
        self.client = module.MlflowClient()
        self.run_id = ""
        self._owns_run = False

    def start(self, run: RunInfo) -> str | None:
        active = self.module.active_run()
        nested = is_set("MLFLOW_NESTED_RUN")
        if active is None or nested:
            wanted = choose_run_id("MLFLOW_RUN_ID", run.run_id)
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME")
            if experiment and wanted is None:
                self.module.set_experiment(experiment)
            options = {"run_id": wanted} if wanted else {"run_name": run.trial or run.name}
            active = self.module.start_run(nested=nested, **options)
            self._owns_run = True
        self.run_id = active.info.run_id
        tags = json.loads(os.environ.get("MLFLOW_TAGS", "{}"))
        if tags:
            self.module.set_tags(tags)
        if run.run_id is None:
            self._log_params(run)
        return self.run_id

    def _log_params(self, run: RunInfo) -> None:
        content = run.everything
        if is_set("MLFLOW_FLATTEN_PARAMS"):
            content = _flatten(content)
        most = os.environ.get("MLFLOW_MAX_LOG_PARAMS")
        names = list(content)[: int(most)] if most else list(content)
        longest = self.module.utils.validation.MAX_PARAM_VAL_LENGTH
        params = {name: str(content[name]) for name in names}
        too_long = [name for name, value in params.items() if len(value) > longest]
        if too_long:
            note_once(f"mlflow takes parameters of at most {longest} characters; left out: {', '.join(too_long)}")
        pairs = [self.module.entities.Param(name, value) for name, value in params.items() if name not in too_long]
        for first in range(0, len(pairs), _PARAMS_PER_REQUEST):
            self.client.log_batch(self.run_id, params=pairs[first : first + _PARAMS_PER_REQUEST])

    def held(self, run: RunInfo) -> Held:
        held = Held()
        for name in self.client.get_run(self.run_id).data.metrics:
            for point in self.client.get_metric_history(self.run_id, name):
                held.add(point.step, name, point.value)
        return held

    def log(self, numbers: Numbers, step: int) -> None:
        self.log_all([Logged(numbers, step, time.time())])

    def log_all(self, logs: Sequence[Logged]) -> None:
        metric = self.module.entities.Metric
        points = [
            metric(_clean_name(name), float(value), int(1000 * moment), step)
            for numbers, step, moment in logs
            for name, value in numbers.items()
        ]
        for first in range(0, len(points), _POINTS_PER_REQUEST):
            self.client.log_batch(self.run_id, metrics=points[first : first + _POINTS_PER_REQUEST])

    def finish(self) -> None:
        if self._owns_run and self.module.active_run() is not None:
            self.module.end_run()


def _clean_name(name: str) -> str:
    """Replace the characters that mlflow refuses in a name."""
    return re.sub(r"[^\w\-. :/]", "_", name).rstrip("/")


def _flatten(content: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in content.items():
        whole = f"{above}{name}"
        found.update(_flatten(value, f"{whole}.") if isinstance(value, dict) and value else {whole: value})
    return found


class MLflowCallback(UploadsCheckpoints):
    """Logs to MLflow, configured by its own variables: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID, ….

    `prefixed=False` keeps the names as transformers logs them here: `eval_loss` and not `eval/loss`.

    Args:
        prefixed: Put names into folders.

    >>> TrainingArguments("out", report_to="mlflow", run_name="first try")  # doctest: +SKIP
    """

    tracker = "mlflow"
    variables = {
        "MLFLOW_TRACKING_URI": "where runs are stored",
        "MLFLOW_EXPERIMENT_NAME": "the experiment of a new run",
        "MLFLOW_RUN_ID": "the run to continue",
        "MLFLOW_TAGS": "tags of the run, as a JSON object",
        "MLFLOW_NESTED_RUN": "true: a new run inside the active one",
        "MLFLOW_FLATTEN_PARAMS": "true: nested parameters are logged one by one",
        "MLFLOW_MAX_LOG_PARAMS": "how many parameters are logged",
        "HF_MLFLOW_LOG_ARTIFACTS": "true: every checkpoint is uploaded",
        "DISABLE_MLFLOW_INTEGRATION": "true: nothing is sent",
    }

    def __init__(self, *, prefixed: bool = True) -> None:
        super().__init__()
        self.prefixed = prefixed
        self._ml_flow = self.package()

    def open(self) -> MlflowSink:
        return MlflowSink(self._ml_flow)

    def setup(self, args: Any, state: TrainerState, model: Any, **kwargs: Any) -> None:
        if is_set("DISABLE_MLFLOW_INTEGRATION"):
            self._is_off = True
            note_once("DISABLE_MLFLOW_INTEGRATION is set: nothing is sent to mlflow")
            return
        super().setup(args, state, model, **kwargs)

    def uploads_checkpoints(self) -> bool:
        return is_set("HF_MLFLOW_LOG_ARTIFACTS")

    def upload_checkpoint(self, directory: Path, args: Any, state: TrainerState) -> None:
        self._ml_flow.log_artifacts(str(directory), artifact_path=directory.name)
