"""Several processes write checkpoints while they train: the first everything, or each its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ostinato.checkpoint.atomic import verify
from tests.support.launcher import launch

WORKER = Path(__file__).with_name("background_worker.py")


class Runs(NamedTuple):
    kind: str
    out: Path
    first: dict[str, Any]
    second: dict[str, Any]
    said: str


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("background")
    return out, launch(WORKER, out)


@pytest.fixture(scope="module", params=["replicated", "sharded"])
def runs(request: pytest.FixtureRequest, launched: tuple[Path, str]) -> Runs:
    out, said = launched
    first, second = (json.loads((out / f"rank-{rank}.json").read_text())[request.param] for rank in range(2))
    return Runs(request.param, out / request.param, first, second, said)


def test_training_goes_on_while_a_checkpoint_is_written(runs: Runs) -> None:
    assert runs.first["waited"] == [True] * 3, "the first checkpoint was written after the step that followed it"
    assert runs.second["waited"] == ([True] * 3 if runs.kind == "sharded" else []), "what the second writes itself"
    assert runs.first["slow"]["step"] == 6
    assert runs.first["slow"] == runs.second["slow"]


def test_what_was_written_is_whole(runs: Runs) -> None:
    kept, best = runs.first["slow"]["kept"], Path(runs.first["slow"]["best"]).name
    assert kept == sorted({"checkpoint-6", best}), "one more than the last only if it is the best"
    verify(runs.out / "moved")
    assert {f"rng-{rank}.json" for rank in range(2)} < {path.name for path in (runs.out / "moved").iterdir()}


def test_resuming_from_it_is_exact(runs: Runs) -> None:
    for process in (runs.first, runs.second):
        assert process["resumed"]["losses"] == process["slow"]["losses"]
        assert process["resumed"]["weights"] == process["slow"]["weights"]


def test_a_disk_that_refuses_is_told_to_all(runs: Runs) -> None:
    assert "checkpoint-2 was not saved" in runs.said
    assert runs.first["full"]["kept"] == ["checkpoint-4", "checkpoint-6"]
    first, second = runs.first["full"], runs.second["full"]
    assert {**first, "told": ""} == {**second, "told": ""}
    for process in (first, second):
        assert "training is done, but" in process["told"] and "checkpoint-2 was not saved" in process["told"]
    assert first["losses"] == runs.first["slow"]["losses"]


def test_all_end_where_a_refusal_is_an_error(runs: Runs) -> None:
    assert "checkpoint-2 was not saved" in runs.first["raised"]["told"]
    assert runs.second["raised"]["told"]
    assert runs.first["raised"]["step"] == runs.second["raised"]["step"] == 4
