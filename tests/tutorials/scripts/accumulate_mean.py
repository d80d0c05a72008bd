"""Gradient accumulation with a classifier; a second argument says in how many parts a batch of eight is cut."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
parts = int(sys.argv[2]) if len(sys.argv) > 2 else 4
ids = torch.randint(2, 30, (40, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
)
args = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=8 // parts,
    gradient_accumulation_steps=parts,
    max_steps=8,
    optim="sgd",
    learning_rate=0.1,
    max_grad_norm=0.2,
    logging_steps=1,
    save_steps=8,
)
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
