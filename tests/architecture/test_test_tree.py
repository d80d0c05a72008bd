"""The tests: one support package, imported by its whole name, and no other module that is imported bare."""

from __future__ import annotations

import ast
from pathlib import Path

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


def test_no_module_of_the_tests_is_imported_bare() -> None:
    bare = {path.stem for path in FILES} - {"__init__", "conftest"}
    found = {str(path.relative_to(TESTS)): imported_modules(path) & bare for path in FILES}
    found = {path: names for path, names in found.items() if names}
    assert not found, f"import them as tests.<folder>.<module>: {found}"
