"""The forward pass compiled (here with the eager backend, which needs no compiler on the machine)."""

import sys

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 2))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


set_seed(42)
model = Net()
model.compile(backend="eager")
x = torch.randn(32, 8)
rows = [{"x": one, "labels": int(one.sum() > 0)} for one in x]
args = TrainingArguments(
    sys.argv[1],
    max_steps=6,
    learning_rate=1e-2,
    logging_steps=2,
    eval_strategy="steps",
    eval_steps=3,
    save_steps=3,
    dataloader_drop_last=True,
)
trainer = Trainer(model=model, args=args, train_dataset=rows[:24], eval_dataset=rows[24:])
trainer.train()
