"""Two processes go on from the same checkpoint, refuse together, and find the first difference of either."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("resume_worker.py")


def test_two_processes(tmp_path: Path) -> None:
    said = launch(WORKER, tmp_path)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["exact"] is None and first["left behind"] is False
    assert first["noisy"] == "in process 1, the batch of step 4 has other rows or values: x"
    assert first["from step"] == 4 and first["equal"] is True
    assert first["refused"].startswith("No valid checkpoint found in output directory")
    passed_over = [line for line in said.splitlines() if "checkpoint-6 is skipped" in line]
    assert len(passed_over) == 2, "once by each resumption, and by one process"
