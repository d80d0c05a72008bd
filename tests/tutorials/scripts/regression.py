"""One number per text: `num_labels=1` makes the loss a squared error."""

import sys

import numpy as np
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
draw = np.random.default_rng(0)
ids = draw.integers(2, 30, size=(48, 8))
data = Dataset.from_dict({"input_ids": ids.tolist(), "label": (ids.mean(axis=1) / 15 - 1).tolist()})
data = data.train_test_split(test_size=12, seed=1)


def compute_metrics(prediction):
    predictions, labels = prediction.predictions.squeeze(-1), prediction.label_ids
    error = predictions - labels
    return {
        "rmse": float(np.sqrt((error**2).mean())),
        "mae": float(np.abs(error).mean()),
        "pearson": float(np.corrcoef(predictions, labels)[0, 1]),
    }


model = BertForSequenceClassification(
    BertConfig(
        vocab_size=30, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, num_labels=1
    )
)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=4,
    learning_rate=2e-3,
    eval_strategy="epoch",
    save_strategy="best",
    metric_for_best_model="rmse",
    greater_is_better=False,
    logging_strategy="epoch",
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.predict(data["test"]).predictions.shape)
