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

from ostinato import Trainer, TrainingArguments
from ostinato.journal.study_record import read_study
from tests.support import tiny
from tests.support.long_tests import long_only
from tests.support.searches import RATES, build_trainer

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = long_only


class Digits(nn.Module):
    """A classifier of handwritten digits."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def build_digits_trainer(directory: Path) -> Trainer:
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    rows = [
        {"x": torch.tensor(x, dtype=torch.float32) / 16, "labels": int(y)} for x, y in zip(pixels, labels, strict=True)
    ]
    args = TrainingArguments(
        str(directory), num_train_epochs=4, per_device_train_batch_size=32, eval_strategy="epoch", save_strategy="no",
        report_to="none", disable_tqdm=True, use_cpu=True, write_report=False, lr_scheduler_type="constant",
        per_device_eval_batch_size=256, logging_strategy="no",
    )  # fmt: skip
    return Trainer(
        model_init=lambda: Digits(), args=args, train_dataset=rows[:1200], eval_dataset=rows[1200:],
        compute_metrics=lambda done: {"accuracy": float((done.predictions.argmax(-1) == done.label_ids).mean())},
    )  # fmt: skip


SPACE = {"learning_rate": {"low": 1e-6, "high": 1.0, "log": True}, "optim": ["adamw_torch", "sgd"]}


def test_optuna_finds_the_planted_optimum(tmp_path: Path) -> None:
    """AdamW at 1e-2 is good on these digits, and most of the space is not: rates below 1e-4 learn next to nothing."""
    good = build_digits_trainer(tmp_path / "good")
    good.args.learning_rate = 1e-2
    good.train()
    planted = good.evaluate()["eval_accuracy"]
    best = build_digits_trainer(tmp_path / "searched").hyperparameter_search(
        SPACE, "accuracy", direction="maximize", n_trials=20, sampler=optuna.samplers.TPESampler(seed=0)
    )
    assert not isinstance(best, list)
    assert isinstance(best.objective, float) and best.objective >= planted - 0.01
    assert best.hyperparameters["optim"] == "adamw_torch"
    assert 1e-3 < best.hyperparameters["learning_rate"] < 1e-1


def test_pruned_trials_take_less_than_half_of_their_steps(tmp_path: Path) -> None:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    build_digits_trainer(tmp_path).hyperparameter_search(
        SPACE, "accuracy", direction="maximize", n_trials=20, sampler=optuna.samplers.RandomSampler(seed=0),
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
