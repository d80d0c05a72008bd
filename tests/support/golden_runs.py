"""The runs whose events and numbers are kept on file. Plain modules only: they run without transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support import tiny

SIZES = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 2}


def fit(api: Any, *, dropout: float = 0.0, rows: int = 12, **arguments: Any) -> None:
    trainer = {"eval_dataset": tiny.regression_rows(6, seed=2)}
    arguments = {**SIZES, **arguments, **api.ours(isolate_rng=False)}
    api.fit(tiny.regression(dropout=dropout), tiny.regression_rows(rows), trainer=trainer, **arguments)


def stream(api: Any) -> None:
    rows = tiny.StreamDataset(tiny.regression_rows(10))
    api.fit(tiny.regression(), rows, max_steps=5, per_device_train_batch_size=4)


RUNS: dict[str, Callable[[Any], None]] = {
    "plain": lambda api: fit(api),
    "accumulated": lambda api: fit(api, gradient_accumulation_steps=2, rows=20),
    "evaluated_and_saved_by_steps": lambda api: fit(
        api, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=3
    ),
    "evaluated_and_saved_by_epoch": lambda api: fit(
        api, logging_strategy="epoch", eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True
    ),
    "evaluated_at_the_start": lambda api: fit(api, eval_strategy="epoch", eval_on_start=True, logging_steps=4),
    "stopped_by_steps": lambda api: fit(api, max_steps=4),
    "stream": stream,
    "dropout_and_cosine": lambda api: fit(
        api, dropout=0.3, lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.1
    ),
    "sgd_clipped": lambda api: fit(api, optim="sgd", max_grad_norm=0.1, eval_strategy="epoch"),
}
