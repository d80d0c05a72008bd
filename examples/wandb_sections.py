"""Sections of one's own in Weights & Biases: what decides the name of a chart.

    python examples/wandb_sections.py            # writes an offline run into wandb/

A name in the log becomes the name of a chart in the tracker: `eval_` and `test_` become sections, and the rest goes to
`train/` (`rewrite_logs`). So there are three ways to another section: a prefix in `evaluate`, a prefix in the metric's
name, and a tracker that keeps the names as they are.
"""

import os

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, WandbCallback, set_seed

SECTIONS = {"eval_": "validation", "test_": "test", "optim_": "optimizer"}


class Sections:
    """Rename the numbers of a tracker: put it before the tracker's class."""

    prefixed = False  # names go to the tracker as `on_log` passes them

    def on_log(self, args, state, control, logs=None, **kwargs):
        return super().on_log(args, state, control, logs={self.rename(name): v for name, v in logs.items()}, **kwargs)

    def rename(self, name: str) -> str:
        if name in ("learning_rate", "grad_norm"):
            name = f"optim_{name}"
        for prefix, section in SECTIONS.items():
            if name.startswith(prefix):
                return f"{section}/{name[len(prefix) :]}"
        return f"train/{name}"


class SectionedWandb(Sections, WandbCallback):
    """wandb with sections called validation, test, optimizer and train."""


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        guess = self.inner(x)
        return {"loss": nn.functional.mse_loss(guess, labels), "logits": guess}


def main(tracker=SectionedWandb, steps: int = 20) -> dict[str, float]:
    """Train with a tracker; returns the metrics of a second set, under a prefix of their own."""
    set_seed(0)
    x = torch.linspace(-1, 1, 64)[:, None]
    rows = [{"x": one, "labels": 2 * one + 1} for one in x]
    trainer = Trainer(
        Line(),
        TrainingArguments(
            "runs/wandb_sections",
            max_steps=steps,
            logging_steps=5,
            eval_strategy="steps",
            eval_steps=10,
            learning_rate=0.1,
            save_strategy="no",
            report_to="none",  # the tracker is passed as a callback
        ),
        train_dataset=rows,
        eval_dataset=rows[::4],
        callbacks=[tracker],
    )
    trainer.train()
    return trainer.evaluate(rows[::8], metric_key_prefix="test")  # logged as test_loss, charted as test/loss


if __name__ == "__main__":
    os.environ.setdefault("WANDB_MODE", "offline")
    main()
