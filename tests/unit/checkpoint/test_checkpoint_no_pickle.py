"""Reading a checkpoint runs no code: nothing in the package can unpickle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ostinato.checkpoint.store

PACKAGE = Path(ostinato.checkpoint.store.__file__).parents[1]

# The one place that may read what transformers wrote, once it exists: relative to the package.
IMPORTERS: set[str] = set()

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "pickle5"}
CALLS = {
    *("torch.load", "torch.save", "torch.jit.load", "torch.serialization.load", "torch.serialization.save"),
    *("torch.distributed.checkpoint.FileSystemReader", "yaml.load", "yaml.unsafe_load", "numpy.fromfile"),
}


def offences(source: str) -> list[str]:
    """What in a file could unpickle, however it was imported."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                found += [alias.name] if alias.name.split(".")[0] in MODULES else []
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found += [node.module] if node.module.split(".")[0] in MODULES else []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            dotted = _dotted(node, names)
            found += [dotted] if dotted in CALLS else []
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found += [] if isinstance(node.value, ast.Constant) and node.value.value is False else ["allow_pickle"]
        elif isinstance(node, ast.Call) and _dotted(node.func, names) in ("__import__", "importlib.import_module"):
            asked = {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
            found += [str(name) for name in asked & MODULES]
    return found


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""


def test_nothing_in_the_package_can_unpickle():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 10
    guilty = {}
    for path in files:
        name = path.relative_to(PACKAGE).as_posix()
        if name not in IMPORTERS and (found := offences(path.read_text(encoding="utf-8"))):
            guilty[name] = found
    assert guilty == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import dill",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x')",
        "import torch\nload = torch.load",
        "from torch import load\nload('x')",
        "from torch import save as keep\nkeep(1, 'x')",
        "import torch.serialization\ntorch.serialization.load('x')",
        "from torch import serialization\nserialization.load('x')",
        "import torch\ndef f():\n    return torch.jit.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', allow_pickle=flag)",
        "__import__('pickle')",
        "import importlib\nimportlib.import_module('pickle')",
        "from importlib import import_module\nimport_module('dill')",
        "import torch.distributed.checkpoint as dcp\ndcp.FileSystemReader('x')",
    ],
)
def test_the_police_sees(source: str):
    assert offences(source)


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.load(f)",
        "model.load('x')",
        "from .pickle import x",
        "import numpy\nnumpy.load('x')",
        "load(1)",
    ],
)
def test_the_police_lets_pass(source: str):
    assert not offences(source)
