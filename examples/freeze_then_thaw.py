"""Freeze a part of a model, train the rest, then train all.

    python examples/freeze_then_thaw.py

A new head on a trained body: in the first steps the head's gradient is noise that would damage the body. So the body
is frozen until the head has learned something. `FreezeCallback` does it by name and pattern, exactly when resumed too.
"""

import copy

import torch
from torch import nn

from ostinato import FreezeCallback, Trainer, TrainerCallback, TrainingArguments, set_seed


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.head = nn.Linear(32, 1)

    def forward(self, x, labels=None):
        guess = self.head(self.body(x)).squeeze(-1)
        return {"loss": None if labels is None else nn.functional.mse_loss(guess, labels), "logits": guess}


class Watch(TrainerCallback):
    """Record whether the body has changed."""

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.before, self.first_change = copy.deepcopy(model.body.state_dict()), None

    def on_step_end(self, args, state, control, model=None, **kwargs):
        changed = any(not torch.equal(self.before[name], value) for name, value in model.body.state_dict().items())
        if changed and self.first_change is None:
            self.first_change = state.global_step


def main(frozen: int = 30, steps: int = 60) -> tuple[int, list[float]]:
    """Train; returns the first step that changed the body, and the losses."""
    set_seed(0)
    x = torch.randn(512, 8)
    rows = [{"x": row, "labels": row.sin().sum()} for row in x]
    watch = Watch()
    trainer = Trainer(
        Net(),
        TrainingArguments(
            "runs/freeze_then_thaw",
            max_steps=steps,
            learning_rate=1e-2,
            per_device_train_batch_size=32,
            logging_steps=10,
            save_strategy="no",
        ),
        train_dataset=rows,
        callbacks=[FreezeCallback({"body": frozen}), watch],
    )
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    print(f"\nthe body stayed as it was for {watch.first_change - 1} steps; loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    return watch.first_change, losses


if __name__ == "__main__":
    main()
