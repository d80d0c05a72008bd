"""A run that is stopped and goes on with more processes, or fewer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("elastic_worker.py")
COUNT, STEPS, STOP = 37, 10, 3


def launch(out: Path, processes: int, checkpoint: Path | None = None) -> list[dict[str, Any]]:
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    )
    out.mkdir()
    command = [sys.executable, *launcher, str(WORKER), str(out), *([str(checkpoint)] if checkpoint else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    if checkpoint is not None:
        assert f"{processes} processes instead of {3 - processes}" in done.stderr
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(processes)]


def steps_of(ranks: list[dict[str, Any]]) -> list[dict[int, list[float]]]:
    """Per step: row -> what was read of it, over all processes; a stand-in is a row that another has."""
    steps = []
    for batches in zip(*(rank["trained"] for rank in ranks), strict=True):
        step: dict[int, list[float]] = {}
        for numbers, contents in batches:
            for row, x in zip(numbers, contents, strict=True):
                step.setdefault(row, x)
        steps.append(step)
    return steps


@pytest.mark.parametrize("before", [1, 2])
def test_other_number_of_processes(before: int, tmp_path: Path) -> None:
    whole = launch(tmp_path / "whole", before)
    resumed = launch(tmp_path / "resumed", 3 - before, tmp_path / "whole" / "run" / f"checkpoint-{STOP}")
    first, second = steps_of(whole), steps_of(resumed)
    assert (len(first), len(second)) == (STEPS, STEPS - STOP)
    assert first[STOP:] == second, "the same rows in every step, with the same noise"
    for steps in (first[:5], first[5:]):
        assert sorted(row for step in steps for row in step) == list(range(COUNT))
    for rank in whole + resumed:
        assert [sorted(rows) for rows in rank["samples"]] == [sorted(step) for step in first]
    later = {step: loss for step, loss in whole[0]["losses"].items() if int(step) > STOP}
    for step, loss in later.items():
        assert resumed[0]["losses"][step] == pytest.approx(loss, rel=1e-5)
