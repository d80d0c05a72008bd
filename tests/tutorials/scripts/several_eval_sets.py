"""Two evaluation sets, each with its own name in the logs; the best model is chosen by one of them."""

import sys

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)


def make(size, low, seed):
    draw = np.random.default_rng(seed)
    ids = draw.integers(low, 40, size=(size, 8))
    return Dataset.from_dict({"input_ids": ids.tolist(), "label": (ids.sum(axis=1) % 2).tolist()})


data = DatasetDict(train=make(48, 2, seed=0), matched=make(16, 2, seed=1), mismatched=make(16, 20, seed=2))


def accuracy(prediction):
    return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids).mean()}


model = BertForSequenceClassification(
    BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=3,
    learning_rate=5e-3,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="mismatched_accuracy",
    greater_is_better=True,
    save_total_limit=1,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset={"matched": data["matched"], "mismatched": data["mismatched"]},
    compute_metrics=accuracy,
)
trainer.train()
for name in ("matched", "mismatched"):
    metrics = trainer.evaluate(data[name], metric_key_prefix=f"final_{name}")
    print(name, metrics[f"final_{name}_accuracy"], metrics[f"final_{name}_loss"])
