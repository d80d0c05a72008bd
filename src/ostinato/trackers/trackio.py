"""Log to Trackio."""

from __future__ import annotations

import os
import re
import secrets
from importlib import import_module
from typing import Any

from ..core.notices import note_once
from ..core.state import TrainerControl, TrainerState
from .base import TrackerCallback
from .sink import Held, Numbers, RunInfo, Sink


class TrackioSink(Sink):
    """Logs rows to a run of trackio, in its local store or in the Space that `trackio_space_id` names.

    Trackio writes rows in the background and loses the last ones when the process is killed; a resumed run continues
    under the same name and logs again what the store lacks.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.run: Any = None

    def start(self, run: RunInfo) -> str | None:
        args = run.args
        self.project = os.environ.get("TRACKIO_PROJECT") or getattr(args, "project", None) or "huggingface"
        self.space = getattr(args, "trackio_space_id", None) or os.environ.get("TRACKIO_SPACE_ID")
        self._static_space = getattr(args, "trackio_static_space_id", None)
        self._private = getattr(args, "hub_private_repo", None)
        if self._static_space and not self.space:
            note_once(
                f"trackio_static_space_id={self._static_space!r} has no effect: it is a copy of the Space that "
                "trackio_space_id names, and none is named"
            )
        name = run.run_id or run.trial or run.name
        if run.run_id is None:
            name = self._choose_name(name)
        self.run = self.module.init(
            project=self.project,
            name=name,
            space_id=self.space,
            bucket_id=getattr(args, "trackio_bucket_id", None),
            private=self._private,
            config={
                name.lstrip("_"): _to_plain(value) for name, value in run.everything.items()
            },  # `_` is trackio's own
            resume="never" if run.run_id is None else "allow",
            embed=False,
        )
        return self.run.name

    def _choose_name(self, name: str | None) -> str | None:
        """Return an unused name: runs of one name would be one run in the store."""
        is_taken = name and not self.space and name in _get_store().get_runs(self.project)
        return f"{name}-{secrets.token_hex(3)}" if is_taken else name

    def held(self, run: RunInfo) -> Held:
        if run.run_id is None or self.space is not None:
            return super().held(run)
        held = Held()
        for row in _get_store().get_logs(self.project, self.run.name):
            for name, value in row.items():
                if name not in ("step", "timestamp") and isinstance(value, (int, float)):
                    held.add(row["step"], name, value)
        return held

    def log(self, numbers: Numbers, step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def finish(self) -> None:
        self.run.finish()

    def publish(self) -> None:
        """Copy the Space of a finished run into a read-only one; not if `trackio_static_space_id` is False."""
        if not self.space or self._static_space is False:
            return
        name = self._static_space or f"{_to_space_name(self.project)}-static-{secrets.token_hex(3)}"
        made = self.module.freeze(space_id=self.space, project=self.project, new_space_id=name, private=self._private)
        note_once(f"trackio: {made or name} is a read-only copy of {self.space} (trackio_static_space_id=False: none)")


def _to_space_name(project: str) -> str:
    """Return a name that the hub accepts."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", project).strip("-.") or "trackio"


def _get_store() -> Any:
    """Return trackio's local store; its public functions write and do not read."""
    return import_module("trackio.sqlite_storage").SQLiteStorage


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _to_plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


class TrackioCallback(TrackerCallback):
    """Logs to Trackio: the arguments `project`, `run_name` and `trackio_space_id` say where and under which name.

    A Space is copied into a read-only one after training, `trackio_static_space_id`, unless that is False.

    >>> TrainingArguments("out", report_to="trackio", project="digits")  # doctest: +SKIP
    """

    tracker = "trackio"
    logs_predictions = True
    variables = {
        "TRACKIO_PROJECT": "the project, before the argument project",
        "TRACKIO_SPACE_ID": "the Space, where trackio_space_id is not set",
        "TRACKIO_DIR": "the directory of the local store",
    }

    def __init__(self) -> None:
        super().__init__()
        self._trackio = self.package()

    def open(self) -> TrackioSink:
        return TrackioSink(self._trackio)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        sink = self._sink
        super().on_train_end(args, state, control, **kwargs)
        if isinstance(sink, TrackioSink):
            with self._report_errors("could not publish the read-only Space"):
                sink.publish()
