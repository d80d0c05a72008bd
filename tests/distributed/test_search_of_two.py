"""A search in two processes: the first asks Optuna, and both train the same trials."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from ostinato.journal.study_record import read_study
from tests.support.launcher import launch
from tests.support.long_tests import long_only

pytest.importorskip("optuna")
WORKER = Path(__file__).with_name("search_worker.py")


@long_only
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_ray_is_refused(tmp_path: Path) -> None:
    launch(WORKER, tmp_path, "ray")
    for rank in (0, 1):
        refusal = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert "in one of 2 processes" in refusal["what"]
        assert "without torchrun" in refusal["fix"]
    assert not (tmp_path / "searched" / "search" / "study.jsonl").exists()


def test_two_processes_share_a_trial(tmp_path: Path) -> None:
    launch(WORKER, tmp_path)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["loaded"] == first["best"]
    assert first["loss"] == first["best"][1]
    study = read_study(tmp_path / "searched")
    assert [one.number for one in study.trials] == [0, 1, 2, 3]
    assert "pruned" in {one.state for one in study.trials}
    begun = [entry for entry in first["seen"] if len(entry) == 4]
    assert [entry[0] for entry in begun] == [one.params for one in study.trials]
    assert all(entry[2] == entry[0]["learning_rate"] for entry in begun)
