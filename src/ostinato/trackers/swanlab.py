"""Log to SwanLab."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink
from .variables import choose_run_id


class SwanLabSink(Sink):
    """Logs to a run of SwanLab, which its own variables (`SWANLAB_MODE`, `SWANLAB_PROJECT`, …) configure."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.run: Any = None
        self._owns_run = False

    def start(self, run: RunInfo) -> str | None:
        with contextlib.suppress(RuntimeError):  # how newer versions say that there is none
            self.run = self.module.get_run()
        if self.run is None:
            options = _choose_options(run)
            self.run = self.module.init(
                project=os.environ.get("SWANLAB_PROJECT"),
                experiment_name=run.trial or run.name,
                config=run.everything,
                **options,
            )
            self._owns_run = True
        return getattr(self.run, "id", None)

    def log(self, numbers: Numbers, step: int) -> None:
        self.module.log(dict(numbers), step=step)

    def finish(self) -> None:
        if self._owns_run:
            self.module.finish()


def _choose_options(run: RunInfo) -> dict[str, Any]:
    """Return which run of SwanLab continues, and whether it has to exist."""
    resume = os.environ.get("SWANLAB_RESUME") or (None if run.run_id is None else "allow")
    found = {"id": choose_run_id("SWANLAB_RUN_ID", run.run_id), "resume": resume}
    return {name: value for name, value in found.items() if value is not None}


class SwanLabCallback(TrackerCallback):
    """Logs to SwanLab; needs the package swanlab.

    >>> TrainingArguments("out", report_to="swanlab")  # doctest: +SKIP
    """

    tracker = "swanlab"
    logs_predictions = True
    variables = {
        "SWANLAB_PROJECT": "the project of a new run",
        "SWANLAB_MODE": "cloud, local, offline or disabled",
        "SWANLAB_RUN_ID": "the run to continue",
        "SWANLAB_RESUME": "must, allow or never: whether the run has to exist",
    }
    ineffective_variables = {
        "SWANLAB_LOG_MODEL": "SwanLab stores no models; push_to_hub=True uploads checkpoints to the hub"
    }

    def open(self) -> SwanLabSink:
        return SwanLabSink(self.package())
