"""One process of runs that exchange numbers in every step: `ballot_worker.py OUT`. Writes `OUT/RANK-of-SIZE.json`."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ostinato import Trainer, TrainerCallback, TrainingArguments

WORLD, RANK = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
COLLECTIVES = ("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "barrier")


class Branching(nn.Module):
    """`side` is used for even rows only; `spare` never."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.side, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.spare = nn.Linear(2, 2)
        self.uses = "by row"

    def forward(self, x, row, labels):
        x = torch.tanh(self.body(x))
        if self.uses == "always" or (self.uses == "by row" and row[0] % 2 == 0):
            x = x + self.side(x)
        x = self.head(x)
        if self.uses == "always":
            x = x + self.spare(x[:, :2]).sum(1, keepdim=True)
        loss = nn.functional.mse_loss(x[:, 0], labels) if labels.is_floating_point() else None
        return {"loss": nn.functional.cross_entropy(x, labels) if loss is None else loss, "logits": x}


class Always(Branching):
    def __init__(self) -> None:
        super().__init__()
        self.uses = "always"


class Words(nn.Module):
    """Takes the number of targets of the whole step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.layer, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)

    def forward(self, input_ids, labels, attention_mask=None, num_items_in_batch=None, **kwargs):
        logits = self.head(torch.tanh(self.layer(self.words(input_ids))))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return {"loss": loss / ((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)}


class Counting(TrainerCallback):
    """Counts our collectives in every step; DDP's own are called from C++."""

    def __init__(self) -> None:
        self.steps: list[dict[str, int]] = []
        self.calls: Counter[str] = Counter()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.steps.append(dict(self.calls))
        self.calls.clear()

    def watch(self) -> None:
        for name in COLLECTIVES:
            original = getattr(dist, name)

            def call(*args: Any, original: Any = original, name: str = name, **kwargs: Any) -> Any:
                self.calls[name] += 1
                return original(*args, **kwargs)

            setattr(dist, name, call)


def pad(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)

    def fill(name: str, value: int) -> torch.Tensor:
        return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])

    labels = fill("labels", -100)
    return {"input_ids": fill("input_ids", 0), "attention_mask": (labels != -100).long(), "labels": labels}


def make_words(count: int) -> list[dict[str, Any]]:
    """Rows of very different lengths, so that batches are split into different numbers of micro-batches."""
    rows = []
    for index in range(count):
        ids = [(index * 7 + place) % 20 for place in range(2 + 38 * (index % 3 == 0) * (index % 8 < 5) + index % 4)]
        rows.append({"input_ids": ids, "labels": ids})
    return rows


def make_branches(count: int) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(4, generator=draw), "row": torch.tensor(index), "labels": torch.tensor(index % 3)}
        for index in range(count)
    ]


def train(out: Path, model: nn.Module, rows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    counting = Counting()
    micro_batches: list[int] = []

    class Noting(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            micro_batches.append(self.current_gradient_accumulation_steps)
            return super().training_step(model, inputs, num_items_in_batch)

    arguments: dict[str, Any] = {"learning_rate": 1e-2, "max_steps": 12, "logging_steps": 1, "seed": 3, **options}
    args = TrainingArguments(
        str(out),
        per_device_train_batch_size=8 // WORLD,
        train_sampling_strategy="sequential",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        weight_decay=0.1,
        **arguments,
    )
    collator = pad if isinstance(model, Words) else None
    trainer = Noting(model, args, data_collator=collator, train_dataset=rows, callbacks=[counting])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counting.watch()
        trainer.train()
    state = {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).tolist()
        for name, value in trainer.model.state_dict().items()
    }
    return {
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "tokens": trainer.state.num_input_tokens_seen,
        "weights": state,
        "collectives": counting.steps,
        "micro_batches": micro_batches,
        "warned": [str(one.message) for one in caught if "unused" in str(one.message)],
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    told: dict[str, Any] = {}

    def run(name: str, model: nn.Module, rows: list[dict[str, Any]], **options: Any) -> None:
        told[name] = train(out / name, model, rows, **options)

    run("branches", Branching(), make_branches(96), gradient_accumulation_steps=1)
    run("branches_searched", Branching(), make_branches(96), ddp_find_unused_parameters=True)
    run("used", Always(), make_branches(96), logging_steps=500)

    class Later(Branching):
        """Uses everything for five steps."""

        def forward(self, x, row, labels):
            self.uses = "always" if int(row[0]) < 40 else "by row"
            return super().forward(x, row, labels)

    run("later", Later(), make_branches(96))
    values = [{**row, "labels": row["labels"].float()} for row in make_branches(96)]
    run("values", Always(), values, logging_steps=500)
    missing = make_branches(96)
    for index in (43, 44, 45, 70):  # the sixth step is the first with a class that is ignored
        missing[index]["labels"] = torch.tensor(-100)
    run("missing", Always(), missing)
    run("words", Words(), make_words(96), logging_steps=500, include_num_input_tokens_seen="non_padding")
    split = {"split_by_length": True, "learning_rate": 1e-3}
    run("split", Words(), make_words(96), **split)
    if WORLD > 1:
        run("split_sharded", Words(), make_words(96), shard="full", **split)
    (out / f"{RANK}-of-{WORLD}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo sometimes aborts while the interpreter is taken down
