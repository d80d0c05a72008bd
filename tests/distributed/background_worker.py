"""Two processes that write checkpoints while both train: `background_worker.py OUT`.

Of a replicated model the first process writes everything; of a sharded one each writes its parts. Rank r writes
`OUT/rank-r.json`.
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
from ostinato.core.divided_tensors import gather_whole
from tests.distributed.worker import Classifier, rows

RANK = int(os.environ.get("RANK", "0"))
PART = f"optimizer.shard-{RANK + 1}-of-2.safetensors"


class Slow(Disk, TrainerCallback):
    """Has the weights of a checkpoint, or this process's parts, on the disk only after a later step has ended."""

    def __init__(self, until: int) -> None:
        self.until, self.reached, self.seen = until, threading.Event(), []

    def write(self, path: Path, content: Iterable[Any], **how: Any) -> Any:
        if path.name == "model.safetensors":
            self.seen.append(self.reached.wait(60))
        return super().write(path, content, **how)

    def seal(self, path: Path, descriptor: int) -> Any:
        if path.name == PART:
            self.seen.append(self.reached.wait(60))
        return super().seal(path, descriptor)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.until:
            self.reached.set()


Slow.__module__ = "ostinato.callbacks.slow"  # one that does not read checkpoints


class Full(Disk):
    """Has no room for the weights of one checkpoint, or for the parts of the second process."""

    def write(self, path: Path, content: Iterable[Any], **how: Any) -> Any:
        self.check(path, "model.safetensors")
        return super().write(path, content, **how)

    def seal(self, path: Path, descriptor: int) -> Any:
        self.check(path, "optimizer.shard-2-of-2.safetensors")
        return super().seal(path, descriptor)

    def check(self, path: Path, name: str) -> None:
        if path.name == name and ".checkpoint-2." in path.parent.name:
            raise OSError(errno.ENOSPC, "No space left on device")


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
        "weights": [gather_whole(parameter).tolist() for parameter in trainer.model.parameters()],
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "best": trainer.state.best_model_checkpoint,
        "kept": sorted(path.name for path in out.glob("checkpoint-*")),
        "step": trainer.state.global_step,
        "told": told,
    }


def run(out: Path, **how: Any) -> dict[str, Any]:
    slow = Slow(until=3)
    with using(slow):
        report = {"slow": train(out / "slow", slow, save_total_limit=2, **how), "waited": slow.seen}
    torch.distributed.barrier()  # both have listed the checkpoints
    (out / "slow" / "checkpoint-6").rename(out / "moved") if RANK == 0 else None
    torch.distributed.barrier()
    report["resumed"] = train(out / "slow", resume=True, **how)
    with using(Full()):
        report["full"] = train(out / "full", **how)
        report["raised"] = train(out / "raised", save_errors="raise", **how)
    return report


def main(out: Path) -> None:
    report = {"replicated": run(out / "replicated"), "sharded": run(out / "sharded", shard="full")}
    (out / f"rank-{RANK}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
