"""Callbacks in two processes: equal averages, one decision to stop, and what is not offered is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("callbacks_worker.py")


def test_two_processes(tmp_path: Path) -> None:
    launch(WORKER, tmp_path)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["average"]["resumed"] is True
    assert first["average"]["held"] == [True] * 5 + [False] * 7
    assert len(first["average"]["lost"]) == 6
    assert_obeyed(tmp_path / "obeyed", first["obeyed"])
    assert first["in a pause"] == {"code": 128 + 15, "step": 11}, "the step that began with the pause is the last"
    assert (tmp_path / "paused" / "checkpoint-11").is_dir()
    assert "needs ddp_find_unused_parameters=True" in first["frozen"]
    assert first["one"] == "not all processes have the same number of ControlFileCallback"
    assert first["stopped"] == 12, "processes ask for the file after ten steps, and stop with the next step they begin"
    assert first["hurried"] == 10, "processes tell one another at least every ten steps"
    assert first["reckons with"] == 11
    assert (tmp_path / "stopped" / "checkpoint-10").is_dir()
    assert (tmp_path / "stopped" / "control.done").read_text() == "step 10: stop: done\n"


def assert_obeyed(out: Path, found: dict[str, Any]) -> None:
    """Both processes ask after steps 10 and 20, and wait before step 21."""
    assert found["sleeps"] == 3
    assert found["evaluated"] == [10, 24]
    assert (out / "checkpoint-10").is_dir() and not (out / "control.paused").exists()
    # A line from 0.05 to 0 over 24 steps: the second half of it is halved, and its last four steps begin with 0.01.
    usual = {step: 0.05 * (25 - int(step)) / 24 for step in found["rates"]}
    expected = {"8": usual["8"], "10": usual["10"], "16": usual["16"] / 2, "21": 0.01, "24": 0.01 / 4}
    assert found["rates"] == pytest.approx(expected)
    assert (out / "control.done").read_text() == "step 20: log: done\nstep 20: resume: done\n"
    journal = (out / "events.jsonl").read_text()
    assert all(f"control file: '{command}" in journal for command in ("save", "evaluate", "log", "lr x0.5", "pause"))
