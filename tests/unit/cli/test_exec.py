"""`ostinato exec`: somebody's script, as Python would run it, with our names in transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.cli import main

SOURCE = Path(__file__).parents[3] / "src"

SCRIPT = """
import sys
from transformers.trainer_utils import SaveStrategy

print(__name__, sys.argv[1:], SaveStrategy.__module__)

def fail():
    raise RuntimeError("no")

if "--fail" in sys.argv:
    fail()
if "--exit" in sys.argv:
    sys.exit(5)
if "--defaults" in sys.argv:
    from transformers.training_args import TrainingArguments
    print(TrainingArguments("out", use_cpu=True, report_to="none").isolate_rng)
"""

TRAINING = """
import torch
from transformers.trainer import Trainer
from transformers.training_args import TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

args = TrainingArguments("out", use_cpu=True, report_to="none", save_strategy="no", max_steps=2, logging_steps=1)
rows = [{"x": [float(i), 1.0], "labels": float(i)} for i in range(8)]
trainer = Trainer(Net(), args, train_dataset=rows)
trainer.train()
print(f"trained {trainer.args.world_size}\\n", end="")  # in one piece: another process prints as well
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A directory with a script, a package that has a script, and a transformers without code."""
    package = tmp_path / "transformers"
    package.mkdir()
    for name in ("__init__", "trainer", "trainer_utils", "training_args"):
        (package / f"{name}.py").write_text("", encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "training.py").write_text(TRAINING, encoding="utf-8")
    own = tmp_path / "own"
    own.mkdir()
    (own / "__init__.py").write_text("", encoding="utf-8")
    (own / "train.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def execute(house: Path, *words: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *launcher, "-m", "ostinato", "exec", *words],
        capture_output=True,
        text=True,
        cwd=house,
        env={"PYTHONPATH": f"{house}:{SOURCE}", "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
    )


def test_a_script_and_its_arguments(house: Path) -> None:
    ended = execute(house, "script.py", "--explain", "-m", "x", "--set", "--exit")
    assert ended.stdout == "__main__ ['--explain', '-m', 'x', '--set', '--exit'] ostinato.core.choices\n"
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.returncode == 5


def test_a_module(house: Path) -> None:
    ended = execute(house, "-m", "own.train", "--lr", "1")
    assert ended.stdout == "__main__ ['--lr', '1'] ostinato.core.choices\n"
    assert ended.returncode == 0


@pytest.mark.parametrize("words", [("script.py",), ("-m", "own.train")])
def test_the_traceback_begins_with_the_script(house: Path, words: tuple[str, ...]) -> None:
    ended = execute(house, *words, "--fail")
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("RuntimeError: no")
    trace = ended.stderr.split("Traceback (most recent call last):")[1]
    assert trace.count("File ") == 2, trace


def test_other_defaults(house: Path) -> None:
    ended = execute(house, "--set", "isolate_rng=false", "--set", "nonfinite_patience=3", "script.py", "--defaults")
    assert ended.stdout.endswith("False\n"), ended.stderr


def test_explain_instead_of_training(house: Path) -> None:
    ended = execute(house, "--explain", "training.py")
    assert ended.stdout.startswith("One batch of the training set through Net"), ended.stderr
    assert "trained" not in ended.stdout + ended.stderr
    assert ended.returncode == 0


def test_two_processes(house: Path) -> None:
    ended = execute(house, "training.py", launcher=("-m", "torch.distributed.run", "--nproc_per_node", "2"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("trained 2") == 2
    assert ended.stderr.count("names are Ostinato's") == 1


# ---- in this process: what ends before a script starts --------------------------------------------------------------


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "transformers"
    assert "  Trainer ostinato.trainer" in [" ".join(line.split()).join(["  ", ""]) for line in lines]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no script is named"),
        (["nothing.py"], "there is no script 'nothing.py'"),
        (["."], "why: it is a directory"),
        (["--set", "isolate_rg=false", __file__], "did you mean 'isolate_rng'?"),
        (["--set", "isolate_rng", __file__], "'isolate_rng' has no value"),
        (["--set", "isolate_rng=maybe", __file__], "isolate_rng='maybe' is not a bool"),
    ],
)
def test_a_wrong_command_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "OSTINATO_DEFAULTS" not in told
