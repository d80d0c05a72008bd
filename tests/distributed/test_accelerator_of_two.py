"""`trainer.accelerator` on two processes, against accelerate's own: rows, numbers, shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch

pytest.importorskip("accelerate")
WORKER = Path(__file__).with_name("accelerator_worker.py")


def seen_with(out: Path, library: str) -> list[dict[str, Any]]:
    out.mkdir()
    launch(WORKER, out, library)
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2)]


def test_two_processes_see_what_accelerates_own_shows(tmp_path: Path) -> None:
    ours, theirs = seen_with(tmp_path / "ours", "ostinato"), seen_with(tmp_path / "theirs", "transformers")
    rows = [row for rank in ours for batch in rank["seen"][:2] for row in batch]
    assert sorted(rows) == list(range(16))  # an epoch is shared out, every row once
    for mine, its in zip(ours, theirs, strict=True):
        assert mine == {**its, "losses": pytest.approx(its["losses"], rel=1e-6)}
