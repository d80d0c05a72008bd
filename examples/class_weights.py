"""Weigh rare classes more: a loss function of one's own, passed and not subclassed.

    python examples/class_weights.py

One row in twenty is of the rare class. Without weights the model hardly ever says so; with weights it finds most.
"""

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed

RARE = 0.05


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, labels=None):
        return {"logits": self.layers(x)}


def make_rows(count: int, seed: int):
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=draw) < RARE).long()
    points = torch.randn(count, 4, generator=draw) + 0.9 * labels[:, None]
    return [{"x": x, "labels": label} for x, label in zip(points, labels)]


class WeightedLoss:
    """A mean over the rows of the whole optimizer step: the sum, divided by `num_items_in_batch`.

    In an evaluation there is no step: the batch is divided by its own weight, as torch does it.
    """

    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights

    def __call__(self, outputs, labels, num_items_in_batch=None):
        logits = outputs["logits"]
        if num_items_in_batch is None:
            return nn.functional.cross_entropy(logits, labels, self.weights)
        return nn.functional.cross_entropy(logits, labels, self.weights, reduction="sum") / num_items_in_batch


def compute_metrics(prediction):
    guesses, labels = prediction.logits.argmax(-1), prediction.labels
    return {f"recall_of_{name}": float((guesses[labels == c] == c).mean()) for c, name in enumerate(["usual", "rare"])}


def train(loss_func, epochs: int) -> dict[str, float]:
    set_seed(0)
    trainer = Trainer(
        Classifier(),
        TrainingArguments(
            "runs/class_weights",
            num_train_epochs=epochs,
            learning_rate=1e-2,
            per_device_train_batch_size=64,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=make_rows(3000, seed=1),
        eval_dataset=make_rows(2000, seed=2),
        compute_loss_func=loss_func,
        compute_metrics=compute_metrics,
    )
    trainer.train()
    return trainer.evaluate()


def main(epochs: int = 4) -> tuple[float, float]:
    """Train twice; returns the recall of the rare class without weights and with."""
    # Weights that add up to as much for the rare class as for the other, and to 1 on average over the rows.
    weights = torch.tensor([0.5 / (1 - RARE), 0.5 / RARE])
    plain = train(WeightedLoss(torch.ones(2)), epochs)["eval_recall_of_rare"]
    weighted = train(WeightedLoss(weights), epochs)["eval_recall_of_rare"]
    print(f"\nThe rare class is found in {plain:.0%} of its rows without weights, in {weighted:.0%} with them")
    return plain, weighted


if __name__ == "__main__":
    main()
