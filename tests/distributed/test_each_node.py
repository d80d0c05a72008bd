"""`save_on_each_node`: two nodes of one process, each with a disk that the other does not see."""

from __future__ import annotations

from pathlib import Path

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("node_worker.py")


def run(folder: Path, stop_at: int, *rest: str) -> list[str]:
    """The hash of the weights that each node ended with."""
    launch(WORKER, folder / "node-{rank}", stop_at, *rest, nodes=True)
    return [(folder / f"node-{node}" / "hash").read_text() for node in range(2)]


def test_each_node_keeps_its_own_and_resumes_from_it(tmp_path: Path) -> None:
    never_stopped = run(tmp_path / "whole", 99)
    assert never_stopped[0] == never_stopped[1]
    assert run(tmp_path / "cut", 4) != never_stopped
    for node in range(2):
        names = {path.name for path in (tmp_path / "cut" / f"node-{node}" / "checkpoint-4").iterdir()}
        assert {"model.safetensors", "optimizer.safetensors", "MANIFEST.json", f"rng-{node}.json"} <= names
        assert f"rng-{1 - node}.json" not in names
    assert run(tmp_path / "cut", 99, "resume") == never_stopped
    for node in range(2):
        kept = sorted(path.name for path in (tmp_path / "cut" / f"node-{node}").glob("checkpoint-*"))
        assert kept == ["checkpoint-4", "checkpoint-6"]
