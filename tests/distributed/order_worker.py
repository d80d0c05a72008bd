"""What each process of the tests of orders runs: `order_worker.py OUT_DIR`. Rank r writes `SCENARIO/rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler

from ostinato import Trainer, TrainerCallback, TrainingArguments

GLOBAL_BATCH = 8
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
RANK = int(os.environ.get("RANK", "0"))


class Language(nn.Module):
    """Notes the rows that it is trained on: the first token of a row is its number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(128, 8), nn.Linear(8, 128)
        self.trained: list[list[int]] = []
        self.areas: list[int] = []

    def forward(self, input_ids, labels=None, num_items_in_batch=None, **kwargs):
        self.trained.append(input_ids[:, 0].tolist())
        self.areas.append(input_ids.numel())
        logits = self.head(self.embedding(input_ids)).flatten(0, 1)
        if num_items_in_batch is None:
            return {"loss": nn.functional.cross_entropy(logits, labels.flatten())}
        return {"loss": nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum") / num_items_in_batch}


class Deaf(Language):
    """Takes `num_items_in_batch` and ignores it."""

    def forward(self, input_ids, labels=None, **kwargs):
        return super().forward(input_ids, labels)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"input_ids": [number] + [1] * (2 + (17 * number) % 29)} for number in range(first, first + count)]


def padded(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in batch)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in batch])
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}


ROWS = rows(0, 61)


class Backwards(Sampler[int]):
    def __len__(self) -> int:
        return 61

    def __iter__(self):
        return iter(range(60, -1, -1))


class StopAt(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            control.should_save = control.should_training_stop = True


class Broken(list):  # type: ignore[type-arg]
    """Rows some of which cannot be read."""

    bad: frozenset[int] = frozenset()

    def __getitem__(self, index: Any) -> Any:
        if index in self.bad:
            raise OSError(f"row {index} is torn")
        return super().__getitem__(index)


def broken(first: int, count: int, *bad: int) -> Broken:
    found = Broken(rows(first, count))
    found.bad = frozenset(bad)
    return found


class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """Goes on after a row that could not be read."""

    def __init__(self, found: Broken) -> None:
        self.found = found

    def __iter__(self) -> Any:
        return map(self.found.__getitem__, range(len(self.found)))


def mixture() -> dict[str, Any]:
    return {"a": (rows(0, 40), 0.7), "b": (rows(60, 21), 0.3)}


SCENARIOS: dict[str, dict[str, Any]] = {
    "windows": {"train_sampling_strategy": "group_by_length", "length_window": 3},
    "budget": {"max_tokens_per_batch": 90},
    "budget of few rows": {"max_tokens_per_batch": 90, "rows": rows(0, 7), "num_train_epochs": 3},
    "sampler": {"sampler": Backwards},
    "random sampler": {"sampler": lambda: RandomSampler(ROWS)},  # type: ignore[arg-type]
    "batch sampler": {"batch_sampler": lambda: BatchSampler(Backwards(), 5, drop_last=False)},
    "mixture": {"rows": mixture},
    "mixture, accumulated": {"rows": mixture, "gradient_accumulation_steps": 3, "logging_steps": 2},
    "mixture, deaf": {"rows": mixture, "model": Deaf, "gradient_accumulation_steps": 2},
    # Rows 8 to 11 are all that the first process has in the second step of an epoch, 16 to 23 are a whole step.
    "bad rows": {
        "rows": lambda: broken(0, 61, 2, *range(8, 12), *range(16, 24)),
        "skip_bad_rows": True,
        "train_sampling_strategy": "sequential",
    },
    "bad rows of a stream": {
        "rows": lambda: Stream(broken(0, 61, 2, *range(8, 12), *range(16, 24))),
        "skip_bad_rows": True,
        "max_steps": 14,
    },
    "bad rows of a mixture": {
        "rows": lambda: {"a": (broken(0, 40, 3, 4, 30), 0.7), "b": (broken(60, 21, *range(20)), 0.3)},
        "skip_bad_rows": True,
    },
    "stream by windows": {
        "rows": lambda: Stream(broken(0, 61)),
        "train_sampling_strategy": "group_by_length",
        "length_window": 3,
        "max_steps": 16,
    },
    "mixture, whole": {"rows": mixture, "logging_steps": 2},
    "mixture, resumed": {"rows": mixture, "logging_steps": 2, "resume": True},
}
# What only several processes do.
OF_TWO: dict[str, dict[str, Any]] = {
    "dealt out": {"sampler": lambda: DistributedSampler(ROWS, WORLD, RANK, shuffle=False)},  # type: ignore[arg-type]
    "loader": {
        "rows": lambda: DataLoader(
            ROWS,  # type: ignore[arg-type]
            batch_size=4,
            collate_fn=padded,
            sampler=DistributedSampler(ROWS, WORLD, RANK),  # type: ignore[arg-type]
        )
    },
    "whole loader": {"rows": lambda: DataLoader(ROWS, batch_size=4, collate_fn=padded)},  # type: ignore[arg-type]
    "for three": {"sampler": lambda: DistributedSampler(ROWS, 3, RANK)},  # type: ignore[arg-type]
    "uneven": {"rows": lambda: DataLoader(ROWS, batch_size=4, collate_fn=padded, sampler=Uneven())},  # type: ignore
}


class Uneven(Sampler[int]):
    num_replicas = 2

    def __len__(self) -> int:
        return 20 + 8 * RANK

    def __iter__(self):
        return iter(range(len(self)))


def trainer_for(out: Path, settings: dict[str, Any]) -> Trainer:
    settings = {name: value for name, value in settings.items() if name != "resume"}
    made = {name: settings.pop(name)() for name in ("sampler", "batch_sampler") if name in settings}
    data, model = settings.pop("rows", ROWS), settings.pop("model", Language)()
    args = TrainingArguments(
        str(out / "run"),
        **{
            "per_device_train_batch_size": GLOBAL_BATCH // WORLD,
            "num_train_epochs": 2,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "save_strategy": "no",
            "use_cpu": True,
            "disable_tqdm": True,
            **settings,
        },
    )
    data = data() if callable(data) else data
    return Trainer(model, args, data_collator=padded, train_dataset=data, **made)


def main(out: Path, settings: dict[str, Any]) -> None:
    out.mkdir(exist_ok=True)
    trainer = trainer_for(out, settings)
    resume = settings.get("resume", False)
    try:
        if resume:
            trainer.add_callback(StopAt())
        trainer.train()
        if resume:
            trainer = trainer_for(out, settings)
            trainer.train(resume_from_checkpoint=True)
    except Exception as error:
        (out / f"rank-{RANK}.json").write_text(json.dumps({"error": str(error)}))
        return
    model: Any = trainer.model
    report = {
        "logs": [
            {name: value for name, value in entry.items() if name.startswith(("loss", "grad_norm", "step"))}
            for entry in trainer.state.log_history
            if "loss" in entry
        ],
        "trained": model.trained,
        "areas": model.areas,
        "weights": [parameter.tolist() for parameter in model.parameters()],
        "steps": trainer.state.global_step,
        "skipped": sorted(map(str, trainer.skipped_rows.items())),
        "max_steps": trainer.state.max_steps,
    }
    (out / f"rank-{RANK}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for scenario, chosen in {**SCENARIOS, **(OF_TWO if WORLD > 1 else {})}.items():
        main(Path(sys.argv[1]) / scenario, chosen)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
