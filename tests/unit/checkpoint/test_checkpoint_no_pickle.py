"""Reading a checkpoint runs no code: nothing in the package can unpickle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ostinato.checkpoint.atomic

PACKAGE = Path(ostinato.checkpoint.atomic.__file__).parents[1]

# Relative to the package: the one file that reads what transformers wrote, and the one that writes it.
READER = "checkpoint/transformers/unpickle.py"
WRITER = "checkpoint/transformers/write.py"

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "pickle5"}
CALLS = {
    *("torch.load", "torch.save", "torch.jit.load", "torch.serialization.load", "torch.serialization.save"),
    *("torch.distributed.checkpoint.FileSystemReader", "yaml.load", "yaml.unsafe_load", "numpy.fromfile"),
    *("torch.serialization.safe_globals", "torch.serialization.add_safe_globals"),
}


def offences(source: str, name: str = "") -> list[str]:
    """What in a file could unpickle, however it was imported. Two files have one permission each."""
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
    permitted = _permitted(tree, names, name)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            dotted = _dotted(node, names)
            found += [dotted] if dotted in CALLS and id(node) not in permitted else []
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found += [] if isinstance(node.value, ast.Constant) and node.value.value is False else ["allow_pickle"]
        elif isinstance(node, ast.Call) and _dotted(node.func, names) in ("__import__", "importlib.import_module"):
            asked = {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
            found += [str(name) for name in asked & MODULES]
    return found


def _permitted(tree: ast.AST, names: dict[str, str], name: str) -> set[int]:
    """Calls of `torch.load` with `weights_only=True` written out, of what may be in there, and of `torch.save`."""
    allowed: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = _dotted(node.func, names)
        if name == WRITER and called == "torch.save":
            allowed.add(id(node.func))
        if name == READER and called == "torch.serialization.safe_globals":
            allowed.add(id(node.func))
        if name == READER and called == "torch.load" and len(node.args) == 1:
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            only = given.pop("weights_only", None)
            if isinstance(only, ast.Constant) and only.value is True and given.keys() <= {"map_location"}:
                allowed.add(id(node.func))
    return allowed


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""


RAY_ENGINE = "search/ray_engine.py"  # sends the trainer to Ray's workers, within one run; reads no file


def test_nothing_in_the_package_can_unpickle():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 10
    guilty = {}
    for path in files:
        name = path.relative_to(PACKAGE).as_posix()
        if name == RAY_ENGINE:
            continue
        if found := offences(path.read_text(encoding="utf-8"), name):
            guilty[name] = found
    assert guilty == {}
    assert (PACKAGE / READER).is_file() and (PACKAGE / WRITER).is_file()


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
    assert offences(source, READER) or "save" in source
    assert offences(source, WRITER) or "save" in source


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\ntorch.load('x', weights_only=True)", WRITER),
        ("import torch\ntorch.load('x', weights_only=True)", "trainer.py"),
        ("import torch\ntorch.load('x', weights_only=False)", READER),
        ("import torch\ntorch.load('x', weights_only=safe)", READER),
        ("import torch\ntorch.load('x', weights_only=True, **more)", READER),
        ("import torch\ntorch.load('x', None, dill, weights_only=True)", READER),
        ("import torch\ntorch.load('x', weights_only=True, pickle_module=p)", READER),
        ("import torch\nread = torch.load\nread('x', weights_only=True)", READER),
        ("import torch\ntorch.save(1, 'x')", READER),
        ("import torch\nkeep = torch.save", WRITER),
        ("import torch\ntorch.serialization.add_safe_globals([f])", READER),
        ("import torch\ntorch.serialization.safe_globals([f])", WRITER),
    ],
)
def test_a_permission_goes_no_further(source: str, name: str):
    assert offences(source, name)


def test_what_is_permitted():
    assert not offences("import torch\ntorch.load('x', map_location='cpu', weights_only=True)", READER)
    assert not offences("import torch\ntorch.save(1, 'x')", WRITER)


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
