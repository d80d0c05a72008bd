"""An optimizer and a schedule of one's own.

    python examples/own_optimizer.py

Two ways: objects that exist already are passed as `optimizers=(optimizer, schedule)`. What has to be made when the
model is on its device, or anew in every `train`, is made in `create_optimizer` and `create_scheduler`.
"""

import math

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 32), nn.Tanh()), nn.Linear(32, 1)

    def forward(self, x, labels=None):
        guess = self.head(self.body(x)).squeeze(-1)
        return {"loss": None if labels is None else nn.functional.mse_loss(guess, labels), "logits": guess}


class SlowBody(Trainer):
    """The body learns at a tenth of the rate of the head; both rates rise, then fall like a cosine with two waves."""

    def create_optimizer(self, model=None):
        if self.optimizer is None:  # one that was passed stays
            net, rate = model if model is not None else self.model, self.args.learning_rate
            groups = [
                {"params": net.body.parameters(), "lr": 0.1 * rate},
                {"params": net.head.parameters(), "lr": rate},
            ]
            self.optimizer = torch.optim.RAdam(groups, weight_decay=self.args.weight_decay)
        return self.optimizer

    def create_scheduler(self, num_training_steps, optimizer=None):
        if self.lr_scheduler is None:
            warmup = num_training_steps // 10

            def factor(step: int) -> float:
                if step < warmup:
                    return step / warmup
                progress = (step - warmup) / (num_training_steps - warmup)
                return 0.5 * (1 + math.cos(2 * math.pi * ((2 * progress) % 1.0) / 2))

            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, factor)
        return self.lr_scheduler


def make_rows():
    x = torch.randn(512, 6)
    return [{"x": row, "labels": value} for row, value in zip(x, torch.sin(x).sum(-1))]


def main(steps: int = 120) -> tuple[list[float], list[float]]:
    """Train both ways; returns the rates of the head in the first run, and the last losses of both."""
    set_seed(0)
    rows = make_rows()
    options = dict(
        max_steps=steps, learning_rate=2e-2, per_device_train_batch_size=32, logging_steps=10, save_strategy="no"
    )

    trainer = SlowBody(Net(), TrainingArguments("runs/own_optimizer", **options), train_dataset=rows)
    trainer.train()
    body, head = trainer.get_learning_rates()
    print(f"rates of the first: body {body:.2e}, head {head:.2e}")

    set_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps + 1)
    passed = Trainer(
        net,
        TrainingArguments("runs/own_optimizer", **options),
        train_dataset=rows,
        optimizers=(optimizer, schedule),
    )
    passed.train()

    rates = [line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line]
    losses = [[line["loss"] for line in one.state.log_history if "loss" in line] for one in (trainer, passed)]
    for name, curve in zip(("create_optimizer", "optimizers="), losses):
        print(f"{name:17} loss {curve[0]:.3f} -> {curve[-1]:.3f}")
    return rates, [losses[0][-1] / losses[0][0], losses[1][-1] / losses[1][0]]


if __name__ == "__main__":
    main()
