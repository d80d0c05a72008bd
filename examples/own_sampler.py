"""An order of one's own: easy rows first, passed as `sampler=`.

    python examples/own_sampler.py

Sequences of digits are added up; short ones come first. `set_epoch` is called before every epoch, so the order can
depend on it, and a resumed run continues at the same row.
"""

import torch
from torch import nn
from torch.utils.data import Sampler

from ostinato import Trainer, TrainingArguments, set_seed


class EasyFirst(Sampler[int]):
    """Yield the shorter half of the rows in the first epoch, and a growing share of all in the next.

    The order is a function of seed and epoch and of nothing else: that is what makes resuming exact.
    """

    def __init__(self, difficulty: list[int], epochs_until_all: int, seed: int = 0) -> None:
        self.by_difficulty = sorted(range(len(difficulty)), key=difficulty.__getitem__)
        self.epochs_until_all, self.seed, self.epoch = epochs_until_all, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.by_difficulty)

    def __iter__(self):
        share = min(1.0, 0.5 + 0.5 * self.epoch / self.epochs_until_all)
        easy = self.by_difficulty[: max(1, int(share * len(self)))]
        draw = torch.Generator().manual_seed(self.seed + self.epoch)
        yield from (easy[i] for i in torch.randint(len(easy), (len(self),), generator=draw).tolist())


class Adder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(11, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, input_ids, labels=None):
        sums = self.head(self.rnn(self.embed(input_ids))[0][:, -1]).squeeze(-1)
        return {"loss": None if labels is None else nn.functional.l1_loss(sums, labels), "logits": sums}


def make_rows(count: int):
    rows = []
    for length in torch.randint(1, 9, (count,)).tolist():
        digits = torch.randint(0, 10, (length,))
        ids = nn.functional.pad(digits + 1, (8 - length, 0))  # 0 is padding, on the left
        rows.append({"input_ids": ids, "labels": digits.sum().float(), "length": length})
    return rows


def main(epochs: int = 4) -> list[float]:
    """Train; returns the mean length of the rows that each epoch saw."""
    set_seed(0)
    rows = make_rows(800)
    sampler = EasyFirst([row["length"] for row in rows], epochs_until_all=epochs - 1)
    trainer = Trainer(
        Adder(),
        TrainingArguments(
            "runs/own_sampler",
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            logging_strategy="epoch",
            save_strategy="no",
        ),
        train_dataset=rows,
        sampler=sampler,
    )
    trainer.train()
    lengths = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        seen = list(sampler)
        lengths.append(sum(rows[i]["length"] for i in seen) / len(seen))
        print(f"epoch {epoch + 1}: rows of {lengths[-1]:.1f} digits on average")
    return lengths


if __name__ == "__main__":
    main()
