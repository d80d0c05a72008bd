"""Generated ids of two processes: widths differ, rows come back in the order of the data set, each once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.launcher import launch

ROWS, FILLER = 11, 19  # of the worker
WORKER = Path(__file__).with_name("generation_worker.py")


def launched(out: Path, processes: int) -> list[dict]:
    launch(WORKER, out, processes=processes)
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(processes)]


def test_two_processes_write_what_one_writes(tmp_path: Path) -> None:
    expected = [[n] * (n % 4 + 1) + [FILLER] * (3 - n % 4) for n in range(ROWS)]
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (alone,) = launched(tmp_path / "one", 1)
    assert alone["predictions"] == expected
    for report in launched(tmp_path / "two", 2):
        assert report["world"] == 2
        assert report["predictions"] == expected
        assert report["labels"] == [n % 3 for n in range(ROWS)]
        assert report["loss"] == pytest.approx(alone["loss"], rel=1e-6)
