"""What the code of a test comes to, as a hash: other comments, docstrings, line numbers or tests leave it alone."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from tests.support.digests import hash_of

ROOT = Path(__file__).parents[2]
RECORDER = "tests.support.references"


def digest_test(path: Path, name: str | None = None) -> str:
    """Return a hash of a test and of all the code of `tests` that it can reach.

    That is: the test itself, what is in its file beside tests, the `conftest.py` of the folders below `tests`, and
    every module of `tests` that these import, and so on, but for the recorder. `name`: of the function; None for what
    tests share.
    """
    found = [_shared_code(path), _test_code(path, name)]
    found += [_shared_code(module) for module in sorted(_reach(path))]
    return hash_of("\0".join(found))


@functools.cache
def _parse(path: Path) -> list[ast.stmt]:
    """Return the statements of a module, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return tree.body


def _is_test(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef) and statement.name.startswith("test")


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))


@functools.cache
def _shared_code(path: Path) -> str:
    """Return all but tests and imports: from where a name comes does not matter, and what it is called is seen."""
    return "\n".join(ast.dump(one) for one in _parse(path) if not _is_test(one) and not _is_import(one))


def _test_code(path: Path, name: str | None) -> str:
    return "\n".join(ast.dump(one) for one in _parse(path) if _is_test(one) and getattr(one, "name", None) == name)


@functools.cache
def _reach(path: Path) -> frozenset[Path]:
    """Return the modules of `tests` that a file imports, directly or not, and the `conftest.py` beside it."""
    found: set[Path] = set()
    folders = [folder for folder in path.parents if ROOT / "tests" in folder.parents]
    todo = [path, *(folder / "conftest.py" for folder in folders if (folder / "conftest.py").is_file())]
    while todo:
        module = todo.pop()
        found.add(module)
        todo += set(_imported_by(module)) - found
    return frozenset(found - {path})


def _imported_by(path: Path) -> Iterator[Path]:
    for statement in _parse(path):
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tests":
                yield from _find(node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            elif isinstance(node, ast.Import):
                yield from _find(*(alias.name for alias in node.names if alias.name.split(".")[0] == "tests"))


def _find(*modules: str) -> Iterator[Path]:
    for module in set(modules) - {RECORDER}:
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if path.is_file():
            yield path
