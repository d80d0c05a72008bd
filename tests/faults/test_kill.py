"""SIGKILL at random moments, half of them inside a save: the resumed run is the run never killed.

A few kills here; `make faults` makes two hundred over every kind of run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.launcher import run

KILLS = int(os.environ.get("OSTINATO_KILLS", "4"))
SHORT = ["rows, augmented by workers", "accumulation, evaluation, best", "stream"]


@pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")
@pytest.mark.timeout(3000)
def test_killed_and_resumed_is_never_killed(tmp_path: Path) -> None:
    only = ["--only", *SHORT] if KILLS < 50 else []
    ended = run(Path(__file__).with_name("killing.py"), tmp_path, "--kills", KILLS, *only, seconds=3000)
    assert ended.stdout.strip(), ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["failures"] == []
    assert sum(told["kills"].values()) >= KILLS
    assert min(told["kills"].values()) >= KILLS // 2 - 1
    assert told["runs"] > 0
