"""A prediction step of one's own: metrics and `predict` see values in the units of the data.

    python examples/own_prediction_step.py

The model is trained on scaled prices and returns a mean and a spread. `prediction_step` says what one batch
contributes to an evaluation: here, a price and an interval.
"""

import numpy as np
import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed

MEAN, SCALE = 250_000.0, 90_000.0


class PriceModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x, labels=None):
        mean, log_spread = self.layers(x).unbind(-1)
        loss = None
        if labels is not None:
            loss = (log_spread + 0.5 * ((labels - mean) / log_spread.exp()) ** 2).mean()
        return {"loss": loss, "mean": mean, "log_spread": log_spread}


class PriceTrainer(Trainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """Return the loss, (price, low, high) and the true price of one batch."""
        loss, outputs, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        if prediction_loss_only or outputs is None:
            return loss, None, None
        mean, log_spread = outputs
        price, half = mean * SCALE + MEAN, 1.64 * log_spread.exp() * SCALE
        return loss, (price, price - half, price + half), None if labels is None else labels * SCALE + MEAN


def compute_metrics(prediction):
    (price, low, high), true = prediction.predictions, prediction.label_ids
    inside = (low <= true) & (true <= high)
    return {"off_by": float(np.abs(price - true).mean()), "inside_interval": float(inside.mean())}


def make_rows(count: int, seed: int):
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, generator=draw)
    prices = 100_000 + 300_000 * x[:, 0] * (1 + x[:, 1]) / 2 + 20_000 * torch.randn(count, generator=draw) * x[:, 2]
    return [{"x": row, "labels": (price - MEAN) / SCALE} for row, price in zip(x, prices)]


def main(epochs: int = 10) -> tuple[dict[str, float], np.ndarray]:
    """Train; returns the metrics, and a predicted price with its interval."""
    set_seed(0)
    trainer = PriceTrainer(
        PriceModel(),
        TrainingArguments(
            "runs/own_prediction_step",
            num_train_epochs=epochs,
            per_device_train_batch_size=32,
            learning_rate=5e-3,
            save_strategy="no",
        ),
        train_dataset=make_rows(1000, seed=1),
        eval_dataset=make_rows(300, seed=2),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    found = trainer.evaluate()
    rows = [{"x": torch.tensor([0.5, 0.5, 0.5])}]  # no label: predict needs none
    price, low, high = (float(part[0]) for part in trainer.predict(rows).predictions)
    print(f"\noff by {found['eval_off_by']:,.0f} on average; {found['eval_inside_interval']:.0%} inside the interval")
    print(f"a house: {price:,.0f}, between {low:,.0f} and {high:,.0f}")
    return found, np.array([price, low, high])


if __name__ == "__main__":
    main()
