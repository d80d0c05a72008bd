"""A small real problem to search: handwritten digits, with a planted optimum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import Trainer, TrainingArguments


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


DIGITS_SPACE = {"learning_rate": {"low": 1e-6, "high": 1.0, "log": True}, "optim": ["adamw_torch", "sgd"]}


def check_found(best: Any, directory: Path) -> None:
    """Check the best trial: AdamW at 1e-2 is good, and most of the space is not: below 1e-4 little is learnt."""
    good = build_digits_trainer(directory / "good")
    good.args.learning_rate = 1e-2
    good.train()
    assert best.objective >= good.evaluate()["eval_accuracy"] - 0.01
    assert best.hyperparameters["optim"] == "adamw_torch"
    assert 1e-3 < best.hyperparameters["learning_rate"] < 1e-1
