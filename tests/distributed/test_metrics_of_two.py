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


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two")
    launch(WORKER, out)
    return out


def test_two_processes_measure_what_one_does(two: Path, tmp_path: Path) -> None:
    (alone,) = measured(tmp_path, 1)
    first, second = (json.loads((two / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first == pytest.approx(alone, rel=1e-6)
    assert (alone["eval_a_rows"], alone["eval_b_rows"]) == (11, 7)
    assert {"eval_loss", "eval_a_f1", "eval_b_accuracy"} <= set(alone)
    assert (alone["rows"], alone["predicted"]) == (11, 11)
    assert alone["box_boxes"] > alone["box_logits"] == 11


def test_the_first_process_measures_for_all(two: Path) -> None:
    first, second = (json.loads((two / f"calls-{rank}.json").read_text()) for rank in range(2))
    assert (first["in first"], second["in first"]) == ([[11], "11.0"], [[], "11.0"])
    assert first["in all"] == second["in all"] == [[11], "11.0"]
    assert first["failing"][1] == "ValueError: no such metric"
    assert "returned what cannot be sent to other processes" in first["code"][1]
    for kind in ("failing", "code"):
        assert second[kind][1].startswith("MetricError: there are no metrics")
