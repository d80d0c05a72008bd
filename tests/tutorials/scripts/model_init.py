"""A function that makes the model: every call of `train` begins with the same fresh weights."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
ids = torch.randint(2, 30, (32, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]


def model_init():
    return BertForSequenceClassification(
        BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )


args = TrainingArguments(sys.argv[1], max_steps=6, learning_rate=1e-3, seed=7, logging_steps=1, save_strategy="no")
trainer = Trainer(model_init=model_init, args=args, train_dataset=rows)
first = trainer.train()
weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
second = trainer.train()
print(first.training_loss, second.training_loss)
print(all(torch.equal(value, weights[name]) for name, value in trainer.model.state_dict().items()))
