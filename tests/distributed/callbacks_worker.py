"""What each process of the test of callbacks runs: `callbacks_worker.py OUT_DIR`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ostinato import (
    ConfigError,
    ControlFileCallback,
    EMACallback,
    FreezeCallback,
    GradientStatisticsCallback,
    TimeLimitCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from ostinato.callbacks import control_file

RANK = int(os.environ["RANK"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(torch.tanh(self.body(x))).squeeze(-1)
        return {"loss": ((logits - labels) ** 2).mean(), "logits": logits}


class Writes(TrainerCallback):
    """Writes the control file in the third step."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if RANK == 0 and state.global_step == 2:
            Path(args.output_dir, "control").write_text("save\nstop\n")


class Hurries(TimeLimitCallback):
    """Sees in one process alone that the time is up."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if RANK == 1 and state.global_step == 4:
            self._stop_if_due(float("inf"), 0.0)


def trainer(out: Path, callbacks: list[Any], **options: Any) -> Trainer:
    set_seed(1)
    draw = torch.Generator().manual_seed(7)
    rows = [{"x": torch.randn(4, generator=draw), "labels": torch.tensor(float(n % 3))} for n in range(32)]
    settings = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "learning_rate": 0.05, "save_steps": 2}
    args = TrainingArguments(
        str(out), per_device_train_batch_size=2, max_steps=12, logging_steps=2, **{**settings, **options}
    )
    return Trainer(Net(), args, train_dataset=rows, eval_dataset=rows[:8], callbacks=callbacks)


def numbers(model: nn.Module) -> list[float]:
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()]


def average_and_freeze(out: Path) -> dict[str, Any]:
    def make(where: Path) -> Trainer:
        callbacks = [EMACallback(0.8), FreezeCallback({"body": 5}), GradientStatisticsCallback(every=1)]
        options = {"eval_strategy": "steps", "eval_steps": 4, "ddp_find_unused_parameters": True}
        return trainer(where, callbacks, **options)

    whole, resumed = make(out / "whole"), make(out / "resumed")
    begin = whole.model.body.weight.detach().clone()
    held = []

    class Held(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            held.append(torch.equal(model.body.weight, begin))

    whole.add_callback(Held)
    whole.train()
    resumed.train(resume_from_checkpoint=str(out / "whole" / "checkpoint-4"))
    return {
        "weights": numbers(whole.model),
        "resumed": numbers(whole.model) == numbers(resumed.model),
        "held": held,
        "lost": [entry["updates_lost"] for entry in whole.state.log_history if "updates_lost" in entry],
    }


def refused(out: Path) -> str:
    try:
        trainer(out, [FreezeCallback({"body": 5})]).train()
    except ConfigError as error:
        return error.what
    return "not refused"


def main(out: Path) -> None:
    control_file.SECONDS_BETWEEN_LOOKS = 0.0
    found: dict[str, Any] = {"average": average_and_freeze(out / "average"), "refused": refused(out / "refused")}
    stopped = trainer(out / "stopped", [Writes(), ControlFileCallback()])
    stopped.train()
    hurried = trainer(out / "hurried", [Hurries(hours=1)])
    hurried.train()
    found.update(stopped=stopped.state.global_step, hurried=hurried.state.global_step)
    (out / f"rank-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
