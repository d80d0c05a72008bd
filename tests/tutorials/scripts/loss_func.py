"""A loss handed over as a function: focal loss, divided by the number of targets of the whole step."""

import sys

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
ids = torch.randint(2, 30, (48, 8))
rows = [{"input_ids": one, "labels": int(one[0]) % 3} for one in ids]


def focal_loss(outputs, labels, num_items_in_batch=None, gamma=2.0):
    log_probability = nn.functional.log_softmax(outputs.logits, dim=-1).gather(1, labels[:, None]).squeeze(1)
    losses = -((1 - log_probability.exp()) ** gamma) * log_probability
    count = num_items_in_batch if num_items_in_batch is not None else losses.numel()
    return losses.sum() / count


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
)
args = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    learning_rate=2e-3,
    logging_steps=2,
    eval_strategy="epoch",
    save_strategy="epoch",
)
trainer = Trainer(
    model=model, args=args, train_dataset=rows[:32], eval_dataset=rows[32:], compute_loss_func=focal_loss
)
trainer.train()
