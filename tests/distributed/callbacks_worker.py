"""What each process of the test of callbacks runs: `callbacks_worker.py OUT_DIR`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
    """Writes the control file while a step is taken."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts = texts

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if RANK == 0 and state.global_step + 1 in self.texts:
            Path(args.output_dir, "control").write_text(self.texts[state.global_step + 1])


class Sleeps:
    """Stands in for `time.sleep`: does something instead."""

    def __init__(self, then: Callable[[], Any]) -> None:
        self.count, self.then = 0, then

    def __call__(self, seconds: float) -> None:
        self.count += 1
        if self.count == 3:
            self.then()


class Hurries(TimeLimitCallback):
    """Sees in one process alone that the time is up."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if RANK == 1 and state.global_step == 4:
            self._stop_if_due(float("inf"), 0.0)


def trainer(out: Path, callbacks: list[Any], **options: Any) -> Trainer:
    set_seed(1)
    draw = torch.Generator().manual_seed(7)
    rows = [{"x": torch.randn(4, generator=draw), "labels": torch.tensor(float(n % 3))} for n in range(32)]
    settings = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "learning_rate": 0.05,
        "max_steps": 12,
        "logging_steps": 2,
        "save_steps": 2,
    }
    args = TrainingArguments(str(out), per_device_train_batch_size=2, **{**settings, **options})
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


def obey(out: Path) -> dict[str, Any]:
    """Every command, a pause among them; only the first process can see the file."""
    writes = Writes({3: "save\nevaluate\nlog\nlr x0.5\n", 13: "pause\nlr 0.01\n"})
    options = {"max_steps": 24, "logging_steps": 8, "save_steps": 100, "eval_strategy": "steps", "eval_steps": 100}
    obedient = trainer(out, [writes, ControlFileCallback()], **options)
    sleeps = Sleeps(lambda: (out / "control").write_text("log\nresume\n") if RANK == 0 else None)
    with patch.object(control_file.time, "sleep", sleeps):
        obedient.train()
    history = obedient.state.log_history
    return {
        "sleeps": sleeps.count,
        "weights": numbers(obedient.model),
        "rates": {entry["step"]: entry["learning_rate"] for entry in history if "learning_rate" in entry},
        "evaluated": [entry["step"] for entry in history if "eval_loss" in entry],
    }


def stopped_in_a_pause(out: Path) -> dict[str, Any]:
    """A signal to one process that waits ends all of them."""
    waiting = trainer(out, [Writes({3: "pause\n"}), ControlFileCallback()], max_steps=30)
    sleeps = Sleeps(lambda: os.kill(os.getpid(), signal.SIGTERM) if RANK == 1 else None)
    with patch.object(control_file.time, "sleep", sleeps):
        try:
            waiting.train()
        except SystemExit as left:
            return {"code": left.code, "step": waiting.state.global_step}
    return {}


def refused(out: Path, callbacks: list[Any]) -> str:
    try:
        trainer(out, callbacks).train()
    except ConfigError as error:
        return error.what
    return "not refused"


def unseen(path: Path) -> str | None:
    raise AssertionError("only the first process has the file on its disk")


def main(out: Path) -> None:
    control_file.SECONDS_BETWEEN_LOOKS = 0.0
    if RANK == 1:
        control_file._read_text = unseen
    found: dict[str, Any] = {
        "average": average_and_freeze(out / "average"),
        "obeyed": obey(out / "obeyed"),
        "in a pause": stopped_in_a_pause(out / "paused"),
        "frozen": refused(out / "frozen", [FreezeCallback({"body": 5})]),
        "one": refused(out / "one", [ControlFileCallback()] if RANK == 0 else []),
    }
    stopped = trainer(out / "stopped", [Writes({3: "stop\n"}), ControlFileCallback()])
    stopped.train()
    hurries = Hurries(hours=1)
    hurried = trainer(out / "hurried", [hurries])
    hurried.train()
    found.update(stopped=stopped.state.global_step, hurried=hurried.state.global_step)
    found["reckons with"] = hurries._heard_every
    (out / f"rank-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
