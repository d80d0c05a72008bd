"""Log to SwanLab."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink


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
            options: dict[str, Any] = {"id": run.run_id, "resume": "allow"} if run.run_id is not None else {}
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


class SwanLabCallback(TrackerCallback):
    """Logs to SwanLab; needs the package swanlab."""

    tracker = "swanlab"
    logs_predictions = True

    def open(self) -> SwanLabSink:
        return SwanLabSink(self.package())
