"""Two sessions of pytest: one records, the other recalls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest

@pytest.fixture(params=["transformers", "ostinato"])
def api(request):
    return request.param
"""
TESTS = """
import os, sys
from pathlib import Path
import pytest
from tests.support.references import recall

def run(what):
    with Path("ran").open("a") as file:
        print(what, file=file)
    return what

@pytest.fixture(scope="module")
def shared():
    return recall(lambda: run("shared"))

@pytest.mark.parametrize("number", [1, 2])
def test_numbers(number, shared):
    assert [recall(lambda: run(f"{number} {call}")) for call in "ab"] == [f"{number} a", f"{number} b"]
    assert shared == "shared"

def test_last(shared):
    assert recall(lambda: run("last")) == "last"

def test_api(api, tmp_path):
    run(api)
"""
ALL = ["shared", "1 a", "1 b", "2 a", "2 b", "last", "transformers", "ostinato"]


def run_pytest(folder: Path, *options: str) -> tuple[str, list[str]]:
    """Return what pytest printed, and what was run."""
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", "--rootdir", ".", "-p", "no:cacheprovider"]
    command += ["-p", "tests.support.references_plugin", *options, "tests"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = folder / "ran"
    lines = ran.read_text().splitlines() if ran.exists() else []
    ran.unlink(missing_ok=True)
    return done.stdout, lines


def test_record_and_recall(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "tests/test_sample.py").write_text(TESTS)
    printed, ran = run_pytest(tmp_path, "--references=record")
    assert ran == ALL
    assert "is run and recorded" in printed
    assert "7 references were recorded; 0 stay live" in printed
    assert [path.name for path in (tmp_path / "tests/recorded").glob("*.json")]

    (tmp_path / "tests/test_sample.py").write_text(TESTS.replace("== [f", "==  [str() + f"))
    printed, ran = run_pytest(tmp_path)
    assert ran == ["1 a", "1 b", "2 a", "2 b", "ostinato"]
    assert "references: recorded with transformers" in printed
    assert "4 references ran live (4 stale, 0 new): make record" in printed
