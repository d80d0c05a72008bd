"""Recipes stand on the public API alone, so that one of a user's own can do whatever ours do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ostinato

TASKS = Path(ostinato.__file__).parent / "tasks"
OF_THE_MAIN = {"configs.py"}  # no recipe: it reads files of options as the parser does
PUBLIC_MODULES = {"ostinato.metrics", "ostinato.logging", "ostinato.report", "ostinato.tasks"}
RECIPES = sorted(path for path in TASKS.rglob("*.py") if path.name not in OF_THE_MAIN)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(TASKS)))
def test_a_recipe_imports_nothing_that_is_not_public(path: Path) -> None:
    depth = len(path.relative_to(TASKS).parts)  # so many dots still mean this room
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= depth, f"line {node.lineno} leaves the room by {'.' * node.level}{node.module or ''}"
        elif isinstance(node, ast.ImportFrom) and node.module == "ostinato":
            private = {alias.name for alias in node.names} - set(ostinato.__all__)
            assert not private, f"line {node.lineno} imports {private}, which nobody is promised"
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("ostinato."):
            assert node.module in PUBLIC_MODULES, f"line {node.lineno} imports {node.module}"
