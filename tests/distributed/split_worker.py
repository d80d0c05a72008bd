"""What each process of the test of `accelerator_config` runs: `split_worker.py OUT_DIR LIBRARY SETTINGS`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

OUT, LIBRARY, SETTINGS = Path(sys.argv[1]), importlib.import_module(sys.argv[2]), json.loads(sys.argv[3])


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}


class Noting(LIBRARY.Trainer):
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        seen.append(inputs["x"][:, 0].int().tolist())
        return super().training_step(model, inputs, num_items_in_batch)


seen: list[list[int]] = []
args = LIBRARY.TrainingArguments(
    str(OUT),
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    save_strategy="no",
    num_train_epochs=1,
    logging_steps=1,
    learning_rate=1e-4,
    per_device_train_batch_size=4,
    dataloader_pin_memory=False,
    accelerator_config=SETTINGS,
)
data = [{"x": [float(i), 1.0], "labels": float(i)} for i in range(16)]
trainer = Noting(Regression(), args, train_dataset=data)
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
(OUT / f"rank-{args.process_index}.json").write_text(json.dumps({"seen": seen, "losses": losses}))
