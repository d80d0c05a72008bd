"""Journals made by hand: small, quick, and as strange as a test wants them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


class Journal:
    """Writes `events.jsonl` line by line, with a clock that ticks a second per line."""

    def __init__(self, directory: Path, run: str = "20260101-120000-abcdef") -> None:
        self.path, self.run, self.time = Path(directory) / "events.jsonl", run, 1_767_268_800.0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.seconds = {"computing": 0.0, "data": 0.0, "evaluation": 0.0, "saving": 0.0}

    def write(self, event: str, **fields: Any) -> Journal:
        self.time += 1
        return self.raw(json.dumps({"v": 1, "run": self.run, "time": self.time, "event": event, **fields}) + "\n")

    def raw(self, text: str) -> Journal:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
        return self

    def start(self, step: int = 0, **fields: Any) -> Journal:
        told: dict[str, Any] = {
            "name": "digits",
            "resumed_from": {"step": step, "checkpoint": f"checkpoint-{step}"} if step else None,
            "arguments": {"learning_rate": 0.001, "seed": 42, "max_grad_norm": 1.0, "lr_scheduler_type": "linear"},
            "origins": {"learning_rate": "given"},
            "plan": {
                "model": "Net",
                "parameters": 1234,
                "trainable": 1234,
                "precision": "no",
                "steps": 100,
                "epochs": 2,
                "batches_per_epoch": 50,
                "accumulation": 1,
                "rows_per_step": 8,
                "train_rows": 400,
                "eval_rows": {"eval": 64},
                "metric": "accuracy",
                "greater_is_better": True,
                "columns": ["x", "labels"],
                "columns_left_out": ["comment"],
            },
            "environment": {"python": "3.11.7", "device": "cpu", "packages": {"torch": "2.13.0"}},
            "processes": 1,
            "command": {"words": ["python", "train.py", "--name", "a b"], "directory": "/work", "notebook": False},
            "code": {"commit": "4be1c0d0a9f0c3f1c1f3f3f3f3f3f3f3f3f3f3f3", "branch": "main"},
        }
        return self.write("start", step=step, **{**told, **fields})

    def log(self, step: int, **logs: Any) -> Journal:
        self.seconds["computing"] += 0.8
        self.seconds["data"] += 0.2
        memory = {"rss": 300_000_000 + step}
        return self.write("log", step=step, epoch=step / 50, logs=logs, seconds=dict(self.seconds), memory=memory)

    def evaluation(self, step: int, **metrics: Any) -> Journal:
        self.seconds["evaluation"] += 0.5
        self.log(step, **metrics)
        return self.write("evaluation", step=step, epoch=step / 50, metrics=metrics, training=True)

    def end(self, step: int) -> Journal:
        return self.write("end", step=step, epoch=step / 50, of_steps=100, seconds=dict(self.seconds), memory={})


def loss_at(step: int) -> float:
    """A loss that falls, with some noise that is the same every time."""
    return 2.0 * math.exp(-step / 30) + 0.1 * math.sin(step * 1.7) ** 2 + 0.2


def whole_run(directory: Path, *, until: int = 100, run: str = "20260101-120000-abcdef", **fields: Any) -> Journal:
    """A run of a hundred steps with everything a page can show."""
    journal = Journal(directory, run).start(**fields)
    journal.write("notice", text="columns of the training set: kept x, labels; left out comment")
    for step in range(1, until + 1):
        journal.log(step, loss=loss_at(step), grad_norm=1.5, learning_rate=0.001 * (1 - step / 100))
        if step % 20 == 0:
            journal.evaluation(step, eval_loss=loss_at(step) + 0.1, eval_accuracy=0.5 + step / 250, eval_runtime=0.5)
            journal.write("best", step=step, metric="eval_accuracy", value=0.5 + step / 250)
            journal.write("save", step=step, path=f"checkpoint-{step}", bytes=1_300_000, seconds=0.1, best=True)
        if step % 50 == 0:
            rows = {"epoch": step // 50 - 1, "done": 400, "of": 400, "batches": 50, "skipped": 0}
            journal.write("epoch", step=step, epoch=step / 50, rows=rows)
    return journal.end(until)
