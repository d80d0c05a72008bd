"""Classes of unequal size: the rare one weighs more in the loss."""

import sys

import numpy as np
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
draw = np.random.default_rng(0)
rows = []
for _ in range(48):
    label = int(draw.random() < 0.2)
    words = draw.integers(5 if label == 0 else 20, 40, size=12)
    rows.append({"input_ids": words.tolist(), "attention_mask": [1] * 12, "labels": label})
train, test = rows[:32], rows[32:]
counts = np.bincount([row["labels"] for row in train], minlength=2)
weights = torch.tensor(counts.sum() / (2 * counts), dtype=torch.float)


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits, labels, weight=weights.to(labels.device))
        return (loss, outputs) if return_outputs else loss


def compute_metrics(prediction):
    logits, labels = prediction
    predicted = np.argmax(logits, axis=-1)
    found = ((predicted == 1) & (labels == 1)).sum()
    return {"recall": found / max((labels == 1).sum(), 1), "accuracy": (predicted == labels).mean()}


config = BertConfig(
    vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=2
)
args = TrainingArguments(
    output_dir=sys.argv[1],
    num_train_epochs=3,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=2,
)
trainer = WeightedTrainer(
    model=BertForSequenceClassification(config),
    args=args,
    train_dataset=train,
    eval_dataset=test,
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate()["eval_recall"])
