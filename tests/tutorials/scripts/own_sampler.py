"""Rare classes are drawn more often: the sampler of training is replaced."""

import sys

import torch
from torch.utils.data import WeightedRandomSampler
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
ids = torch.randint(2, 30, (40, 8))
labels = (torch.rand(40) < 0.15).long()
rows = [{"input_ids": one, "labels": int(label)} for one, label in zip(ids, labels, strict=True)]
seen = []


class BalancedTrainer(Trainer):
    def _get_train_sampler(self, train_dataset=None):
        counts = torch.bincount(labels, minlength=2)
        weights = (1.0 / counts)[labels]
        generator = torch.Generator().manual_seed(self.args.seed)
        return WeightedRandomSampler(weights, num_samples=len(labels), generator=generator)

    def training_step(self, model, inputs, num_items_in_batch=None):
        seen.extend(inputs["labels"].tolist())
        return super().training_step(model, inputs, num_items_in_batch)


model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
)
args = TrainingArguments(sys.argv[1], num_train_epochs=2, learning_rate=1e-3, logging_steps=1, save_strategy="epoch")
trainer = BalancedTrainer(model=model, args=args, train_dataset=rows)
trainer.train()
print(f"{labels.float().mean():.3f} of the rows, {sum(seen) / len(seen):.3f} of what was seen")
