"""The table of names, held against the real transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ostinato.compat.name_map import MODULES, REMOVED, VALUES, get_module_name, load_own
from tests.support.apis import load_library

pytest.importorskip("transformers")
SOURCE = Path(__file__).parents[2] / "src"
ROWS = [(module, name) for module, names in MODULES.items() for name in names]


@pytest.mark.parametrize("name", sorted({name for _, name in ROWS}))
def test_ours_is_there(name: str) -> None:
    thing = load_own(name)
    assert thing is not None
    assert get_module_name(name).startswith("ostinato.")


def test_every_name_is_one_that_transformers_has() -> None:
    load_library("transformers")
    missing = [f"{module}.{name}" for module, name in ROWS if not hasattr(import_module(module), name)]
    assert not missing
    for module, values in VALUES.items():
        for name, value in values.items():
            assert getattr(import_module(module), name) == value
    there = [
        f"{module}.{name}"
        for module, names in REMOVED.items()
        for name in names
        if hasattr(import_module(module), name)
    ]
    assert not there


def test_no_module_of_the_trainer_is_forgotten() -> None:
    """What we have under a name that these modules define is in their row of the table."""
    load_library("transformers")
    named = {name for _, name in ROWS}
    forgotten = [
        f"{module}.{name}"
        for module in MODULES
        for name in named - set(MODULES[module])
        if name in vars(import_module(module)) and module != "transformers"
    ]
    assert not forgotten


PROBE = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.modules["accelerate"] = None  # our trainer does not need it
import ostinato.dropin
from importlib import import_module
from ostinato.compat.name_map import MODULES, load_own
from transformers import Trainer, TrainingArguments
loaded = sorted(name for name in sys.modules if name.startswith("transformers.train"))
ran = [name for name in loaded if vars(sys.modules[name]).get("_original_values") is not None]
del sys.modules["accelerate"]
wrong = [
    f"{module}.{name}"
    for module, names in MODULES.items()
    for name in names
    if getattr(import_module(module), name) is not load_own(name)
]
from transformers.integrations import CodeCarbonCallback, TensorBoardCallback
from transformers.trainer_utils import load_sharded_checkpoint
from transformers.trainer import DEFAULT_CALLBACKS
from ostinato import DefaultFlowCallback, TrainerCallback
print(json.dumps({
    "trainer": Trainer.__module__,
    "ran": ran,
    "wrong": wrong,
    "their callbacks are load_own": issubclass(CodeCarbonCallback, TrainerCallback),
    "trackers": TensorBoardCallback.__module__,
    "default callbacks": DEFAULT_CALLBACKS == [DefaultFlowCallback],
    "their own": load_sharded_checkpoint.__module__,
}))
"""


def test_in_the_real_package() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE), "PATH": ""}
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "trainer": "ostinato.trainer",
        "ran": [],
        "wrong": [],
        "their callbacks are load_own": True,
        "trackers": "ostinato.trackers.tensorboard",
        "default callbacks": True,
        "their own": "transformers.trainer_utils",
    }
