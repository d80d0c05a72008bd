"""Metrics that stream, on two processes: the same numbers as on one, and the same on both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("metrics_worker.py")


def measured(out: Path, processes: int) -> list[dict[str, float]]:
    launch(WORKER, out, processes=processes)
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(processes)]


def test_two_processes_measure_what_one_does(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (alone,) = measured(tmp_path / "one", 1)
    first, second = measured(tmp_path / "two", 2)
    assert first == second
    assert first == pytest.approx(alone, rel=1e-6)
    assert (alone["eval_a_rows"], alone["eval_b_rows"]) == (11, 7)
    assert {"eval_loss", "eval_a_f1", "eval_b_accuracy"} <= set(alone)
    assert (alone["rows"], alone["predicted"]) == (11, 11)
    assert alone["box_boxes"] > alone["box_logits"] == 11
