"""Knowledge distillation: a small model learns from the predictions of a large one.

    python examples/distillation.py

The teacher is an argument of the subclass, not of the batch: it computes its logits in `compute_loss`, without
gradients. Both terms of the loss are logged.
"""

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed


class Classifier(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        return {"loss": None if labels is None else nn.functional.cross_entropy(logits, labels), "logits": logits}


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher: nn.Module, temperature: float = 2.0, share: float = 0.8, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.temperature, self.share = temperature, share

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        with torch.no_grad():
            wanted = self.teacher(inputs["x"])["logits"]
        soft = nn.functional.kl_div(
            (outputs["logits"] / self.temperature).log_softmax(-1),
            (wanted / self.temperature).log_softmax(-1),
            log_target=True,
            reduction="batchmean",
        )
        losses = {
            "from_teacher": self.share * self.temperature**2 * soft,
            "from_labels": (1 - self.share) * outputs["loss"],
        }
        return (losses, outputs) if return_outputs else losses


def make_rows(count: int, flipped: float, seed: int):
    """Four classes; a share of the labels is wrong."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=draw)
    labels = 2 * (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] + x[:, 3] > 0).long()
    wrong = torch.rand(count, generator=draw) < flipped
    labels[wrong] = torch.randint(0, 4, (int(wrong.sum()),), generator=draw)
    return [{"x": row, "labels": label} for row, label in zip(x, labels)]


def train(kind, model, rows, test, epochs: int, **kwargs) -> float:
    args = TrainingArguments(
        "runs/distillation",
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=5e-3,
        logging_strategy="epoch",
        save_strategy="no",
    )
    trainer = kind(model, args, train_dataset=rows, eval_dataset=test, metrics=["accuracy"], **kwargs)
    trainer.train()
    return trainer.evaluate()["eval_accuracy"]


def main(epochs: int = 6) -> tuple[float, float, float]:
    """Train the teacher on many rows, and students on few; returns the accuracy of teacher, student alone, student."""
    test, few = make_rows(1000, 0.0, seed=3), make_rows(400, 0.3, seed=2)
    set_seed(0)
    teacher = Classifier(128)
    taught = train(Trainer, teacher, make_rows(4000, 0.0, seed=1), test, epochs)
    set_seed(0)
    alone = train(Trainer, Classifier(24), few, test, 4 * epochs)
    set_seed(0)
    distilled = train(DistillationTrainer, Classifier(24), few, test, 4 * epochs, teacher=teacher)
    print(f"\naccuracy: teacher {taught:.1%}; student alone {alone:.1%}, with its teacher {distilled:.1%}")
    return taught, alone, distilled


if __name__ == "__main__":
    main()
