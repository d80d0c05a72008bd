"""The script of both hosts: `worker.py OUT`. Each process writes a hash of its last weights to `OUT/weights-RANK`."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments

STEPS, SECONDS_OF_A_STEP = 120, 0.1


class Model(nn.Module):
    """Dropout draws random numbers in every step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.drop, self.outer = nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        logits = self.outer(self.drop(torch.relu(self.inner(x)))).squeeze(-1)
        return {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}


class Paced(TrainerCallback):
    """Makes steps long enough for something to happen in one, and writes down which is reached."""

    def __init__(self, out: Path) -> None:
        self.out, self.rank = out, os.environ["RANK"]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        with open(self.out / f"begun-{self.rank}", "a") as file:
            file.write(f"{state.global_step} {args.world_size}\n")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        (self.out / f"step-{self.rank}").write_text(str(state.global_step))
        time.sleep(SECONDS_OF_A_STEP)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    (out / f"pid-{os.environ['RANK']}").write_text(str(os.getpid()))
    args = TrainingArguments(
        str(out / "run"),
        per_device_train_batch_size=4 // int(os.environ["WORLD_SIZE"]),
        max_steps=STEPS,
        save_steps=10,
        save_total_limit=3,
        learning_rate=1e-2,
        ddp_timeout=30,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    draw = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=draw), "labels": torch.randn((), generator=draw)} for _ in range(40)]
    trainer = Trainer(Model(), args, train_dataset=rows, callbacks=[Paced(out)])
    trainer.train()
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in trainer.model.parameters())
    (out / f"weights-{args.process_index}").write_text(hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
