"""The same script under torchrun on two gloo processes, against one process with the same global batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("worker.py")


def run(scenario: str, out: Path, processes: int) -> list[dict[str, Any]]:
    """Start the worker and read what each rank wrote down."""
    out.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, str(WORKER), scenario, str(out)],
        capture_output=True, text=True, env=environment, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.parametrize(
    "scenario", ["fifty_steps", "uneven", "one_row_left", "accumulate", "tokens", "forgetful"]
)
def test_two_processes_follow_one(scenario: str, tmp_path: Path) -> None:
    (alone,) = run(scenario, tmp_path / "one", 1)
    first, second = run(scenario, tmp_path / "two", 2)
    assert first["steps"] == alone["steps"]
    assert len(first["losses"]) == len(alone["losses"]) > 0
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-6, abs=1e-6)
    assert first["norms"] == pytest.approx(alone["norms"], rel=1e-4, abs=1e-6)
    assert first["weights"] == second["weights"], "the replicas must stay equal, bit for bit"
    assert first["eval_loss"] == pytest.approx(alone["eval_loss"], rel=1e-5)
    assert first["labels"] == alone["labels"], "rows come back in the order of the data set, each once"
    assert len(first["predictions"]) == 11
    assert all(count == 11 for count in first["metrics_rows"])


@pytest.mark.parametrize(("scenario", "count", "epochs"), [("uneven", 37, 3), ("one_row_left", 33, 2)])
def test_each_row_counts_once_per_epoch(scenario: str, count: int, epochs: int, tmp_path: Path) -> None:
    ranks = run(scenario, tmp_path / "two", 2)
    steps = ranks[0]["steps"] // epochs
    for epoch in range(epochs):
        batches = [rank["trained"][epoch * steps : (epoch + 1) * steps] for rank in ranks]
        seen = [row for own in batches for batch in own for row in batch]
        assert set(seen) == set(range(count))
        # Only a rank left without rows in the very last batch repeats one, with weight zero.
        assert len(seen) - count <= 1


def test_a_stream_is_shared_out(tmp_path: Path) -> None:
    ranks = run("stream", tmp_path / "two", 2)
    seen = [row for rank in ranks for batch in rank["trained"][:5] for row in batch]
    assert sorted(seen) == list(range(40)), "five steps of eight rows are the forty rows, each once"


def test_rank_zero_saves(tmp_path: Path) -> None:
    run("saving", tmp_path / "two", 2)
    directory = tmp_path / "two" / "run"
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    assert names == ["checkpoint-2", "checkpoint-4"]
    inside = {path.name for path in (directory / "checkpoint-4").iterdir()}
    assert {"model.safetensors", "trainer_state.json", "MANIFEST.json"} <= inside
    assert {name for name in inside if name.startswith("rng-")} >= {"rng-0.json", "rng-1.json"}
