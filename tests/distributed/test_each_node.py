"""`save_on_each_node`: two nodes of one process, each with a disk that the other does not see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("node_worker.py")


def run(folder: Path, stop_at: int, *rest: str) -> list[str]:
    """What each node printed last: the hash of its weights."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for node in range(2):
        facts = {"RANK": node, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
        started.append(
            subprocess.Popen(
                [sys.executable, str(WORKER), str(folder / f"node-{node}"), str(stop_at), *rest],
                env={**environment, **{name: str(value) for name, value in facts.items()}},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ended = [process.communicate(timeout=200) for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors for _, errors in ended)
    return [said.strip().splitlines()[-1] for said, _ in ended]


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
