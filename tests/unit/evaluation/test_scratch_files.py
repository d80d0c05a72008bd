"""Temporary files: where they are, what they leave behind, what is said when there is no room."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ostinato.evaluation.storage import scratch_file as subject
from ostinato.evaluation.storage.disk_array import open_spilled
from ostinato.evaluation.storage.scratch_file import (
    Scratch,
    ScratchDirectory,
    ScratchFile,
    SpillError,
    choose_directory,
)


def test_nothing_is_to_be_seen_in_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subject, "_is_memory", lambda directory: False)  # memory is the last resort
    file = ScratchFile(Scratch(0), 100)
    file.append(np.arange(10))
    assert file.location.directory == str(tmp_path)
    assert os.listdir(tmp_path) == []
    assert open_spilled(file, (10,), np.int64).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("places", "chosen"),
    [
        ([("memory", 99, True), ("small", 3, False), ("large", 50, False)], "large"),
        ([("first", 20, False), ("larger", 50, False)], "first"),
        ([("small", 3, False), ("larger", 5, False), ("memory", 99, True)], "larger"),
        ([("memory", 99, True)], "memory"),
    ],
)
def test_a_disk_with_room_is_chosen(
    places: list[tuple[str, int, bool]], chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {
        str(tmp_path / name): ScratchDirectory(str(tmp_path / name), free, in_memory)
        for name, free, in_memory in places
    }
    for name in named:
        os.mkdir(name)
    monkeypatch.setattr(subject.shutil, "disk_usage", lambda name: named[name])
    monkeypatch.setattr(subject, "_is_memory", lambda name: named[name].in_memory)
    assert Path(choose_directory(list(named), 10).directory).name == chosen


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="a file system in memory is looked at")
def test_memory_is_told_from_disks() -> None:
    assert subject._is_memory("/dev/shm")
    assert not subject._is_memory("/proc")


def test_no_directory_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(SpillError, match="none of these directories") as caught:
        choose_directory([str(tmp_path / "none")], 10)
    assert "TMPDIR" in str(caught.value)
    assert isinstance(caught.value, OSError)


def test_a_full_disk_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, content: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = ScratchFile(Scratch(0), 100)
    monkeypatch.setattr(subject.os, "write", full)
    with pytest.raises(SpillError) as caught:
        file.append(np.zeros(1000))
    assert caught.value.errno == errno.ENOSPC
    text = str(caught.value)
    assert "8.0 kB more could not be written: No space left on device" in text
    assert "preprocess_logits_for_metrics" in text
    assert "eval_memory_mb=None" in text


def test_writing_goes_on_where_the_system_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    file = ScratchFile(Scratch(0), 100)
    monkeypatch.setattr(subject.os, "write", lambda handle, content: write(handle, content[:7]))
    file.append(np.arange(20))
    assert open_spilled(file, (20,), np.int64).tolist() == list(range(20))


_MEASURED = """
import numpy as np
from ostinato.evaluation.storage.scratch_file import Scratch, ScratchFile
from ostinato.evaluation.storage.disk_array import open_spilled

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024

np.exp(np.ones((2, 300), np.float32)).sum(-1)
file, batch = ScratchFile(Scratch(2**22), 2**27), np.random.default_rng(0).random((64, 2**14), np.float32)
open("/proc/self/clear_refs", "w").write("5")
before = peak()
for _ in range(32):
    file.append(batch)
rows = open_spilled(file, (2048, 2**14), np.float32)
shifted = np.exp(rows - rows.max(-1, keepdims=True))
best = (shifted / shifted.sum(-1, keepdims=True)).argmax(-1)
chosen = rows[np.arange(len(rows)), best]
some = rows[rows[:, 0] > 0.5]
sums = [row.sum() for row in rows]
order = np.argsort(rows[:, :9], axis=-1)
print(peak() - before)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="memory is measured as Linux counts it")
def test_128_megabytes_are_worked_on_in_a_few() -> None:
    """Also softmax by hand, rows one by one, and rows by mask and by number."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _MEASURED], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 48


@pytest.mark.skipif(subject._advise is None, reason="the system takes no advice about its page cache")
@pytest.mark.parametrize(("pace", "advised"), [(1e6, False), (1e12, True)], ids=["slow disk", "fast disk"])
def test_a_slow_disk_is_not_read_again(pace: float, advised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, the page cache keeps what it can; else it is left to others. The elements are the same."""
    calls: list[int] = []
    monkeypatch.setattr(subject, "_advise", lambda handle, start, length, advice: calls.append(length))
    file, batch = ScratchFile(Scratch(0, disk_speed=pace), 2**24), np.arange(2**20, dtype=np.float64)
    for _ in range(2):
        file.append(batch)
    written = bool(calls)
    assert np.array_equal(open_spilled(file, (2, 2**20), np.float64), np.stack([batch, batch]))
    assert written == advised
    assert bool(calls) == advised
