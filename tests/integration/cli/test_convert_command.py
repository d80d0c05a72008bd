"""`ostinato convert`: both directions, and what is said when it cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.cli import main
from tests.support import tiny
from tests.support.apis import Api


@pytest.fixture
def checkpoint(ours: Api) -> Path:
    ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=2, save_strategy="steps", save_steps=2)
    return ours.output_dir / "checkpoint-2"


def test_convert_both_ways(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, back = tmp_path / "theirs", tmp_path / "back"
    assert main(["convert", str(checkpoint), str(theirs)]) == 0
    assert (theirs / "optimizer.pt").is_file()
    assert "in the layout of transformers" in capsys.readouterr().out
    assert main(["convert", str(theirs), str(back)]) == 0
    assert "in the layout of ostinato" in capsys.readouterr().out
    assert (back / "optimizer.safetensors").read_bytes() == (checkpoint / "optimizer.safetensors").read_bytes()
    assert (back / "loop.json").read_bytes() == (checkpoint / "loop.json").read_bytes()


def test_converting_to_the_same_layout_fails(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(checkpoint), str(tmp_path / "copy"), "--to", "ostinato"]) == 1
    assert "needs no conversion" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_an_existing_target(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(checkpoint), str(tmp_path)]) == 1
    assert "nothing is overwritten" in capsys.readouterr().err


def test_a_directory_that_is_not_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tmp_path / "absent"), str(tmp_path / "target")]) == 1
    error = capsys.readouterr().err
    assert "is not a checkpoint" in error
    assert "fix:" in error


def test_an_unknown_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "a", "b", "--to", "lightning"]) == 2
    assert "lightning" in capsys.readouterr().err
