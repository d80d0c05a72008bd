"""What processes tell one another in every step: one exchange, and what follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("ballot_worker.py")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What one process says of every run, and what each of two says."""
    out = tmp_path_factory.mktemp("ballots")
    for processes in (1, 2):
        launch(WORKER, out, processes=processes)
    return (
        json.loads((out / "0-of-1.json").read_text()),
        [json.loads((out / f"{rank}-of-2.json").read_text()) for rank in range(2)],
    )


Reports = tuple[dict[str, Any], list[dict[str, Any]]]


@pytest.mark.parametrize("name", ["used", "words"])
def test_a_step_has_one_exchange(name: str, reports: Reports) -> None:
    steps = reports[1][0][name]["collectives"]
    assert len(steps) == 12
    assert steps[1:-1] == [{"all_gather": 1}] * 10, "the first step also compares which weights are used"


def test_steps_with_known_weights_have_none_but_the_tenth(reports: Reports) -> None:
    steps = reports[1][0]["values"]["collectives"]
    assert steps[1:-1] == [{}] * 8 + [{"all_gather": 1}, {}]


@pytest.mark.parametrize("name", ["branches", "used", "later", "values", "missing", "words", "split"])
def test_two_processes_follow_one(name: str, reports: Reports) -> None:
    alone, (first, second) = reports[0], reports[1]
    assert first[name]["losses"] == pytest.approx(alone[name]["losses"], rel=1e-6)
    assert first[name]["weights"] == second[name]["weights"]
    assert first[name]["tokens"] == second[name]["tokens"] == alone[name]["tokens"]


def test_weights_without_a_gradient_are_found_as_ddp_finds_them(reports: Reports) -> None:
    first = reports[1][0]
    assert first["branches"]["weights"] == first["branches_searched"]["weights"], "bit for bit, weight decay too"


@pytest.mark.parametrize("rank", [0, 1])
def test_nothing_is_said_of_unused_weights(rank: int, reports: Reports) -> None:
    assert [name for name, run in reports[1][rank].items() if run["warned"]] == []


def test_sharded_models_take_batches_that_are_split_differently(reports: Reports) -> None:
    alone, (first, second) = reports[0], reports[1]
    own = [one["split"]["micro_batches"] for one in (first, second)]
    assert own[0] != own[1], "the processes split their batches differently"
    assert first["split_sharded"]["micro_batches"] == second["split_sharded"]["micro_batches"]
    assert first["split_sharded"]["losses"] == pytest.approx(alone["split"]["losses"], rel=1e-5)
    assert first["split_sharded"]["weights"] == second["split_sharded"]["weights"]
