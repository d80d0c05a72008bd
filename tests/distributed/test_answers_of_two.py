"""Answers on two processes: the main one makes them, both know the metrics, and none waits for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("answers_worker.py")


def measured(out: Path, processes: int, *more: str) -> list[dict[str, Any]]:
    out.mkdir()
    launch(WORKER, out, *more, processes=processes)
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(processes)]


def test_two_processes_answer_as_one_does(tmp_path: Path) -> None:
    (alone,) = measured(tmp_path / "one", 1)
    first, second = measured(tmp_path / "two", 2)
    assert second.pop("calls") == [] and second.pop("has_answers") is False
    calls = first.pop("calls")
    assert calls[0] == 8 and set(calls[1:]) == {11}, "a rehearsal of two batches on two processes, then all rows"
    assert first.pop("has_answers") is True
    assert first == second
    assert {name: alone[name] for name in first} == first


def test_a_failure_of_the_main_process_ends_both(tmp_path: Path) -> None:
    first, second = measured(tmp_path / "two", 2, "fail")
    assert "no answers today" in first["error"]
    assert "the main process could not turn predictions into answers" in second["error"]
