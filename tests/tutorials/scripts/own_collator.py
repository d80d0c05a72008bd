"""A collator of one's own: pads to the longest text of a batch, and makes a feature on the fly."""

import random
import sys
from dataclasses import dataclass

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed


@dataclass
class PadAndCount:
    pad: int = 0

    def __call__(self, rows):
        longest = max(len(row["tokens"]) for row in rows)
        ids = torch.tensor([row["tokens"] + [self.pad] * (longest - len(row["tokens"])) for row in rows])
        return {
            "ids": ids,
            "lengths": torch.tensor([len(row["tokens"]) for row in rows]),
            "labels": torch.tensor([row["target"] for row in rows]),
        }


class Bag(nn.Module):
    """The mean of word vectors, and a layer over it."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16, padding_idx=0)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, 3)

    def forward(self, ids, lengths, labels=None):
        logits = self.head(self.drop(self.words(ids).sum(1) / lengths.unsqueeze(1)))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


set_seed(42)
draw = random.Random(0)
rows = []
for _ in range(50):
    target = draw.randrange(3)
    rows.append(
        {
            "tokens": [draw.randrange(1 + 6 * target, 8 + 6 * target) for _ in range(draw.randrange(2, 9))],
            "target": target,
        }
    )
args = TrainingArguments(
    sys.argv[1],
    remove_unused_columns=False,
    num_train_epochs=3,
    learning_rate=2e-2,
    logging_steps=5,
    eval_strategy="epoch",
    save_strategy="epoch",
)
trainer = Trainer(
    model=Bag(),
    args=args,
    data_collator=PadAndCount(),
    train_dataset=rows[:40],
    eval_dataset=rows[40:],
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
)
trainer.train()
