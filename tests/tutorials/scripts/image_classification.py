"""Pictures that are turned into tensors while they are read; the collator stacks them."""

import sys

import numpy as np
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

set_seed(42)
draw = np.random.default_rng(0)
labels = draw.integers(0, 2, size=40)
pictures = draw.random((40, 3, 8, 8))
pictures[labels == 1, 0, :4] += 1.0  # red above
data = Dataset.from_dict({"picture": pictures.tolist(), "label": labels.tolist()}).train_test_split(8, seed=0)


def transforms(batch):
    batch["pixel_values"] = [(torch.tensor(one, dtype=torch.float) - 0.5) / 0.5 for one in batch["picture"]]
    del batch["picture"]
    return batch


data = data.with_transform(transforms)


def collate_fn(examples):
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["label"] for example in examples]),
    }


model = ViTForImageClassification(
    ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
)
args = TrainingArguments(
    sys.argv[1],
    remove_unused_columns=False,
    num_train_epochs=2,
    learning_rate=3e-3,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=2,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
)
trainer = Trainer(
    model=model,
    args=args,
    data_collator=collate_fn,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    compute_metrics=lambda p: {"accuracy": float((np.argmax(p.predictions, axis=1) == p.label_ids).mean())},
)
trainer.train()
best = ViTForImageClassification.from_pretrained(trainer.state.best_model_checkpoint).state_dict()
print("the best weights:", all(torch.equal(value, best[name]) for name, value in model.state_dict().items()))
