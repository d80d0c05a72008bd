"""TensorBoard: event files in a directory, which `tensorboard --logdir` shows."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from ..arguments.renamed_arguments import given_logging_dir
from ..callbacks.events import QuietCallback
from .base import TrackerCallback
from .event_file import EventFile, encoded
from .sink import Held, Logged, Numbers, RunInfo, Sink


class TensorBoardSink(Sink):
    """Writes event files. They hold numbers as 32-bit floats.

    A resumed run goes on in the same directory. Its new file tells every reader to forget what the older ones say of
    the checkpoint's step and later ones.

    Numbers are written by ourselves, which is ten times as fast, until somebody asks for the writer. Then it writes
    everything: of several files in a directory, readers only follow the last.
    """

    patience = 1.0

    def __init__(self, writer: Any = None) -> None:
        self._writer = writer
        self._is_theirs = writer is not None
        self._file: EventFile | None = None

    def start(self, run: RunInfo) -> str | None:
        if self._is_theirs:
            return None
        self._directory = directory_of(run)
        self._went_on = run.run_id is not None and self._directory.is_dir()
        self._file = EventFile(self._directory, forgets_from=run.step if self._went_on else None)
        if not self._went_on:
            self._file.write([_text("args", run.hyper_parameters)])
            if run.model_config:
                self._file.write([_text("model_config", run.model_config)])
        return os.path.relpath(self._directory, run.output_dir)  # a run's directory may be moved as a whole

    @property
    def writer(self) -> Any:
        """A `SummaryWriter` that goes on where we are."""
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
        if self._is_theirs:
            return Held(complete_before=(run.step or 0) + 1)
        return Held(complete_before=run.step or 0 if self._went_on else 0)

    def log(self, numbers: Numbers, step: int) -> None:
        self.log_all([Logged(numbers, step, time.time())])

    def log_all(self, logs: Sequence[Logged]) -> None:
        if self._is_theirs:  # all that can be asked of a writer of any kind
            for numbers, step, moment in logs:
                for name, value in numbers.items():
                    self.writer.add_scalar(name, value, step, walltime=moment)
        elif self._writer is not None:
            for numbers, step, moment in logs:
                for event in encoded(numbers, step, moment):
                    self._writer.file_writer.add_event(_event_type().FromString(event), step, moment)
        elif self._file is not None:
            self._file.write(chain.from_iterable(encoded(*one) for one in logs))

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def finish(self) -> None:
        if self._is_theirs:
            self.writer.flush()
        elif self._writer is not None:
            self._writer.close()
        elif self._file is not None:
            self._file.close()


def _text(name: str, content: Any) -> bytes:
    """An event with a text."""
    summary = import_module("torch.utils.tensorboard.summary").text(name, json.dumps(content, indent=2, default=str))
    return _event_type()(summary=summary, wall_time=time.time()).SerializeToString()


def _event_type() -> Any:
    return import_module("tensorboard.compat.proto.event_pb2").Event


def directory_of(run: RunInfo) -> Path:
    """Where the event files go: TENSORBOARD_LOGGING_DIR, logging_dir, or a directory of their own in `runs`."""
    if run.run_id is not None:
        return Path(os.path.normpath(Path(run.output_dir) / run.run_id))
    asked = os.environ.get("TENSORBOARD_LOGGING_DIR") or given_logging_dir(run.args)
    moment = f"{datetime.now():%b%d_%H-%M-%S}_{socket.gethostname()}"
    directory = Path(asked) if asked else Path(run.output_dir) / "runs" / moment
    return directory / run.trial if run.trial else directory


class TensorBoardCallback(TrackerCallback, QuietCallback):
    """Writes TensorBoard's event files; `tb_writer` is a `SummaryWriter` of your own to write to, which stays open.

    >>> TrainingArguments("out", report_to="tensorboard")  # doctest: +SKIP
    """

    tracker = "tensorboard"

    def __init__(self, tb_writer: Any = None) -> None:
        super().__init__()
        self._their_writer = tb_writer

    def open(self) -> TensorBoardSink:
        return TensorBoardSink(self._their_writer)

    @property
    def tb_writer(self) -> Any:
        """The writer, for images and histograms of your own."""
        return self._sink.writer if isinstance(self._sink, TensorBoardSink) else self._their_writer
