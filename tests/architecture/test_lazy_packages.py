"""What `from ostinato import Trainer, TrainingArguments` loads, and what a run adds to it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "ostinato"
LOADED_ON_USE = {
    *("checkpoint", "compat", "data", "diagnostics", "engine", "evaluation", "hub", "journal", "metrics", "optim"),
    *("progress", "report", "search", "strategies", "trackers"),
}
LOADED_LATER = {"ostinato.arguments.settings"}  # the only module of its package that does
LOADED_WITH_ARGUMENTS = {"ostinato.strategies.process_group"}  # `main_process_first` needs its barrier
PACKAGES = [path for path in sorted(ROOT.glob("*/**/__init__.py")) if "import load_on_use" in path.read_text()]

IMPORT = "from ostinato import Trainer, TrainingArguments"
RUN = """
import tempfile
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.layer(x), labels)}

with tempfile.TemporaryDirectory() as directory:
    args = TrainingArguments(directory, max_steps=1, use_cpu=True, report_to="none", disable_tqdm=True)
    rows = [{"x": [0.0, 1.0], "labels": 1}] * 8
    Trainer(Model(), args, train_dataset=rows).train()
"""


def added_to_torch(code: str) -> set[str]:
    """Return the modules that code loads in a new process, besides those of torch."""
    whole = f"import sys, torch\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def in_package(modules: Iterable[str], package: str) -> set[str]:
    return {name for name in modules if name.startswith(f"ostinato.{package}.")}


def name_package(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parent.parts)


def listed_for_type_checkers(path: Path) -> list[str]:
    (block,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    return [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]


def test_the_packages_that_load_on_use_are_those_above() -> None:
    assert {name_package(path).split(".")[0] for path in PACKAGES} == {*LOADED_ON_USE, "arguments"}


def test_importing_the_trainer_loads_no_module_of_these_packages() -> None:
    own = {name for name in added_to_torch(IMPORT) if name.split(".")[0] == "ostinato"}
    assert "ostinato.trainer" in own
    early = {name for package in LOADED_ON_USE for name in in_package(own, package)} - LOADED_WITH_ARGUMENTS
    assert not early and not LOADED_LATER & own


def test_importing_the_trainer_loads_nothing_else_that_torch_does_not() -> None:
    assert not {name for name in added_to_torch(IMPORT) if name.split(".")[0] != "ostinato"}


def test_a_run_loads_what_it_uses() -> None:
    loaded = added_to_torch(f"{IMPORT}\n{RUN}")
    assert "ostinato.engine.loop" in loaded
    assert not in_package(loaded, "hub")
    assert in_package(loaded, "trackers") == {"ostinato.trackers.registry"}
    unused = {
        *("diagnostics.batch_report", "diagnostics.dry_run", "diagnostics.eval_dry_run", "diagnostics.explain_batch"),
        *("diagnostics.plan_builder", "diagnostics.run_plan", "diagnostics.verify_resume"),
        *("metrics.auto", "metrics.classification", "metrics.registry"),
    }
    assert not {f"ostinato.{name}" for name in unused} & loaded


@pytest.mark.parametrize("path", PACKAGES, ids=name_package)
def test_what_a_package_lists_for_type_checkers_loads(path: Path) -> None:
    package, names = import_module(f"ostinato.{name_package(path)}"), listed_for_type_checkers(path)
    assert names
    for name in names:
        assert getattr(package, name) is not None
    assert not hasattr(package, "no_such_module")
