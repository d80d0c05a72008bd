"""`ostinato launch`: scripts and modules in two processes, and what it prints when they cannot run."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from ostinato.cli import main
from tests.support.launcher import run

COMMAND = "import sys; from ostinato.cli import main; sys.exit(main())"

STOCK = """
import sys
import torch
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        return {"loss": (self.layer(x).squeeze(-1) - labels).pow(2).mean()}

args = TrainingArguments(
    sys.argv[1], use_cpu=True, report_to="none", save_strategy="no", max_steps=2, per_device_train_batch_size=4
)
rows = [{"x": [float(i), 1.0, 0.0, 2.0], "labels": float(i)} for i in range(16)]
trainer = Trainer(Net(), args, train_dataset=rows)
memory = trainer.plan().memory
trainer.train()
weight = trainer.model.layer.weight.tolist()
told = [one.total for one in memory.layouts]
print(f"{type(trainer).__module__} {args.process_index}/{args.world_size} {told} {weight}\\n", end="")
"""

MODULE = """
import os, sys, time
rank = os.environ["RANK"]
print(f"{__name__} {sys.argv[1:]} {rank}/{os.environ['WORLD_SIZE']}\\n", end="", flush=True)
if "--crash" in sys.argv:
    if rank == "1":
        sys.exit(7)
    time.sleep(60)
"""


def launch(directory: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = directory / "command.py"
    command.write_text(COMMAND, encoding="utf-8")
    return run(command, "launch", "--nproc", 2, *words, seconds=60)


def test_a_transformers_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STOCK, encoding="utf-8")
    ended = launch(tmp_path, "exec", script, tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    told = sorted(line.split(maxsplit=2) for line in ended.stdout.splitlines() if line.startswith("ostinato."))
    assert [words[1] for words in told] == ["0/2", "1/2"], ended.stdout
    assert told[0][2] == told[1][2], "the processes ended with different weights"
    weights, gradients, state = 5 * 4, 2 * 5 * 4, 2 * (5 * 4) + 2 * 4  # DDP's copies of gradients, AdamW's step counts
    assert told[0][2].startswith(f"[{weights + gradients + state}] ")


def test_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ended = launch(tmp_path, "-m", "own", "--lr", "1")
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"__main__ ['--lr', '1'] {rank}/2" for rank in range(2)]


def test_a_crash_is_told_with_its_rank_and_code(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(MODULE, encoding="utf-8")
    ended = launch(tmp_path, "--restarts", 0, script, "--crash")
    assert ended.returncode == 7
    assert ended.stderr.splitlines()[-1] == "ostinato launch: rank 1 ended with code 7, and the others after it"


def test_a_missing_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["launch", "--nproc", "2", str(tmp_path / "absent.py")]) == 2
    error = capsys.readouterr().err
    assert "there is no script" in error and "absent.py does not exist" in error


@pytest.mark.parametrize("nodes", ["0", "3:2", "many", "1:"])
def test_a_number_of_hosts_that_is_none(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--nnodes", nodes, "-m", "own"]) == 2
    assert f"--nnodes {nodes} is not a number of hosts" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["node0:port", "node0:99999", "node0:0", "node0:1:2", ":29400", "[fd00::1"])
def test_a_host_that_is_none(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--nnodes", "2", "--host", host, "-m", "own"]) == 2
    assert f"--host {host} is not a host: NAME, or NAME:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--restarts", "-1"), ("--nproc", "two"), ("--threads", "0")])
def test_a_count_that_is_none(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", f"{option}={value}", "-m", "own"]) == 2
    assert f"argument {option}: {value!r} is not a whole number of at least" in capsys.readouterr().err


def test_several_hosts_without_a_place_to_meet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--nnodes", "2", "-m", "own"]) == 2
    assert "--host NAME:PORT" in capsys.readouterr().err


def test_a_port_in_use(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which launch sets
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["launch", "--nproc", "2", "--nnodes", "2", "--host", f"127.0.0.1:{port}", "-m", "own"]) == 1
    assert f"port {port} cannot be used (Address already in use): choose another" in capsys.readouterr().err
