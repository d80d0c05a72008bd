"""One of two nodes with a disk each: `node_worker.py OUT STOP_AT [resume]`. Writes a hash of the final weights."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import torch

from ostinato import Trainer, TrainerCallback, TrainingArguments
from tests.distributed.worker import Classifier, rows


class StopsAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


def main(out: str, stop_at: int, *, resume: bool) -> None:
    model = Classifier()
    args = TrainingArguments(
        out,
        per_device_train_batch_size=2,
        max_steps=6,
        save_steps=2,
        save_total_limit=2,
        save_on_each_node=True,
        eval_strategy="steps",
        eval_steps=2,
        use_cpu=True,
        disable_tqdm=True,
    )
    data = rows(30)
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:9], callbacks=[StopsAt(stop_at)])
    trainer.train(resume_from_checkpoint=resume or None)
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    Path(out, "hash").write_text(hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), resume="resume" in sys.argv)
    torch.distributed.destroy_process_group()
