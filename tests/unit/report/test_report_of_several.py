"""`ostinato report` with several runs in one journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ostinato.cli import main
from tests.support.journals import Journal


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for run, loss in (("a", 1.0), ("b", 2.0)):
        Journal(tmp_path / "out", run=run).start(name="digits").log(1, loss=loss)
    return tmp_path


def test_two_runs_of_one_directory_are_compared(directory: Path, capsys: Any) -> None:
    assert main(["report", "out", "--run", "a", "--run", "b"]) == 0
    assert capsys.readouterr().out.startswith("out a and out b differ at step 1: loss is 1.0 and 2.0")
    assert (directory / "comparison.html").is_file()


def test_runs_of_several_directories_may_be_named(directory: Path, capsys: Any) -> None:
    assert main(["report", "out", "out", "--run", "b", "--run", "b"]) == 0
    assert "equal bit for bit in the one log" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["out", "out", "--run", "a"], ["out", "--run", "c"], ["out", *["--run", "a"] * 9]])
def test_wrong_arguments_are_errors(directory: Path, capsys: Any, words: list[str]) -> None:
    assert main(["report", *words]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("ostinato: ") and not said.out
    assert not list(directory.glob("**/*.html"))
