"""Every row once and in order, for any number of rows, batch size and number of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("rows_worker.py")
PROCESSES = (1, 2, 3)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What each process found, by the number of processes."""
    out = tmp_path_factory.mktemp("rows")
    for processes in PROCESSES:
        launch(WORKER, out, processes=processes)
    return {
        size: [json.loads((out / f"{rank}-of-{size}.json").read_text()) for rank in range(size)] for size in PROCESSES
    }


@pytest.mark.parametrize("processes", PROCESSES)
def test_evaluation_and_prediction_have_each_row_once(processes: int, reports: dict[int, list[Any]]) -> None:
    assert [line for report in reports[processes] for line in report["wrong"]] == []


def test_steps_have_the_same_rows_for_any_number_of_processes(reports: dict[int, list[Any]]) -> None:
    steps = reports[1][0]["trained"]
    assert len(steps) == 10
    assert [reports[size][0]["trained"] for size in PROCESSES] == [steps] * 3
