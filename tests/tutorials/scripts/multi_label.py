"""Every text may have several topics: sigmoid outputs, and F1 over a threshold."""

import sys

import numpy as np
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

TOPICS = ["sport", "music", "politics", "science"]
set_seed(42)
draw = np.random.default_rng(3)


def example():
    topics = draw.random(len(TOPICS)) < 0.4
    words = [2]
    for number, chosen in enumerate(topics):
        words += draw.integers(4 + 8 * number, 12 + 8 * number, size=3).tolist() if chosen else [3, 3, 3]
    return {"input_ids": words, "attention_mask": [1] * len(words), "labels": topics.astype(np.float32).tolist()}


data = Dataset.from_list([example() for _ in range(60)]).train_test_split(test_size=0.25, seed=0)
data.set_format("torch")


def f1_micro(prediction):
    scores = torch.sigmoid(torch.tensor(prediction.predictions))
    chosen = (scores > 0.5).numpy().astype(int)
    hits = (chosen * prediction.label_ids).sum()
    return {"f1": float(2 * hits / max(chosen.sum() + prediction.label_ids.sum(), 1))}


config = BertConfig(
    vocab_size=40,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    problem_type="multi_label_classification",
    id2label=dict(enumerate(TOPICS)),
    label2id={topic: number for number, topic in enumerate(TOPICS)},
)
args = TrainingArguments(
    sys.argv[1],
    learning_rate=2e-3,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    num_train_epochs=2,
    weight_decay=0.01,
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="f1",
    logging_steps=3,
)
trainer = Trainer(
    BertForSequenceClassification(config),
    args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    compute_metrics=f1_micro,
)
trainer.train()
print(trainer.evaluate()["eval_f1"])
