"""A cosine with warm-up (a share of the steps), the rate of every step in the log."""

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
    output_dir=sys.argv[1],
    num_train_epochs=3,
    per_device_train_batch_size=8,
    learning_rate=2e-3,
    lr_scheduler_type="cosine_with_restarts",
    lr_scheduler_kwargs={"num_cycles": 2},
    warmup_steps=0.2,
    logging_steps=1,
    save_strategy="no",
)
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
print([entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry])
