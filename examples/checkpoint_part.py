"""A part of one's own in every checkpoint, restored when a run is resumed.

    python examples/checkpoint_part.py

A callback keeps the mean of each class's vectors as it sees them in training. It inherits from `TensorState`: its
tensors are written into every checkpoint, with the same guarantees as the weights, and are there again in a resumed
run. Beside them a file of its own goes into the checkpoint, for programs that use the model.
"""

import json
from pathlib import Path

import torch
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments, set_seed
from ostinato.core.state import TensorState


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.head = nn.Linear(16, 3)
        self.last = None

    def forward(self, x, labels=None):
        vectors = self.layers(x)
        if self.training:
            self.last = (vectors.detach(), labels)
        logits = self.head(vectors)
        return {"loss": None if labels is None else nn.functional.cross_entropy(logits, labels), "logits": logits}


class ClassMeans(TrainerCallback, TensorState):
    """The running mean of the vectors of each class."""

    def __init__(self) -> None:
        self.sums, self.counts = torch.zeros(3, 16), torch.zeros(3)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        vectors, labels = model.last
        self.sums.index_add_(0, labels.cpu(), vectors.cpu())
        self.counts += torch.bincount(labels.cpu(), minlength=3)

    def tensor_state(self):
        return {"sums": self.sums, "counts": self.counts}

    def load_tensor_state(self, state):
        self.sums, self.counts = state["sums"], state["counts"]


class WithClassNames(Trainer):
    """Write a file beside the weights: what `_save` writes is covered by the checkpoint's checksums."""

    names = ("low", "middle", "high")

    def _save(self, output_dir=None, state_dict=None):
        super()._save(output_dir, state_dict)
        Path(output_dir or self.args.output_dir, "classes.json").write_text(json.dumps(self.names))


def train(steps: int, means: ClassMeans, rows, directory: str, resume: bool = False) -> None:
    set_seed(0)
    args = TrainingArguments(
        directory, max_steps=steps, per_device_train_batch_size=16, learning_rate=1e-2, save_steps=10
    )
    mode = "extend" if resume else "resume"  # the second run goes further than the first was planned
    trainer = WithClassNames(Encoder(), args, train_dataset=rows, callbacks=[means])
    trainer.train(resume_from_checkpoint=resume, resume_mode=mode)


def main(directory: str = "runs/checkpoint_part") -> tuple[torch.Tensor, torch.Tensor]:
    """Train 20 steps, then 20 more in a new trainer; returns the rows of each class that both callbacks counted."""
    set_seed(0)
    x = torch.randn(320, 4)
    rows = [{"x": row, "labels": int(torch.bucketize(row.sum(), torch.tensor([-1.0, 1.0])))} for row in x]
    first, second = ClassMeans(), ClassMeans()
    train(20, first, rows, directory)
    train(40, second, rows, directory, resume=True)
    print(f"\nrows seen by the first run {int(first.counts.sum())}, and by both {int(second.counts.sum())}")
    print("in the checkpoint:", *sorted(path.name for path in Path(directory, "checkpoint-40").iterdir()))
    return first.counts, second.counts


if __name__ == "__main__":
    main()
