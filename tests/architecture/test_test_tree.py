"""The tests: one support package, imported by its whole name, and no other module that is imported bare."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAMS = ("scripts",)  # folders of scripts as users have them, which import their neighbours
FILES = sorted(path for path in TESTS.rglob("*.py") if not {*PROGRAMS, "__pycache__"} & set(path.parts))


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_module_of_the_tests_is_imported_bare(path: Path) -> None:
    bare = {other.stem for other in FILES} - {"__init__", "conftest"}
    found = imported_modules(path) & bare
    assert not found, f"import {found} as tests.<folder>.<module>"
