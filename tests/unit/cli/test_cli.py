"""The command line itself: help, unknown commands, and what is imported for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ostinato
from ostinato.cli import COMMANDS, main


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explian", "train.py"]) == 2
    assert "there is no command 'explian'; did you mean 'explain'?" in capsys.readouterr().err


def test_a_command_that_is_like_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyz"]) == 2
    assert f"there are {', '.join(COMMANDS)}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert name in text
        assert command.SUMMARY in " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"ostinato {name}" in capsys.readouterr().out


def test_no_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"ostinato {ostinato.__version__}"


def test_a_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "only-one"]) == 2
    assert "target" in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    code = "import sys; from ostinato.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "ostinato", "plann"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean 'plan'?" in done.stderr


def test_a_closed_pipe_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def talks(options: object) -> int:
        print("a line that nobody reads")
        return 1

    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(COMMANDS["verify"], "run", talks)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["verify", "out"]) == 0
