"""The library whose numbers ours are compared with, and a torch that has made its first optimizer."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch


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
