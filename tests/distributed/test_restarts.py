"""Processes that torchrun starts again after one of them was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launcher import run

WORKER = Path(__file__).with_name("restart_worker.py")


def outcome(out: Path, name: str) -> list[str]:
    """What each of the two processes wrote at the end."""
    return [(out / f"{name}-{rank}").read_text() for rank in range(2)]


def launch(out: Path, *kills: str, store: str = "shared", nodes: int = 1) -> list[str]:
    """The hash of the weights that each process ended with."""
    out.mkdir()
    done = run(WORKER, out, store, *kills, processes=nodes, nodes=nodes > 1, seconds=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(out.glob("killed-*"))) == len(kills)
    return outcome(out, "weights")


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    weights = launch(tmp_path_factory.mktemp("restarts") / "out")
    assert weights[0] == weights[1]
    return weights


@pytest.mark.parametrize("store", ["shared", "private"])
def test_restarts_go_on_bit_for_bit(store: str, never_killed: list[str], tmp_path: Path) -> None:
    assert launch(tmp_path / "out", "1:step", "0:save", store=store) == never_killed
    assert outcome(tmp_path / "out", "restarts") == ["2", "2"]


def test_a_node_restarts_alone(never_killed: list[str], tmp_path: Path) -> None:
    assert launch(tmp_path / "out", "1:step", nodes=2) == never_killed
    assert outcome(tmp_path / "out", "restarts") == ["0", "1"], "each node counts its own restarts"
