"""Two processes, the first of which writes checkpoints while both train: `background_worker.py OUT`.

Rank r writes `OUT/rank-r.json`.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ostinato import CheckpointError, Trainer, TrainerCallback, TrainingArguments
from ostinato.checkpoint.disk import Disk, using
from tests.distributed.worker import Classifier, rows

RANK = int(os.environ.get("RANK", "0"))


class Slow(Disk, TrainerCallback):
    """Writes the weights of a checkpoint only after a later step has ended."""

    def __init__(self, until: int) -> None:
        self.until, self.reached, self.seen = until, threading.Event(), []

    def write(self, path: Path, content: Iterable[Any], **how: Any) -> Any:
        if path.name == "model.safetensors":
            self.seen.append(self.reached.wait(60))
        return super().write(path, content, **how)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.until:
            self.reached.set()


Slow.__module__ = "ostinato.callbacks.slow"  # one that does not read checkpoints


class Full(Disk):
    """Has no room for the weights of one checkpoint."""

    def write(self, path: Path, content: Iterable[Any], **how: Any) -> Any:
        if path.name == "model.safetensors" and ".checkpoint-2." in path.parent.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(path, content, **how)


def train(out: Path, *callbacks: TrainerCallback, resume: bool = False, **options: Any) -> dict[str, Any]:
    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1}
    args = TrainingArguments(
        str(out), per_device_train_batch_size=2, max_steps=6, save_steps=2, eval_strategy="steps", eval_steps=2,
        load_best_model_at_end=True, metric_for_best_model="loss", learning_rate=1e-2, **quiet, **options,
    )  # fmt: skip
    data = rows(30)
    trainer = Trainer(Classifier(), args, train_dataset=data, eval_dataset=data[:9], callbacks=list(callbacks))
    told = ""
    try:
        trainer.train(resume_from_checkpoint=resume or None)
    except CheckpointError as error:
        told = str(error)
    return {
        "weights": [parameter.tolist() for parameter in trainer.model.parameters()],
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "best": trainer.state.best_model_checkpoint,
        "kept": sorted(path.name for path in out.glob("checkpoint-*")),
        "step": trainer.state.global_step,
        "told": told,
    }


def main(out: Path) -> None:
    slow = Slow(until=3)
    with using(slow):
        report = {"slow": train(out / "slow", slow, save_total_limit=2), "waited": slow.seen}
    (out / "slow" / "checkpoint-6").rename(out / "moved") if RANK == 0 else None
    torch.distributed.barrier()
    report["resumed"] = train(out / "slow", resume=True)
    with using(Full()):
        report["full"] = train(out / "full")
        report["raised"] = train(out / "raised", save_errors="raise")
    (out / f"rank-{RANK}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
