"""`ostinato verify`: a table, JSON, and an exit code that says whether all is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ostinato.cli import main
from tests.support import tiny
from tests.support.apis import Api


@pytest.fixture
def run(ours: Api) -> Path:
    ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=10, save_strategy="steps", save_steps=5)
    return ours.output_dir


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_whole_run(run: Path, capsys: Any) -> None:
    capsys.readouterr()
    assert main(["verify", str(run)]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["checkpoint-5", "step", "5", *first.split()[3:5], "whole"]
    assert second.startswith("checkpoint-10  step 10  ")
    assert first.index("whole") == second.index("whole")
    assert last == "2 checkpoints: nothing is damaged"


def test_a_damaged_one(run: Path, capsys: Any) -> None:
    flip(run / "checkpoint-10" / "optimizer.safetensors")
    (run / "checkpoint-10" / "loop.json").unlink()
    capsys.readouterr()
    assert main(["verify", str(run)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert "whole" in out[0] and "DAMAGED  loop.json is missing" in out[1]
    assert out[2].strip().startswith("DAMAGED  optimizer.safetensors is altered")
    assert out[1].index("DAMAGED") == out[2].index("DAMAGED")
    assert out[3] == "2 checkpoints: 1 damaged"
    assert main(["verify", str(run / "checkpoint-5")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 checkpoint: nothing is damaged"


def test_json(run: Path, capsys: Any) -> None:
    flip(run / "checkpoint-10" / "model.safetensors")
    capsys.readouterr()
    assert main(["verify", str(run), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["step"], one["whole"]) for one in told] == [
        ("checkpoint-5", 5, True),
        ("checkpoint-10", 10, False),
    ]
    assert told[0]["bytes"] > 0 and told[0]["remark"] == "whole" and told[0]["damage"] == []
    assert told[1]["damage"][0]["file"] == "model.safetensors"


def test_wrong_use(tmp_path: Path, capsys: Any) -> None:
    assert main(["verify", str(tmp_path / "not there")]) == 2
    assert "it is not a directory" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == 2
    assert "there is nothing to verify" in capsys.readouterr().err
    assert main(["verify"]) == 2


def test_relative_paths(run: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    capsys.readouterr()
    assert main(["verify", "."]) == 0
    assert capsys.readouterr().out.startswith("checkpoint-5 ")
    assert main(["verify", "checkpoint-5/"]) == 0
    assert capsys.readouterr().out.startswith("checkpoint-5 ")
