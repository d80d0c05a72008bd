"""A run that reports to trackers, and kills itself where it is told to.

python tests/faults/tracked_run.py DIRECTORY STEP_TO_BE_KILLED_AFTER TRACKER...
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import runs
import torch

from ostinato import Trainer, TrainerCallback, TrainingArguments


class Kill(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            time.sleep(1)  # trackers that send in the background have sent some of it
            os.kill(os.getpid(), signal.SIGKILL)


def main(directory: Path, step: int, trackers: list[str]) -> None:
    torch.manual_seed(7)
    args = TrainingArguments(
        str(directory / "run"), max_steps=10, per_device_train_batch_size=4, logging_steps=1, save_steps=4,
        eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=8, use_cpu=True, disable_tqdm=True,
        report_to=trackers, run_name="tracked", project="faults", dataloader_pin_memory=False,
    )  # fmt: skip
    rows = runs.data("rows")
    trainer = Trainer(runs.Model(), args, train_dataset=rows, eval_dataset=rows, callbacks=[Kill(step)])
    trainer.train(resume_from_checkpoint=True if list(directory.glob("run/checkpoint-*")) else None)
    trainer.log({"test_score": 1 / 3})
    (directory / "history.json").write_text(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
