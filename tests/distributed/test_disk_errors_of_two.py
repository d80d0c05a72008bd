"""If the disk of one process refuses a checkpoint, all of them go on, without it."""

from __future__ import annotations

import json
from pathlib import Path

from ostinato.checkpoint.atomic import verify
from tests.support.launcher import launch
from tests.support.run_files import listed

WORKER = Path(__file__).with_name("disk_worker.py")


def test_all_processes_go_on(tmp_path: Path) -> None:
    said = launch(WORKER, tmp_path)
    assert "checkpoint-2 was not saved" in said
    assert "checkpoint-4 was not saved" in said
    assert listed(tmp_path / "run") == ["checkpoint-6"]
    verify(tmp_path / "run" / "checkpoint-6")
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["step"] == 6
