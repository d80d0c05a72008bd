"""One process of runs that are resumed with another number of processes: `elastic_worker.py OUT [WHOLE]`.

Every scenario trains in `OUT/SCENARIO`, from the beginning or from a checkpoint of the same scenario below `WHOLE`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, SequentialSampler

from ostinato import Trainer, TrainerCallback, TrainingArguments

COUNT, GLOBAL_BATCH, STOP = 37, 8, 3
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


class Rows(torch.utils.data.Dataset):
    """Rows with noise, drawn when they are read."""

    def __init__(self, first: int = 0, count: int = COUNT) -> None:
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        number = self.first + index
        noisy = torch.full((4,), number / COUNT) + 0.1 * torch.randn(4)
        return {"x": noisy, "row": number, "labels": number / COUNT, "input_ids": [1] * (1 + 7 * number % 11)}


class Stream(torch.utils.data.IterableDataset):
    """The same without numbers."""

    def __iter__(self):
        return map(Rows().__getitem__, range(COUNT))


class SizedStream(Stream):
    def __len__(self) -> int:
        return COUNT


class StatefulStream(Stream):
    """Says where it stands."""

    at = start = 0

    def __iter__(self):
        self.at, self.start = self.start, 0
        while self.at < COUNT:
            self.at += 1
            yield Rows()[self.at - 1]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["at"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.trained, self.step = nn.Linear(4, 1), [], 0

    def forward(self, x, row=None, labels=None):
        self.trained.append([self.step, row.tolist(), x.tolist()])
        return {"loss": (self.inner(x).squeeze(-1) - labels).pow(2).mean()}


class Count(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **kwargs):
        model.step = state.global_step + 1


def joined(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in ("x", "row", "labels")}


GROUPED: dict[str, Any] = {"train_sampling_strategy": "group_by_length", "length_window": 2}
SCENARIOS: dict[str, dict[str, Any]] = {
    "random": {},
    "by windows": GROUPED,
    "accumulated": {"gradient_accumulation_steps": 2},
    "budget": {"max_tokens_per_batch": 30},
    "batches": {"batch_sampler": lambda: Batches(SequentialSampler(range(COUNT)), 3, False)},
    "mixture": {"rows": lambda: {"a": (Rows(0, 20), 0.6), "b": (Rows(20, 17), 0.4)}},
    "stream": {"rows": Stream, "max_steps": 10},
    "sized stream": {"rows": SizedStream},
    "stateful stream": {"rows": StatefulStream, "max_steps": 10},
    "stream by windows": {"rows": Stream, "max_steps": 10, **GROUPED},
    "stateful stream by windows": {"rows": StatefulStream, "max_steps": 10, **GROUPED},
}


class Batches(BatchSampler):
    """Batches of the user's own."""


def main(out: Path, settings: dict[str, Any], checkpoint: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    settings = dict(settings)
    made = {name: settings.pop(name)() for name in ("batch_sampler",) if name in settings}
    data = settings.pop("rows", Rows)()
    args = TrainingArguments(
        str(out / "run"),
        **{
            "per_device_train_batch_size": GLOBAL_BATCH // WORLD,
            "num_train_epochs": 2,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "save_steps": STOP,
            "use_cpu": True,
            "disable_tqdm": True,
            "remove_unused_columns": False,
            **settings,
        },
    )
    model = Model()
    trainer = Trainer(model, args, train_dataset=data, data_collator=joined, callbacks=[Count()], **made)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    steps = range(1, trainer.state.max_steps + 1)
    try:
        samples = [trainer.samples_at(step) for step in steps]
    except NotImplementedError:
        samples = None
    report = {
        "losses": {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry},
        "trained": model.trained,
        "samples": samples,
        "steps": trainer.state.global_step,
    }
    (out / f"rank-{args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, chosen in SCENARIOS.items():
        before = Path(sys.argv[2]) / name / "run" / f"checkpoint-{STOP}" if len(sys.argv) > 2 else None
        main(Path(sys.argv[1]) / name, chosen, before)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
