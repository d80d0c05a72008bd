"""Make `data/argument_names.json` anew from the wheels of transformers in a directory.

    pip download --no-deps -d WHEELS "transformers==4.30.*"      (and so on, one of every minor release)
    python tests/contract/collect_argument_names.py WHEELS

Names only: for each argument the first and the last of these releases that accepts it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = {
    "TrainingArguments": "training_args.py",
    "Seq2SeqTrainingArguments": "training_args_seq2seq.py",
    "Trainer": "trainer.py",
    "Seq2SeqTrainer": "trainer_seq2seq.py",
}


def version_of(wheel: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", wheel.name.split("-")[1])[:2])


def names_in(body: list[ast.stmt]) -> Iterator[str]:
    """The parameters of `__init__`, or the fields of a dataclass, which has none."""
    is_dataclass = not any(isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in body)
    for node in body:
        if is_dataclass and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            options = node.value.keywords if isinstance(node.value, ast.Call) else []
            if not any(option.arg == "init" for option in options):
                yield node.target.id
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (
                argument.arg for argument in [*node.args.args, *node.args.kwonlyargs] if argument.arg != "self"
            )


def collect(wheels: Path) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {name: {} for name in SOURCES}
    for wheel in sorted(wheels.glob("transformers-*.whl"), key=version_of):
        version = ".".join(map(str, version_of(wheel)))
        with zipfile.ZipFile(wheel) as archive:
            for owner, file in SOURCES.items():
                tree = ast.parse(archive.read(f"transformers/{file}"))
                body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner)
                for name in names_in(body):
                    found[owner].setdefault(name, [version, version])[1] = version
    return found


if __name__ == "__main__":
    target = Path(__file__).parent / "data" / "argument_names.json"
    text = json.dumps(collect(Path(sys.argv[1])), indent=2)
    text = re.sub(r"\[\s+(\"[\d.]+\"),\s+(\"[\d.]+\")\s+\]", r"[\1, \2]", text)  # a range on one line
    target.write_text(text + "\n", encoding="utf-8")
