"""Searches that take milliseconds per trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ostinato import Trainer, TrainingArguments
from tests.support import tiny

SOURCE = Path(__file__).parents[2]
RATES = {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}


def build_trainer(directory: Path, cls: type[Trainer] = Trainer, rows: int = 16, **rest: Any) -> Any:
    """Return a trainer with `model_init`, which evaluates every epoch and says nothing."""
    names = ("model_init", "callbacks", "compute_metrics", "metrics", "eval_dataset", "data_collator")
    parts = {name: rest.pop(name) for name in names if name in rest}
    arguments = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "write_report": False,
        **rest,
    }
    return cls(
        args=TrainingArguments(str(directory), **arguments),
        train_dataset=tiny.regression_rows(rows),
        **{"eval_dataset": tiny.regression_rows(8), "model_init": lambda: tiny.Regression(), **parts},
    )
