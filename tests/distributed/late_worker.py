"""Two processes, the second of which is late: `late_worker.py OUT`. What is told is on the standard error.

First it is stopped in a step, as a debugger or a full host does it, and then it takes long to read a row.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments

RANK, LATE = int(os.environ["RANK"]), 1
TIMEOUT, AWAY = 6, 4.5  # seconds


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        return {"loss": nn.functional.mse_loss(self.line(x[:, None]).squeeze(-1), labels)}


class Rows(torch.utils.data.Dataset):
    late_at = -1

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.late_at and RANK == LATE:
            time.sleep(AWAY)
        return {"x": torch.tensor(float(index)), "labels": torch.tensor(1.0)}


class Stopped(TrainerCallback):
    """Stops the late process; the other one lets it go on."""

    def __init__(self, process: int) -> None:
        self.process = process

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2 and RANK == LATE:
            time.sleep(TIMEOUT / 10)  # which is twice the time between two checks
            os.kill(os.getpid(), signal.SIGSTOP)
        elif state.global_step == 2:
            threading.Timer(AWAY, os.kill, (self.process, signal.SIGCONT)).start()


def train(out: Path, rows: Rows, *callbacks: TrainerCallback) -> None:
    args = TrainingArguments(
        str(out), per_device_train_batch_size=1, gradient_accumulation_steps=2, max_steps=4, ddp_timeout=TIMEOUT,
        save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none", train_sampling_strategy="sequential",
    )  # fmt: skip
    trainer = Trainer(Line(), args, train_dataset=rows, callbacks=list(callbacks))
    trainer.train()
    assert trainer.state.global_step == 4


def main(out: Path) -> None:
    torch.set_num_threads(1)
    (out / f"process-{RANK}").write_text(str(os.getpid()))
    rows = Rows()
    train(out / "run", rows)
    train(out / "run", rows, Stopped(int((out / f"process-{LATE}").read_text())))
    rows.late_at = 9  # of the second process, in the third step
    train(out / "run", rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
