"""Find which client libraries override which hooks: `python tools/docs/hook_overrides.py DIR`.

DIR contains wheels of libraries. Classes that inherit, directly or through one another, from a class called `Trainer`
or `Seq2SeqTrainer` are read for the names of their methods. The result is `hook_overrides.json`, for `hook_page.py`.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections import defaultdict
from pathlib import Path


def read_classes(wheel: Path) -> dict[str, tuple[set[str], set[str]]]:
    """Return the bases and the methods of every class of a wheel, by name; classes of one name are taken together."""
    classes: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(".py"):
                continue
            try:
                tree = ast.parse(archive.read(name))
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases, methods = classes[node.name]
                    bases |= {ast.unparse(base).split(".")[-1].split("[")[0] for base in node.bases}
                    methods |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    return classes


def find_overrides(wheel: Path) -> set[str]:
    """Return the methods that the trainers of a wheel define."""
    classes = read_classes(wheel)
    names = {"Trainer", "Seq2SeqTrainer", "HfTrainer", "HFTrainer", "TransformersTrainer"}
    trainers = {name for name in names if name not in classes or classes[name][0] & names}  # not one of its own
    while more := {name for name, (bases, _) in classes.items() if bases & trainers} - trainers:
        trainers |= more
    return {method for name in trainers & set(classes) for method in classes[name][1]}


if __name__ == "__main__":
    found: dict[str, list[str]] = defaultdict(list)
    for wheel in sorted(Path(sys.argv[1]).glob("*.whl"), key=lambda path: path.name.lower()):
        library = wheel.name.split("-")[0].replace("_", "-")
        for method in find_overrides(wheel):
            found[method].append(library)
    from tools.docs.hook_page import HOOKS

    names = [name for hooks in HOOKS.values() for name in hooks]
    text = json.dumps({name: found[name] for name in names if name in found}, indent=1)
    Path(__file__).with_name("hook_overrides.json").write_text(f"{text}\n", "utf-8")
