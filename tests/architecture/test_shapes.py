"""The shapes that keep the core readable: a small run, attributes declared in one place, a short path of files."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from ostinato.engine.run import Run

ROOT = Path(__file__).parents[2] / "src" / "ostinato"
CORE_FILES = [
    *(f"engine/{name}.py" for name in ("loop", "run", "updates", "meters")),
    *("loss/objective.py", "evaluation/eval_loop.py", "callbacks/flow.py"),
]


def test_a_run_has_few_fields() -> None:
    assert len(dataclasses.fields(Run)) <= 15


def test_the_core_stays_short() -> None:
    assert sum(len((ROOT / path).read_text().splitlines()) for path in CORE_FILES) <= 1000


def list_late_assignments(source: str, name: str) -> list[int]:
    """Return the lines of a class at which a value is assigned after the first method."""
    body = next(node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    is_method = [isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in body]
    late = body[is_method.index(True) :]
    assignments = [node for node in late if isinstance(node, ast.Assign | ast.AnnAssign)]
    return [node.lineno for node in assignments if not isinstance(node.value, ast.Name)]


@pytest.mark.parametrize(("file", "name"), [("trainer.py", "Trainer"), ("seq2seq_trainer.py", "Seq2SeqTrainer")])
def test_attributes_are_declared_before_the_first_method(file: str, name: str) -> None:
    assert list_late_assignments((ROOT / file).read_text(), name) == []


def test_a_late_assignment_is_found() -> None:
    assert list_late_assignments("class A:\n    x = 1\n    def f(self): ...\n    y = 2\n", "A") == [4]
