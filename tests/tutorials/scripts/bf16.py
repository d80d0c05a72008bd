"""Mixed precision with bfloat16; weights and optimizer stay in float32."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
ids = torch.randint(2, 30, (40, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
)
args = TrainingArguments(
    sys.argv[1],
    bf16=True,
    use_cpu=True,
    max_steps=10,
    learning_rate=1e-3,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=5,
    save_steps=5,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=rows[:32],
    eval_dataset=rows[32:],
    compute_metrics=lambda p: {"mean": float(p.predictions.mean()), "kind": float(p.predictions.dtype.itemsize)},
)
trainer.train()
print({str(one.dtype) for one in model.parameters()})
