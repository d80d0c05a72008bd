"""First the head alone, then everything with a smaller rate: two trainers, one model; then a few steps more."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
ids = torch.randint(2, 30, (40, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
)

for parameter in model.base_model.parameters():
    parameter.requires_grad = False
head = Trainer(
    model=model,
    args=TrainingArguments(f"{sys.argv[1]}/head", max_steps=5, learning_rate=1e-2, logging_steps=1, save_steps=5),
    train_dataset=rows,
)
head.train()

for parameter in model.base_model.parameters():
    parameter.requires_grad = True
full = Trainer(
    model=model,
    args=TrainingArguments(f"{sys.argv[1]}/full", max_steps=5, learning_rate=1e-3, logging_steps=1, save_steps=5),
    train_dataset=rows,
    eval_dataset=rows[:8],
)
full.train()
full.train()  # a second time: the optimizer and the data begin anew, the weights do not
print(full.evaluate()["eval_loss"], full.state.global_step)
