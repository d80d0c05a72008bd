"""The examples in the docstrings of the package run, except those that are marked, and the marked ones are counted."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import ostinato

ROOT = Path(ostinato.__file__).parent
LIKE_PRINTED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MOST_MARKED = 0.25  # of all examples: they need a trained model, a checkpoint, a terminal


def find_modules() -> list[str]:
    paths = sorted(path for path in ROOT.rglob("*.py") if ">>>" in path.read_text("utf-8"))
    names = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


def build_names() -> dict[str, object]:
    """What examples of schedules use without making it."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    return {"torch": torch, "nn": torch.nn, "optimizer": optimizer}


def find_examples(module: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("package", sorted({name.split(".")[1] for name in find_modules()}))
def test_the_examples_of_a_package_run(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXAMPLE_OF_A_VARIABLE", raising=False)  # set by an example
    monkeypatch.setenv("EXAMPLE_OF_A_VARIABLE", "")
    failed = []
    for module in find_modules():
        if module.split(".")[1] != package:
            continue
        runner = doctest.DocTestRunner(optionflags=LIKE_PRINTED, verbose=False)
        for test in find_examples(module):
            test.globs.update(build_names())
            if runner.run(test, clear_globs=True).failed:
                failed.append(test.name)
    assert not failed


def test_most_examples_are_run() -> None:
    options = [example.options for name in find_modules() for test in find_examples(name) for example in test.examples]
    marked = sum(option.get(doctest.SKIP, False) for option in options)
    print(f"{len(options) - marked} examples run, {marked} are marked")
    assert len(options) > 500
    assert marked < MOST_MARKED * len(options)
