"""Two processes whose disks refuse a checkpoint each: `disk_worker.py OUT_DIR`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments
from ostinato.checkpoint.disk import Disk, using


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line = nn.Linear(4, 1)

    def forward(self, x, labels=None):
        return {"loss": nn.functional.mse_loss(self.line(x).squeeze(-1), labels)}


class Failing(Disk):
    """Has no room for the directory of a checkpoint, which the first process makes."""

    def make_directory(self, path: Path) -> None:
        if ".checkpoint-2." in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().make_directory(path)


class FailingPart(Trainer):
    """What the second process writes of a checkpoint finds no room."""

    def _save_rng_state(self, output_dir: str) -> None:
        if self.state.global_step == 4 and self.args.process_index == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._save_rng_state(output_dir)


def main() -> None:
    out, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    rows = [{"x": torch.full((4,), float(n)), "labels": torch.tensor(float(n % 2))} for n in range(32)]
    args = TrainingArguments(
        str(out / "run"), per_device_train_batch_size=2, max_steps=6, save_steps=2, report_to="none", use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = FailingPart(Line(), args, train_dataset=rows)
    with using(Failing()):
        trainer.train()
    weights = [parameter.tolist() for parameter in trainer.model.parameters()]
    (out / f"rank-{rank}.json").write_text(json.dumps({"step": trainer.state.global_step, "weights": weights}))


main()
