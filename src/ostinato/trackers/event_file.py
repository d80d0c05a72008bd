"""Write the event files that TensorBoard reads.

Events and records are made by tensorboard's own classes. They are not written by its `SummaryWriter`: its thread ends
with the first error (a disk that is full for a moment), and a killed process loses what it holds.
"""

from __future__ import annotations

import io
import itertools
import os
import socket
import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

_FILE_VERSION = "brain.Event:2"
_file_numbers = itertools.count()  # of this process


class EventFile:
    """A new event file in a directory.

    Args:
        directory: created if it does not exist.
        purge_step: make readers ignore this step and later ones in older files of the directory.

    >>> events = EventFile(Path("out/runs/first"))  # doctest: +SKIP
    >>> events.write([build_event({"train/loss": 0.5}, step=10, wall_time=time.time())])  # doctest: +SKIP
    """

    def __init__(self, directory: Path, *, purge_step: int | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        now = time.time()
        # Readers take the files of a directory in order: those of SummaryWriter, which end in ".0", come later.
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.-{next(_file_numbers):06d}"
        self.path = directory / name
        self._file, self._size = self.path.open("xb", buffering=0), 0
        proto = import_module("tensorboard.compat.proto.event_pb2")
        first = [proto.Event(wall_time=now, file_version=_FILE_VERSION)]
        if purge_step is not None:
            start = proto.SessionLog(status=proto.SessionLog.START)
            first.append(proto.Event(wall_time=now, step=purge_step, session_log=start))
        self.write(first)

    def write(self, events: Iterable[Any]) -> None:
        """Append events with one system call: if the process is killed, all of them are there or none.

        Raises:
            OSError: the disk is full. The file then ends where it did before.
        """
        buffer = io.BytesIO()
        writer = import_module("tensorboard.summary.writer.record_writer").RecordWriter(buffer)
        for event in events:
            writer.write(event.SerializeToString())
        records = buffer.getvalue()
        if self._file.write(records) < len(records):
            self._file.truncate(self._size)  # readers stop at an incomplete record
            self._file.seek(self._size)
            raise OSError(f"no space is left for {self.path}")
        self._size += len(records)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def build_event(numbers: Mapping[str, float], step: int, wall_time: float) -> Any:
    """Return the TensorBoard `Event` of one log.

    >>> build_event({"train/loss": 0.5}, step=10, wall_time=0.0).step
    10
    """
    summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
    values = [summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
    event = import_module("tensorboard.compat.proto.event_pb2").Event
    return event(wall_time=wall_time, step=step, summary=summary(value=values))
