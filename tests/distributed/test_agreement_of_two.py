"""Processes that would wait for one another without end are told in what they differ, before they train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("agreement_worker.py")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("agreement")
    launch(WORKER, out)
    first, second = (json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first == second, "every process ends with the same error"
    return first


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "arguments",
            "learning_rate is 0.1 in process 0, 0.2 in process 1; gradient_accumulation_steps is 1",
        ),
        ("rows", "number of rows in train_dataset is 8 in process 0, 9 in process 1"),
        ("evaluation", "number of rows in eval_dataset 'some' is 4 in process 0, 5 in process 1"),
        ("version", "ostinato is 0.0 in process 0, 0.1 in process 1"),
    ],
)
def test_what_differs_is_named(kind: str, message: str, told: dict[str, str]) -> None:
    assert "the processes of this run do not have the same" in told[kind]
    assert message in told[kind]


def test_a_process_may_write_and_log_on_its_own(told: dict[str, str]) -> None:
    assert told["own"] == ""
