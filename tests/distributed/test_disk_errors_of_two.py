"""If the disk of one process refuses a checkpoint, all of them go on, without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from listing import listed

from ostinato.checkpoint.store import verify

WORKER = Path(__file__).with_name("disk_worker.py")


def test_all_processes_go_on(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*launcher, str(WORKER), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checkpoint-2 was not saved" in done.stderr
    assert "checkpoint-4 was not saved" in done.stderr
    assert listed(tmp_path / "run") == ["checkpoint-6"]
    verify(tmp_path / "run" / "checkpoint-6")
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["step"] == 6
