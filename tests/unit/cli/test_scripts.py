"""`ostinato explain SCRIPT` and `ostinato plan SCRIPT`: the script runs as it is, until its trainer starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import ostinato
from ostinato.cli import main

HEAD = """
import sys
import torch
from ostinato import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return {"logits": y} if labels is None else {"loss": ((y - labels) ** 2).mean(), "logits": y}

rows = [{"x": [float(i), 1.0], "LABELS": float(i)} for i in range(8)]
args = TrainingArguments("out", use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no", max_steps=3)

def make(cls=Trainer, **more):
    return cls(Net(), args, **{"train_dataset": rows, **more})
"""


def write(directory: Path, body: str, labels: str = "labels") -> str:
    script = directory / "train.py"
    script.write_text(HEAD.replace("LABELS", labels) + body, encoding="utf-8")
    return str(script)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, "print('hello')\nmake().train()\nprint('trained')")
    assert main(["explain", script]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("One batch of the training set through Net")
    assert "hello" in told.err
    assert "trained" not in told.err + told.out
    assert not (tmp_path / "out").exists()


def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", write(tmp_path, "make().train()")]) == 0
    assert "What train() will do with Net" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_json_is_all_there_is_on_standard_output(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, "print('noise')\nmake().train()")
    assert main([command, "--format", "json", script]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "Net"


def test_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--format", "markdown", write(tmp_path, "make().train()")]) == 0
    assert capsys.readouterr().out.startswith("# One batch")


@pytest.mark.parametrize("start", ["train()", "evaluate()", "predict(rows)"])
def test_every_method_that_starts_a_trainer(start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", write(tmp_path, f"make(eval_dataset=rows).{start}\nraise SystemExit(7)")]) == 0
    assert "through Net" in capsys.readouterr().out


def test_the_scripts_own_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "args.max_steps = int(sys.argv[2])\nassert sys.argv[1] == '--steps'\nmake().train()"
    assert main(["plan", "--format", "json", write(tmp_path, body), "--steps", "17"]) == 0
    assert json.loads(capsys.readouterr().out)["length"]["steps"] == 17


def test_a_module_beside_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a_neighbour_of_the_script.py").write_text("STEPS = 5")
    body = "import a_neighbour_of_the_script as one\nargs.max_steps = one.STEPS\nmake().train()"
    before = sys.argv, sys.path[:]
    assert main(["plan", "--format", "json", write(tmp_path, body)]) == 0
    assert json.loads(capsys.readouterr().out)["length"]["steps"] == 5
    assert (sys.argv, sys.path) == before


def test_a_subclass_that_trains_in_its_own_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "class Own(Trainer):\n    def train(self, *a):\n        return super().train(*a)\nmake(Own).train()"
    assert main(["explain", write(tmp_path, body)]) == 0
    assert "through Net" in capsys.readouterr().out


def test_a_script_that_catches_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "try:\n    make().train()\nexcept BaseException:\n    pass\nmake().train()"
    assert main(["explain", write(tmp_path, body)]) == 0
    assert capsys.readouterr().out.count("One batch") == 1


def test_a_mistake_makes_the_command_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", write(tmp_path, "make().train()", labels="target")]) == 1
    assert "rename 'target' to 'labels'" in capsys.readouterr().out


def test_the_trainer_class_is_restored(tmp_path: Path) -> None:
    before = {name: vars(ostinato.Trainer)[name] for name in ("train", "evaluate", "predict")}
    main(["explain", write(tmp_path, "make().train()")])
    main(["explain", write(tmp_path, "1 / 0")])
    assert {name: vars(ostinato.Trainer)[name] for name in before} == before


# ---- scripts that do not get there ----------------------------------------------------------------------------------


def test_a_script_without_a_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", write(tmp_path, "make()")]) == 3
    assert "ended before an ostinato Trainer started to train" in capsys.readouterr().err


def test_a_script_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", write(tmp_path, "def wrong():\n    return 1 / 0\nwrong()")]) == 1
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "in wrong" in error
    assert "runpy" not in error and "cli" not in error  # nothing but the script's own frames


def test_a_script_that_ends_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", write(tmp_path, "sys.exit(5)")]) == 5
    assert main(["plan", write(tmp_path, "sys.exit('no data')")]) == 1
    assert "no data" in capsys.readouterr().err


def test_no_such_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "absent.py"]) == 2
    assert "there is no script 'absent.py'" in capsys.readouterr().err


def test_a_script_of_transformers_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "theirs.py"
    script.write_text("from transformers import Trainer\nopen('ran', 'w')")
    assert main(["explain", str(script)]) == 2
    assert "from ostinato import Trainer" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_a_script_that_catches_exceptions_does_not_go_on(tmp_path: Path) -> None:
    body = "try:\n    make().train()\nexcept Exception:\n    pass\nopen('went on', 'w')"
    assert main(["explain", write(tmp_path, body)]) == 0
    assert not (tmp_path / "went on").exists()
