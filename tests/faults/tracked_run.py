"""A run that reports to trackers, is killed, and goes on in another process to its end.

python -m tests.faults.tracked_run DIRECTORY STEP_TO_BE_KILLED_AFTER TRACKER...

Both are copies of a process that has imported the trackers' packages, which takes longer than the runs. How each of
them ended is in `codes.json`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch

from ostinato import Trainer, TrainerCallback, TrainingArguments
from tests.support import fault_runs

NEVER = -1


class Kill(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            time.sleep(1)  # trackers that send in the background have sent some of it
            os.kill(os.getpid(), signal.SIGKILL)


def train(directory: Path, step: int, trackers: list[str]) -> None:
    torch.manual_seed(7)
    args = TrainingArguments(
        str(directory / "run"), max_steps=10, per_device_train_batch_size=4, logging_steps=1, save_steps=4,
        eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=8, use_cpu=True, disable_tqdm=True,
        report_to=trackers, run_name="tracked", project="faults", dataloader_pin_memory=False,
    )  # fmt: skip
    rows = fault_runs.data("rows")
    trainer = Trainer(fault_runs.Model(), args, train_dataset=rows, eval_dataset=rows, callbacks=[Kill(step)])
    trainer.train(resume_from_checkpoint=True if list(directory.glob("run/checkpoint-*")) else None)
    trainer.log({"test_score": 1 / 3})
    (directory / "history.json").write_text(json.dumps(trainer.state.log_history))


def main(directory: Path, step: int, trackers: list[str]) -> None:
    for package in filter(find_spec, trackers):
        importlib.import_module(package)
    codes = []
    for killed_after in (step, NEVER):
        child = os.fork()
        if child == 0:
            train(directory, killed_after, trackers)
            return  # and ends as any program does: trackers have something to do then
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    (directory / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
