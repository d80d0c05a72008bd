"""An evaluation loop of one's own: every batch is predicted many times with dropout, for a mean and a spread.

    python examples/own_evaluation_loop.py

`evaluate` and `predict` both call `evaluation_loop`. What it returns is logged and handed to callbacks as usual, so
`metric_for_best_model`, the progress bar and trackers work with the new metrics.
"""

import numpy as np
import torch
from torch import nn

from ostinato import EvalLoopOutput, Trainer, TrainingArguments, set_seed


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))

    def forward(self, x, labels=None):
        guess = self.layers(x).squeeze(-1)
        return {"loss": None if labels is None else nn.functional.mse_loss(guess, labels), "logits": guess}


class RepeatedEvaluation(Trainer):
    """Predict each batch `repeats` times with dropout switched on."""

    repeats = 20

    def evaluation_loop(
        self, dataloader, description, prediction_loss_only=None, ignore_keys=None, metric_key_prefix="eval"
    ):
        model = self._wrap_model(self.model, training=False)
        means, spreads, labels = [], [], []
        was_training = model.training
        model.train()  # dropout on; nothing is learned under no_grad
        try:
            for batch in dataloader:
                inputs = self._prepare_inputs(batch)
                with torch.no_grad():
                    draws = torch.stack([model(x=inputs["x"])["logits"] for _ in range(self.repeats)])
                means.append(draws.mean(0).cpu().numpy())
                spreads.append(draws.std(0).cpu().numpy())
                labels.append(inputs["labels"].cpu().numpy())
                self.callback_handler.on_prediction_step(self.args, self.state, self.control)  # moves the bar
        finally:
            model.train(was_training)
        mean, spread, label = (np.concatenate(parts) for parts in (means, spreads, labels))
        metrics = {
            f"{metric_key_prefix}_loss": float(((mean - label) ** 2).mean()),
            f"{metric_key_prefix}_spread": float(spread.mean()),
        }
        return EvalLoopOutput((mean, spread), label, metrics, len(label))


def make_rows(low: float, high: float, count: int):
    x = torch.rand(count) * (high - low) + low
    return [{"x": value[None], "labels": torch.sin(3 * value)} for value in x]


def main(epochs: int = 15) -> tuple[float, float]:
    """Train on [-1, 1]; returns the spread of the predictions there, and where no row was."""
    set_seed(0)
    trainer = RepeatedEvaluation(
        Net(),
        TrainingArguments(
            "runs/own_evaluation_loop",
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=1e-2,
            eval_strategy="epoch",
            save_strategy="no",
        ),
        train_dataset=make_rows(-1, 1, 512),
        eval_dataset={"inside": make_rows(-1, 1, 100), "outside": make_rows(2, 3, 100)},
    )
    trainer.train()
    found = trainer.evaluate()
    inside, outside = found["eval_inside_spread"], found["eval_outside_spread"]
    print(f"\nspread of the predictions: {inside:.2f} where the training rows are, {outside:.2f} where there are none")
    return inside, outside


if __name__ == "__main__":
    main()
