"""The notebooks run, and are committed with the output of every cell that has one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


PROGRESS = ("step ", "training ", "train ", "done in", "evaluations", "ostinato: ")  # numbers and times of the machine


def read_lines(cell: Any) -> list[str]:
    """The lines that a cell printed or returned, without what depends on the machine: numbers and spaces."""
    texts = [
        one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs if "html" not in str(one)
    ]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [re.sub(r"[\d.,e+\-\s]+", " ", line) for line in lines if line and not line.startswith(PROGRESS)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_output(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from tools.docs.notebooks import run_notebook

    # Jupyter sets these in the process that starts a kernel.
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    done = run_notebook(path)
    committed = nbformat.read(path, as_version=4)
    assert [cell.source for cell in done.cells] == [cell.source for cell in committed.cells]
    for now, before in zip(done.cells, committed.cells, strict=True):
        if now.cell_type == "code":
            assert bool(now.outputs) == bool(before.outputs), f"run `python -m tools.docs.notebooks`:\n{now.source}"
            assert read_lines(now) == read_lines(before), f"run `python -m tools.docs.notebooks`:\n{now.source}"


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["evaluation", "start", "two_tower"]
