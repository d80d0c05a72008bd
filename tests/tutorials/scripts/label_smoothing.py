"""Label smoothing by an argument, for a classifier."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
ids = torch.randint(2, 30, (48, 8))
rows = [{"input_ids": one, "labels": int(one[0]) % 3} for one in ids]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
)
args = TrainingArguments(
    sys.argv[1],
    label_smoothing_factor=0.1,
    num_train_epochs=3,
    learning_rate=3e-3,
    max_grad_norm=0.5,
    logging_steps=4,
    eval_strategy="epoch",
    save_strategy="no",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=rows[:32],
    eval_dataset=rows[32:],
    compute_metrics=lambda p: {"accuracy": (p.predictions.argmax(-1) == p.label_ids).mean()},
)
trainer.train()
