"""Small runs that touch everything a resumed run has to repeat, and what is compared when they are over."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # the first optimizer imports it, which would take every run longer than its steps
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import ostinato
from ostinato import Trainer, TrainingArguments

ROWS = 36
SPEED = ("_runtime", "_per_second")

PLAIN = {"per_device_train_batch_size": 4, "max_steps": 24, "save_steps": 5, "logging_steps": 3}
EVALUATING = {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": 8}
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "error", "greater_is_better": False}

# What each run trains on ("rows" or "stream"), and with which arguments.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("rows", {}),
    "rows, augmented by workers": ("augmented", {"dataloader_num_workers": 2}),
    "accumulation, evaluation, best": (
        "augmented",
        {"gradient_accumulation_steps": 2, **EVALUATING, **BEST, "save_total_limit": 2},
    ),
    "saves of every step": ("rows", {"save_steps": 1, "save_total_limit": 1, **EVALUATING}),
    "the best is saved": ("rows", {"save_strategy": "best", **EVALUATING, **BEST}),
    "epochs": ("augmented", {"save_strategy": "epoch", "eval_strategy": "epoch", "max_steps": -1, **BEST}),
    "stream": ("stream", {}),
    "stream, read by workers": ("stream", {"dataloader_num_workers": 2, **EVALUATING}),
    "by length": ("rows", {"train_sampling_strategy": "group_by_length"}),
}


class Model(nn.Module):
    """Dropout draws random numbers, batch norm keeps buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)
        self.outer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.outer(self.drop(torch.relu(self.norm(self.inner(x))))).squeeze(-1)
        loss = {} if labels is None else {"loss": nn.functional.mse_loss(logits, labels)}
        return {**loss, "logits": logits}


def row(index: int, *, augmented: bool = False) -> dict[str, Any]:
    x = torch.randn(4, generator=torch.Generator().manual_seed(index))
    if augmented:
        x = x + 0.1 * torch.randn(4) + 0.1 * float(np.random.rand())
    return {"x": x, "labels": torch.tensor(float(index % 5)), "input_ids": [0] * (index % 7 + 1)}


class Rows(Dataset):
    def __init__(self, *, augmented: bool) -> None:
        self.augmented = augmented

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return row(index, augmented=self.augmented)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return (row(index, augmented=True) for index in range(first, ROWS, step))


def data(kind: str) -> Any:
    return Stream() if kind == "stream" else Rows(augmented=kind == "augmented")


def error_of(prediction: Any) -> dict[str, float]:
    return {"error": float(np.abs(prediction.predictions - prediction.label_ids).mean())}


def build(name: str, directory: Path) -> Trainer:
    kind, settings = RUNS[name]
    settings = {**PLAIN, **settings}
    if settings["max_steps"] == -1:
        settings["num_train_epochs"] = 3
    torch.manual_seed(0)
    args = TrainingArguments(str(directory), disable_tqdm=True, use_cpu=True, **settings)
    trainer = Trainer(
        Model(), args, train_dataset=data(kind), eval_dataset=Rows(augmented=False), compute_metrics=error_of
    )
    trainer.remove_callback(ostinato.PrinterCallback)
    return trainer


def train(name: str, directory: Path) -> None:
    """Begin or go on, and leave `outcome.json` when it is over."""
    trainer = build(name, directory)
    trainer.train(resume_from_checkpoint=any(directory.glob("checkpoint-*")))
    (directory / "outcome.json").write_text(json.dumps(outcome(trainer)))


def outcome(trainer: Trainer) -> dict[str, Any]:
    """What has to be the same bit for bit; the last entry of the log sums up the whole run."""
    log = [
        {key: value for key, value in entry.items() if not key.endswith(SPEED)} for entry in trainer.state.log_history
    ]
    best = trainer.state.best_model_checkpoint
    return {
        "weights": digest(trainer.model.state_dict()),
        "optimizer": digest(trainer.optimizer.state_dict()),
        "scheduler": digest(trainer.lr_scheduler.state_dict()),
        "log": log,
        "best": None if best is None else Path(best).name,
    }


def digest(tree: Any) -> str:
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value, key=str):
                found.update(str(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for one in value:
                add(one)
        elif isinstance(value, torch.Tensor):
            found.update(value.detach().numpy().tobytes())
        elif not callable(value):
            found.update(repr(value).encode())

    add(tree)
    return found.hexdigest()


def start(function: Any, name: str, directory: Path, *more: Any) -> int:
    """Fork, call `function(name, directory, *more)` and leave; return the child's pid.

    What it prints goes to `log.txt` in the directory, and nothing of it is run at exit. It leads a group of its own,
    for `clear_away`.
    """
    log = directory / "log.txt"
    child = os.fork()
    if child:
        with contextlib.suppress(PermissionError, ProcessLookupError):  # the child was first
            os.setpgid(child, child)
        return child
    os.setpgid(0, 0)
    code = 1
    try:
        with log.open("a") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            sys.stdout = sys.stderr = out
            function(name, directory, *more)
            code = 0
    except BaseException:
        with log.open("a") as out:
            traceback.print_exc(file=out)
    finally:
        os._exit(code)


def wait(child: int, seconds: float = 120) -> int:
    """The exit code of a child; a negative one is the signal that ended it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    clear_away(child)
    os.waitpid(child, 0)
    raise TimeoutError("the run did not end")


def clear_away(child: int) -> None:
    """Kill a child with all that it has started, and what is left of those if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
