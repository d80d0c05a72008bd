"""The drawing at the top of `core/errors.py` is the exception tree of the package, read from the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "ostinato"
ENTRY = re.compile(r"^    (?P<indent>[│ ]*)[├└]── (?P<name>\w+)(?:\((?P<others>[\w, ]+)\))?  +\S")


def parse_drawing(text: str) -> dict[str, list[str]]:
    """Return the bases of every class in a drawing; the first is the class above it."""
    found: dict[str, list[str]] = {}
    above = ["OstinatoError"]
    for line in text.splitlines():
        if entry := ENTRY.match(line):
            depth = len(entry["indent"]) // 4
            others = entry["others"].split(", ") if entry["others"] else []
            found[entry["name"]] = [above[depth], *others]
            above[depth + 1 :] = [entry["name"]]
    return found


def classes_in_source() -> dict[str, list[str]]:
    return {
        node.name: [ast.unparse(base).split(".")[-1] for base in node.bases]
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_the_drawing_is_the_tree() -> None:
    classes = classes_in_source()

    def is_ours(name: str) -> bool:
        return name == "OstinatoError" or any(map(is_ours, classes.get(name, [])))

    tree = {name: bases for name, bases in classes.items() if is_ours(name) and name != "OstinatoError"}
    drawing = parse_drawing(ast.get_docstring(ast.parse((ROOT / "core" / "errors.py").read_text()), clean=False) or "")
    assert drawing == tree


def test_every_error_is_also_a_built_in_one() -> None:
    classes = classes_in_source()

    def built_ins(name: str) -> set[str]:
        return {name} if name not in classes else set().union(*map(built_ins, classes[name]))

    drawing = parse_drawing((ROOT / "core" / "errors.py").read_text())
    assert not [name for name in drawing if built_ins(name) == {"Exception"}]
