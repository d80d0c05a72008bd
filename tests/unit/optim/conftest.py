"""The library whose numbers ours are compared with, and a torch that has made its first optimizer."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.support.optimizer_packages import CLASSES, write_stand_ins


@pytest.fixture(scope="session", autouse=True)
def torch_is_warm() -> None:
    """The first optimizer of a process makes torch import its compiler, which sets TORCHINDUCTOR_CACHE_DIR."""
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


@pytest.fixture(scope="session")
def peer() -> SimpleNamespace:
    """transformers, where there is one; what its import warns about is not ours to judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pytest.importorskip("transformers.trainer")
        return SimpleNamespace(
            Trainer=trainer.Trainer,
            TrainingArguments=trainer.TrainingArguments,
            get_parameter_names=pytest.importorskip("transformers.trainer_pt_utils").get_parameter_names,
            optimization=pytest.importorskip("transformers.optimization"),
        )


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every package of optimizers, as classes that record how they are called."""
    write_stand_ins(tmp_path)
    roots = {path.partition(".")[0] for path in CLASSES}
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in roots}
    for name in before:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
        del sys.modules[name]
    sys.modules.update(before)
