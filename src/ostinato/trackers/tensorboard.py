"""Write TensorBoard's event files, which `tensorboard --logdir` shows."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from ..arguments.renamed_arguments import get_given_logging_dir
from ..callbacks.events import QuietCallback
from .base import TrackerCallback
from .event_file import EventFile, build_event
from .sink import Held, Logged, Numbers, RunInfo, Sink


class TensorBoardSink(Sink):
    """Writes event files. They hold numbers as 32-bit floats.

    A resumed run continues in the same directory. Its new file makes readers ignore the checkpoint's step and later
    ones in the older files.

    Numbers go to an `EventFile` until `writer` is used. From then on the `SummaryWriter` writes everything: of several
    files in a directory, readers only follow the last.
    """

    patience = 1.0

    def __init__(self, writer: Any = None) -> None:
        self._writer = writer
        self._is_users = writer is not None
        self._file: EventFile | None = None

    def start(self, run: RunInfo) -> str | None:
        if self._is_users:
            return None
        self._directory = choose_directory(run)
        self._continues = run.run_id is not None and self._directory.is_dir()
        self._file = EventFile(self._directory, purge_step=run.step if self._continues else None)
        if not self._continues:
            self._file.write([_build_text_event("args", run.hyper_parameters)])
            if run.model_config:
                self._file.write([_build_text_event("model_config", run.model_config)])
        return os.path.relpath(self._directory, run.output_dir)  # a run's directory may be moved as a whole

    @property
    def writer(self) -> Any:
        """The user's `SummaryWriter`, or one that continues this run."""
        if self._writer is None:
            if self._file is not None:
                self._file.close()
            self._writer = import_module("torch.utils.tensorboard").SummaryWriter(
                log_dir=str(self._directory),
                max_queue=1000,  # its thread need not be waited for
                flush_secs=10,  # what a killed process may lose
            )
        return self._writer

    def held(self, run: RunInfo) -> Held:
        if self._is_users:
            return Held(complete_before=(run.step or 0) + 1)
        return Held(complete_before=run.step or 0 if self._continues else 0)

    def log(self, numbers: Numbers, step: int) -> None:
        self.log_all([Logged(numbers, step, time.time())])

    def log_all(self, logs: Sequence[Logged]) -> None:
        if self._is_users:  # which may be of any class with add_scalar
            for numbers, step, wall_time in logs:
                for name, value in numbers.items():
                    self.writer.add_scalar(name, value, step, walltime=wall_time)
        elif self._writer is not None:
            for one in logs:
                self._writer.file_writer.add_event(build_event(*one), one.step, one.time)
        elif self._file is not None:
            self._file.write(build_event(*one) for one in logs)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def finish(self) -> None:
        if self._is_users:
            self.writer.flush()
        elif self._writer is not None:
            self._writer.close()
        elif self._file is not None:
            self._file.close()


def _build_text_event(name: str, content: Any) -> Any:
    summary = import_module("torch.utils.tensorboard.summary").text(name, json.dumps(content, indent=2, default=str))
    event = import_module("tensorboard.compat.proto.event_pb2").Event
    return event(summary=summary, wall_time=time.time())


def choose_directory(run: RunInfo) -> Path:
    """Return where the event files go: TENSORBOARD_LOGGING_DIR, logging_dir, or a new directory in `runs`."""
    if run.run_id is not None:
        return Path(os.path.normpath(Path(run.output_dir) / run.run_id))
    given = os.environ.get("TENSORBOARD_LOGGING_DIR") or get_given_logging_dir(run.args)
    name = f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}"
    directory = Path(given) if given else Path(run.output_dir) / "runs" / name
    return directory / run.trial if run.trial else directory


class TensorBoardCallback(TrackerCallback, QuietCallback):
    """Writes TensorBoard's event files.

    Args:
        tb_writer: write to this `SummaryWriter` instead, and leave it open.

    >>> TrainingArguments("out", report_to="tensorboard")  # doctest: +SKIP
    """

    tracker = "tensorboard"
    variables = {"TENSORBOARD_LOGGING_DIR": "the directory of the event files"}

    def __init__(self, tb_writer: Any = None) -> None:
        super().__init__()
        self._users_writer = tb_writer

    def open(self) -> TensorBoardSink:
        return TensorBoardSink(self._users_writer)

    @property
    def tb_writer(self) -> Any:
        """The writer, for images and histograms of your own."""
        return self._sink.writer if isinstance(self._sink, TensorBoardSink) else self._users_writer
