"""No model of the library at all: any module whose `forward` returns a dict with a loss."""

import sys

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, set_seed


class Waves(Dataset):
    """Noisy sines, to be told from cosines."""

    def __init__(self, size, seed):
        draw = torch.Generator().manual_seed(seed)
        time = torch.linspace(0, 6.28, 24)
        self.labels = torch.randint(0, 2, (size,), generator=draw)
        shift = self.labels[:, None] * 1.57
        self.signals = torch.sin(time + shift) + 0.3 * torch.randn(size, 24, generator=draw)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"signal": self.signals[index], "labels": self.labels[index]}


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(4))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 2))

    def forward(self, signal, labels=None):
        logits = self.head(self.features(signal.unsqueeze(1)))
        output = {"logits": logits}
        if labels is not None:
            output = {"loss": nn.functional.cross_entropy(logits, labels), **output}
        return output


set_seed(42)
args = TrainingArguments(
    sys.argv[1],
    num_train_epochs=4,
    per_device_train_batch_size=16,
    learning_rate=1e-2,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=2,
    load_best_model_at_end=True,
)
trainer = Trainer(
    model=Convolution(),
    args=args,
    train_dataset=Waves(64, 0),
    eval_dataset=Waves(24, 1),
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
)
trainer.train()
print(trainer.evaluate(Waves(24, 2), metric_key_prefix="test")["test_accuracy"])
