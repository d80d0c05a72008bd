"""The same script under torchrun on two gloo processes, against one process with the same global batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch
from tests.support.run_files import listed

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every scenario, once in one process and once in two; starting processes is what costs time here."""
    alone, together = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    launch(WORKER, alone, processes=1)
    torchrun(WORKER, together)
    return alone, together


def torchrun(program: Path, *words: object) -> None:
    """Two processes, by the launcher that users have; other tests have one that starts sooner."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(program)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def of_ranks(out: Path, scenario: str, processes: int) -> list[dict[str, Any]]:
    """What each rank wrote down."""
    return [json.loads((out / scenario / f"rank-{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.parametrize(
    "scenario",
    [
        "fifty_steps",
        "uneven",
        "one_row_left",
        "accumulate",
        "tokens",
        "forgetful",
        "own_share",
        "own_making_up",
        "partly_used",
        "compiled",
        "empty_in_one",
    ],
)
def test_two_processes_follow_one(scenario: str, reports: tuple[Path, Path]) -> None:
    (alone,) = of_ranks(reports[0], scenario, 1)
    first, second = of_ranks(reports[1], scenario, 2)
    assert first["steps"] == alone["steps"]
    assert len(first["losses"]) == len(alone["losses"]) > 0
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-6, abs=1e-6)
    assert first["norms"] == pytest.approx(alone["norms"], rel=1e-4, abs=1e-6)
    assert first["weights"] == second["weights"], "the replicas must stay equal, bit for bit"
    assert first["eval_loss"] == pytest.approx(alone["eval_loss"], rel=1e-5)
    assert first["labels"] == alone["labels"], "rows come back in the order of the data set, each once"
    assert len(first["predictions"]) == 11
    assert all(count == 11 for count in first["metrics_rows"])


def test_a_batch_without_rows_in_one_process_is_told_by_the_first(reports: tuple[Path, Path]) -> None:
    first, _ = of_ranks(reports[1], "empty_in_one", 2)
    assert first["empty"] == ["batches without rows, which counted for nothing: 1"]


@pytest.mark.parametrize("scenario", ["fifty_steps", "accumulate"])
def test_tracked_numbers_are_of_all_processes(scenario: str, reports: tuple[Path, Path]) -> None:
    (alone,) = of_ranks(reports[0], scenario, 1)
    first, second = of_ranks(reports[1], scenario, 2)
    assert first["tracked"] == pytest.approx(alone["tracked"], rel=1e-6)
    assert first["accuracies"] == pytest.approx(alone["accuracies"], abs=1e-9)
    assert len(first["accuracies"]) == len(first["losses"])
    assert first["tracked"] == second["tracked"]
    assert first["odd"] == second["odd"]
    assert {None, 1.0} >= set(first["odd"]) >= {1.0}


@pytest.mark.parametrize(("scenario", "count", "epochs"), [("uneven", 37, 3), ("one_row_left", 33, 2)])
def test_each_row_counts_once_per_epoch(scenario: str, count: int, epochs: int, reports: tuple[Path, Path]) -> None:
    ranks = of_ranks(reports[1], scenario, 2)
    steps = ranks[0]["steps"] // epochs
    for epoch in range(epochs):
        batches = [rank["trained"][epoch * steps : (epoch + 1) * steps] for rank in ranks]
        seen = [row for own in batches for batch in own for row in batch]
        assert set(seen) == set(range(count))
        # Only a rank left without rows in the very last batch repeats one, with weight zero.
        assert len(seen) - count <= 1


def test_a_stream_is_shared_out(reports: tuple[Path, Path]) -> None:
    ranks = of_ranks(reports[1], "stream", 2)
    seen = [row for rank in ranks for batch in rank["trained"][:5] for row in batch]
    assert sorted(seen) == list(range(40)), "five steps of eight rows are the forty rows, each once"


def test_rank_zero_saves(reports: tuple[Path, Path]) -> None:
    directory = reports[1] / "saving" / "run"
    assert [name for name in listed(directory) if not name.startswith(".")] == ["checkpoint-2", "checkpoint-4"]
    inside = {path.name for path in (directory / "checkpoint-4").iterdir()}
    assert {"model.safetensors", "trainer_state.json", "MANIFEST.json"} <= inside
    assert {name for name in inside if name.startswith("rng-")} >= {"rng-0.json", "rng-1.json"}


def test_rank_zero_keeps_the_journal(reports: tuple[Path, Path]) -> None:
    lines = (reports[1] / "saving" / "run" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [event["event"] for event in events]
    assert kinds.count("start") == kinds.count("end") == 1 and kinds[0] == "start"
    assert events[0]["processes"] == 2 and len({event["run"] for event in events}) == 1
    steps = [event["step"] for event in events if "loss" in event.get("logs", {})]
    assert steps and len(steps) == len(set(steps))
