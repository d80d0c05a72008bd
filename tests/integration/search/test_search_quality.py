"""What a search finds and costs: a planted optimum, the steps that pruning saves, memory over twenty trials.

They take a minute: `make long`.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import Trainer
from ostinato.journal.study_record import read_study
from tests.support import tiny
from tests.support.digits import DIGITS_SPACE, build_digits_trainer, check_found
from tests.support.long_tests import long_only
from tests.support.searches import RATES, build_trainer

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = long_only


def test_optuna_finds_the_planted_optimum(tmp_path: Path) -> None:
    trainer = build_digits_trainer(tmp_path / "searched")
    best = trainer.hyperparameter_search(
        DIGITS_SPACE, "accuracy", direction="maximize", n_trials=20, sampler=optuna.samplers.TPESampler(seed=0)
    )
    check_found(best, tmp_path)


def test_pruned_trials_take_less_than_half_of_their_steps(tmp_path: Path) -> None:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    build_digits_trainer(tmp_path).hyperparameter_search(
        DIGITS_SPACE, "accuracy", direction="maximize", n_trials=20, sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=pruner,
    )  # fmt: skip
    pruned = [one for one in read_study(tmp_path).trials if one.state == "pruned"]
    assert len(pruned) >= 5
    assert sum(one.step for one in pruned) < 0.5 * sum(one.steps or 0 for one in pruned)


def test_memory_is_flat_over_twenty_trials(tmp_path: Path) -> None:
    sizes: list[float] = []

    def read_resident() -> float:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

    class Measured(Trainer):
        def call_model_init(self, trial: Any = None) -> nn.Module:
            sizes.append(read_resident())
            return super().call_model_init(trial)

    class Large(tiny.Regression):
        def __init__(self) -> None:
            super().__init__()
            self.ballast = nn.Parameter(torch.zeros(2_000_000))  # 8 MB, and twice that in the optimizer

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            outputs = super().forward(x, labels)
            return {**outputs, "loss": outputs["loss"] + 0 * self.ballast.sum()}

    trainer = build_trainer(tmp_path, cls=Measured, model_init=lambda: Large())
    trainer.hyperparameter_search(RATES, n_trials=20, pruner=optuna.pruners.NopPruner())
    assert {one.state for one in read_study(tmp_path).trials} == {"complete"}
    assert len(sizes) == 21
    assert sizes[-1] < 1.05 * sizes[4], sizes
