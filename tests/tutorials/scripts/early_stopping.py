"""Stop when the evaluation no longer improves, and go back to the best weights."""

import sys

import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
ids = torch.randint(2, 40, (48, 8))
labels = torch.randint(0, 2, (48,))  # nothing to learn: the evaluation soon gets worse
data = Dataset.from_dict({"input_ids": ids.tolist(), "labels": labels.tolist()})
data = data.train_test_split(test_size=16, shuffle=False)
model = BertForSequenceClassification(
    BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
)
args = TrainingArguments(
    output_dir=sys.argv[1],
    eval_strategy="steps",
    eval_steps=4,
    save_strategy="steps",
    save_steps=4,
    save_total_limit=3,
    num_train_epochs=20,
    learning_rate=2e-3,
    logging_steps=4,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=False,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    callbacks=[EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.001)],
)
trainer.train()
print(trainer.state.best_metric, trainer.state.global_step)
print(trainer.evaluate()["eval_loss"] == trainer.state.best_metric)
