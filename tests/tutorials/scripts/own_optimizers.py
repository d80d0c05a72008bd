"""An optimizer and a schedule made by hand, handed over as a tuple."""

import sys

import torch
from torch.optim import SGD
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    get_cosine_schedule_with_warmup,
    set_seed,
)

set_seed(42)
ids = torch.randint(2, 30, (40, 8))
rows = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids]
model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
)
args = TrainingArguments(
    output_dir=sys.argv[1],
    num_train_epochs=2,
    per_device_train_batch_size=4,
    logging_steps=2,
    save_strategy="steps",
    save_steps=10,
)
steps = 2 * len(rows) // args.train_batch_size
optimizer = SGD(
    [
        {"params": model.bert.parameters(), "lr": 0.05},
        {"params": model.classifier.parameters(), "lr": 0.5, "momentum": 0.9},
    ]
)
schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=4, num_training_steps=steps)
trainer = Trainer(model=model, args=args, train_dataset=rows, optimizers=(optimizer, schedule))
result = trainer.train()
print(result.global_step, result.training_loss)
