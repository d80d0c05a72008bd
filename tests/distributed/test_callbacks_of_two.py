"""Callbacks in two processes: equal averages, one decision to stop, and what is not offered is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("callbacks_worker.py")


def test_two_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(WORKER)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["average"]["resumed"] is True
    assert first["average"]["held"] == [True] * 5 + [False] * 7
    assert len(first["average"]["lost"]) == 6
    assert "needs ddp_find_unused_parameters=True" in first["refused"]
    assert first["stopped"] == first["hurried"] == 10, "processes ask one another every ten steps"
    assert (tmp_path / "stopped" / "checkpoint-10").is_dir()
    answers = (tmp_path / "stopped" / "control.done").read_text()
    assert "save: not done: with several processes" in answers and "stop: done" in answers
