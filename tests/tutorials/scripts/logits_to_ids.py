"""A language model's logits are large: only the chosen ids are kept for the metric."""

import sys

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(42)
start = torch.randint(0, 20, (40, 1))
ids = (start + torch.arange(10)) % 20  # counting, modulo 20
rows = [{"input_ids": row, "labels": row} for row in ids]


def preprocess_logits_for_metrics(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(prediction):
    predicted, labels = prediction
    assert predicted.ndim == 2 and predicted.dtype == np.int64
    return {"accuracy": float((predicted[:, :-1] == labels[:, 1:]).mean())}


model = LlamaForCausalLM(
    LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=3,
    learning_rate=2e-2,
    eval_strategy="epoch",
    eval_accumulation_steps=2,
    logging_strategy="epoch",
    save_strategy="no",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=rows[:32],
    eval_dataset=rows[32:],
    compute_metrics=compute_metrics,
    preprocess_logits_for_metrics=preprocess_logits_for_metrics,
)
trainer.train()
print(trainer.evaluate(metric_key_prefix="final")["final_accuracy"])
