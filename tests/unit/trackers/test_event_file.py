"""Event files, read by TensorBoard's readers."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest

from ostinato.trackers.event_file import EventFile, build_event
from tests.support.event_files import read_events, read_numbers

pytest.importorskip("tensorboard")


@pytest.mark.parametrize("step", [0, 1, 127, 128, 300, 2**31, 2**40])
def test_what_is_written_is_read(tmp_path, step) -> None:
    numbers = {
        "train/loss": 0.1, "nothing": 0.0, "minus": -0.0, "tiny": 1e-40, "count": 12, "ä/日本": 2.5, "": 1.0,
        "inf": math.inf, "nan": math.nan, "a" * 300: 3.0,
    }  # fmt: skip
    file = EventFile(tmp_path)
    file.write([build_event(numbers, step, 1234.5)])
    file.close()
    _, (found_step, moment, found) = read_events(tmp_path)
    assert (found_step, moment) == (step, 1234.5)
    expected = {name: float(np.float32(value)) for name, value in numbers.items()}
    assert str(found) == str(expected)  # NaN and the sign of zero, too


def test_what_is_too_large_for_32_bits_is_infinite(tmp_path) -> None:
    file = EventFile(tmp_path)
    file.write([build_event({"much": 1e39, "little": -1e300}, 1, 0.0)])
    assert read_events(tmp_path)[1][2] == {"much": math.inf, "little": -math.inf}
    file.close()


def test_older_files_are_ignored_from_a_step_on(tmp_path) -> None:
    for purge_step, steps in ((None, (1, 2, 3)), (2, (2, 4))):
        file = EventFile(tmp_path, purge_step=purge_step)
        file.write(build_event({"loss": step / 2}, step, 0.0) for step in steps)
        file.close()
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 0.5), (2, 1.0), (4, 2.0)]


def test_an_incomplete_record_is_truncated(tmp_path) -> None:
    """A disk takes as much as it has room for; no reader gets past the rest of a record."""

    class Full:
        def __init__(self, file) -> None:
            self.file, self.is_full = file, True

        def write(self, data: bytes) -> int:
            return self.file.write(data[:10] if self.is_full else data)

        def __getattr__(self, name: str):
            return getattr(self.file, name)

    events = EventFile(tmp_path)
    events.write([build_event({"loss": 1.0}, 1, 0.0)])
    events._file, size = (disk := Full(events._file)), events.path.stat().st_size
    with pytest.raises(OSError, match="no space is left"):
        events.write([build_event({"loss": 2.0}, 2, 0.0)])
    assert events.path.stat().st_size == size
    disk.is_full = False
    events.write([build_event({"loss": 3.0}, 3, 0.0)])
    events.close()
    assert read_numbers(tmp_path) == {"loss": [(1, 1.0), (3, 3.0)]}
