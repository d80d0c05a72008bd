"""Train, then predict a test set without labels, and write down the classes."""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

names = {0: "low", 1: "high"}
set_seed(42)
ids = torch.randint(2, 30, (60, 6))
train = [{"input_ids": one, "labels": int(one[0] > 15)} for one in ids[:40]]
test = [{"input_ids": one} for one in ids[40:]]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=30,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        id2label=names,
        label2id={name: number for number, name in names.items()},
    )
)
args = TrainingArguments(sys.argv[1], num_train_epochs=4, learning_rate=3e-3, logging_steps=5, save_strategy="no")
trainer = Trainer(model=model, args=args, train_dataset=train)
trainer.train()
output = trainer.predict(test, metric_key_prefix="predict")
classes = np.argmax(output.predictions, axis=1)
lines = [f"{i}\t{model.config.id2label[int(one)]}" for i, one in enumerate(classes)]
Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
(Path(sys.argv[1]) / "predictions.tsv").write_text("index\tprediction\n" + "\n".join(lines))
print(output.label_ids, sorted(name for name in output.metrics if "second" not in name))
print("\n".join(lines))
print(output.predictions.tobytes().hex()[:64])
