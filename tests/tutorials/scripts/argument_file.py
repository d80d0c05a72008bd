"""All arguments in a JSON file."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ScriptArguments:
    width: int = 8
    activation: str = "relu"


class Net(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, width), nn.Linear(width, 2)
        self.activation = getattr(torch, activation)

    def forward(self, x, labels=None):
        logits = self.outer(self.activation(self.inner(x)))
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
config = out / "config.json"
config.write_text(
    json.dumps(
        {
            "width": 12,
            "activation": "tanh",
            "output_dir": str(out / "run"),
            "max_steps": 10,
            "learning_rate": 0.02,
            "per_device_train_batch_size": 4,
            "logging_steps": 2,
            "save_steps": 5,
            "save_total_limit": 1,
            "lr_scheduler_type": "cosine_with_min_lr",
            "lr_scheduler_kwargs": {"min_lr": 0.001},
            "optim": "adamw_torch",
            "adam_beta2": 0.95,
        }
    )
)
parser = HfArgumentParser((ScriptArguments, TrainingArguments))
script_args, training_args = parser.parse_json_file(json_file=str(config))
set_seed(training_args.seed)
x = torch.randn(40, 4)
rows = [{"x": one, "labels": int(one.sum() > 0)} for one in x]
trainer = Trainer(Net(script_args.width, script_args.activation), training_args, train_dataset=rows)
trainer.train()
