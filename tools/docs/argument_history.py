"""Find in which release of transformers each argument first was: `python tools/docs/argument_history.py DIR`.

DIR contains wheels of transformers. Only the names of the fields of `TrainingArguments` are read. The result is
`argument_history.json`, which `argument_page.py` reads.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from pathlib import Path

FILES = ("transformers/training_args.py", "transformers/training_args_seq2seq.py")


def read_names(wheel: Path) -> set[str]:
    """Return the names of the fields in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        trees = [ast.parse(archive.read(name)) for name in FILES]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        line.target.id
        for node in classes
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def read_version(wheel: Path) -> tuple[int, ...]:
    """Return the version of a wheel, by its name."""
    return tuple(map(int, wheel.name.split("-")[1].split(".")))


if __name__ == "__main__":
    since: dict[str, str] = {}
    for wheel in sorted(Path(sys.argv[1]).glob("transformers-*.whl"), key=read_version):
        version = ".".join(map(str, read_version(wheel)[:2]))
        for name in read_names(wheel):
            since.setdefault(name, version)
    result = json.dumps(dict(sorted(since.items())), indent=1)
    Path(__file__).with_name("argument_history.json").write_text(f"{result}\n", "utf-8")
