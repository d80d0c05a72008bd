"""One process of a run that is resumed with another number of processes: `elastic_worker.py OUT [CHECKPOINT]`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments

COUNT, GLOBAL_BATCH = 37, 8


class Rows(torch.utils.data.Dataset):
    """Rows with noise, drawn when they are read."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return {"x": torch.full((4,), index / COUNT) + 0.1 * torch.randn(4), "row": index, "labels": index / COUNT}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.trained = nn.Linear(4, 1), []

    def forward(self, x, row=None, labels=None):
        self.trained.append([row.tolist(), x.tolist()])
        return {"loss": (self.inner(x).squeeze(-1) - labels).pow(2).mean()}


def main(out: Path, checkpoint: str | None) -> None:
    args = TrainingArguments(
        str(out / "run"),
        per_device_train_batch_size=GLOBAL_BATCH // int(os.environ.get("WORLD_SIZE", "1")),
        num_train_epochs=2,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    )
    model = Model()
    trainer = Trainer(model, args, train_dataset=Rows())
    trainer.train(resume_from_checkpoint=checkpoint)
    report = {
        "losses": {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry},
        "trained": model.trained,
        "samples": [trainer.samples_at(step) for step in range(1, trainer.state.max_steps + 1)],
    }
    (out / f"rank-{args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
