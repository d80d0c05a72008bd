"""One process of many evaluations: `rows_worker.py OUT`. Writes what it found wrong to `OUT/RANK-of-SIZE.json`.

Each number of rows has one batch size; with OSTINATO_LONG_TESTS in the environment, all of 1 to 5.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import IterableDataset

from ostinato import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))


class Echo(nn.Module):
    """Its prediction of a row is the row's number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.trained: list[int] = []

    def forward(self, row, labels=None):
        if self.training:
            self.trained += row.int().tolist()
        logits = row.float()[:, None] * self.scale
        return {"loss": ((logits[:, 0] - labels.float()) ** 2).mean() + 0.0 * self.scale, "logits": logits}


class Stream(IterableDataset):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def make_rows(count: int) -> list[dict[str, Any]]:
    return [{"row": torch.tensor(index), "labels": torch.tensor(index + 1.0)} for index in range(count)]


def evaluate(kind: str, rows: int, batch: int, out: Path) -> list[str]:
    """Return what is wrong with the rows, their order and the metrics of one evaluation and one prediction."""
    trainer_class, args_class = (
        (Seq2SeqTrainer, Seq2SeqTrainingArguments) if kind.startswith("seq2seq") else (Trainer, TrainingArguments)
    )
    args = args_class(str(out), per_device_eval_batch_size=batch, use_cpu=True, disable_tqdm=True, report_to="none")
    seen: list[list[int]] = []

    def compute_metrics(prediction: Any) -> dict[str, float]:
        seen.append(prediction.label_ids.astype(int).ravel().tolist())
        return {"mean": float(prediction.label_ids.mean())}

    trainer = trainer_class(Echo(), args, compute_metrics=compute_metrics)
    data: Any = Stream(make_rows(rows)) if kind.endswith("stream") else make_rows(rows)
    metrics, predicted, wrong = trainer.evaluate(data), trainer.predict(data), []
    expected = list(range(rows))
    if seen != [[row + 1 for row in expected]] * (2 if RANK == 0 else 1):  # evaluate measures in the first process
        wrong.append(f"labels {seen}")
    if predicted.predictions.ravel().astype(int).tolist() != expected:
        wrong.append(f"predictions {predicted.predictions.ravel().tolist()}")
    if abs(metrics["eval_loss"] - 1.0) > 1e-6 or abs(metrics["eval_mean"] - (rows + 1) / 2) > 1e-6:
        wrong.append(f"metrics {metrics}")
    return [f"{kind}, {rows} rows, batches of {batch}, rank {RANK} of {WORLD}: {each}" for each in wrong]


def train(out: Path) -> list[list[int]]:
    """Return the rows of every step, over all processes."""
    model = Echo()
    args = TrainingArguments(
        str(out), per_device_train_batch_size=12 // WORLD, num_train_epochs=2, save_strategy="no", use_cpu=True,
        disable_tqdm=True, report_to="none", learning_rate=0.0, seed=5,
    )  # fmt: skip
    Trainer(model, args, train_dataset=make_rows(60)).train()
    own = [model.trained[start : start + 12 // WORLD] for start in range(0, len(model.trained), 12 // WORLD)]
    every: list[Any] = [own]
    if WORLD > 1:
        every = [None] * WORLD
        dist.all_gather_object(every, own)
    return [sorted(row for part in step for row in part) for step in zip(*every, strict=True)]


def main(out: Path) -> None:
    torch.set_num_threads(1)
    wrong: list[str] = []
    for kind in ("map", "stream", "seq2seq map", "seq2seq stream"):
        for rows in range(1, 18):
            for batch in range(1, 6) if "OSTINATO_LONG_TESTS" in os.environ else [1 + rows % 5]:
                wrong += evaluate(kind, rows, batch, out)
    told = {"wrong": wrong, "trained": train(out)}
    (out / f"{RANK}-of-{WORLD}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo sometimes aborts while the interpreter is taken down
