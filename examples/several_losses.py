"""Several losses in one log: `compute_loss` returns them by name.

    python examples/several_losses.py

An autoencoder is trained on the sum of three terms. Each appears in the log and, with the prefix eval_,
in evaluations.
"""

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 2 * 3), nn.Linear(3, 8)

    def forward(self, x):
        mean, log_variance = self.into(x).chunk(2, -1)
        noise = torch.randn_like(mean) if self.training else torch.zeros_like(mean)
        code = mean + noise * (0.5 * log_variance).exp()
        return {"logits": self.out(code), "mean": mean, "log_variance": log_variance}


class ThreeLosses(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(inputs["x"])
        mean, log_variance = outputs["mean"], outputs["log_variance"]
        losses = {  # the model is trained on their sum; with an entry called "loss", on that one
            "reconstruction": nn.functional.mse_loss(outputs["logits"], inputs["x"]),
            "divergence": 0.01 * (mean**2 + log_variance.exp() - 1 - log_variance).mean(),
            "sparsity": 0.001 * mean.abs().mean(),
        }
        self.track("code_size", mean.detach().norm(dim=-1).mean(), weight=len(mean))  # logged, not trained on
        return (losses, outputs) if return_outputs else losses


def make_rows(count: int):
    hidden = torch.randn(count, 2)
    return [{"x": x} for x in torch.tanh(hidden @ torch.randn(2, 8))]


def main(steps: int = 200) -> list[dict[str, float]]:
    """Train; returns the log."""
    set_seed(0)
    rows = make_rows(1000)
    trainer = ThreeLosses(
        Autoencoder(),
        TrainingArguments(
            "runs/several_losses",
            max_steps=steps,
            learning_rate=1e-2,
            per_device_train_batch_size=32,
            gradient_accumulation_steps=2,  # the numbers of both micro-batches are averaged
            logging_steps=steps // 4,
            eval_strategy="steps",
            eval_steps=steps // 2,
            save_strategy="no",
        ),
        train_dataset=rows[:800],
        eval_dataset=rows[800:],
    )
    trainer.can_return_loss = True  # rows without labels: an evaluation computes the loss all the same
    trainer.train()
    for line in trainer.state.log_history:
        if "reconstruction" in line:
            parts = " + ".join(f"{line[name]:.4f}" for name in ("reconstruction", "divergence", "sparsity"))
            print(f"step {line['step']:4}  loss {line['loss']:.4f} = {parts}   code size {line['code_size']:.2f}")
    return trainer.state.log_history


if __name__ == "__main__":
    main()
