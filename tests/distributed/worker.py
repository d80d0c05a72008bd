"""What each process of a distributed test runs: `worker.py OUT_DIR`. Rank r writes `SCENARIO/rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset

from ostinato import Trainer, TrainingArguments, default_data_collator, track
from ostinato.core.notices import listen_to_notices


class Classifier(nn.Module):
    """Remembers the rows it was trained on and evaluated with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)
        self.trained: list[list[int]] = []

    def forward(self, x, row=None, labels=None):
        if self.training:
            self.trained.append(row.tolist())
        track("mean_row", row.float().mean(), weight=len(row))
        if row[0] % 2:  # not every process has something to say
            track("first_of_odd", 1.0)
        logits = self.b(torch.tanh(self.a(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class TokenModel(Classifier):
    """A token-level loss that divides by `num_items_in_batch` when it is told."""

    def forward(self, x, row=None, labels=None, num_items_in_batch=None, **kwargs):
        logits = self.b(torch.tanh(self.a(x)))
        flat = logits.view(-1, 3), labels.view(-1)
        if num_items_in_batch is None:
            return {"loss": nn.functional.cross_entropy(*flat), "logits": logits}
        return {"loss": nn.functional.cross_entropy(*flat, reduction="sum") / num_items_in_batch, "logits": logits}


class ForgetfulModel(TokenModel):
    """Takes `num_items_in_batch` and ignores it, as many models do."""

    def forward(self, x, row=None, labels=None, **kwargs):
        return super().forward(x, row, labels)


class PartlyUsed(Classifier):
    """Has parameters that its loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Linear(2, 2)


class ShareTrainer(Trainer):
    """Divides by the count of the whole step, and leaves the averaging over processes to the trainer."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(inputs["x"], row=inputs["row"], labels=inputs["labels"])
        flat = outputs["logits"].view(-1, 3), inputs["labels"].view(-1)
        if num_items_in_batch is None:
            loss = nn.functional.cross_entropy(*flat)
        else:
            loss = nn.functional.cross_entropy(*flat, reduction="sum") / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


class MakingUpTrainer(ShareTrainer):
    """Makes up for the averaging itself, as subclasses do that were written after transformers' own `compute_loss`."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss


class Dropping:
    """A collator that leaves rows out."""

    dropped: frozenset[int] = frozenset()

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = default_data_collator(rows)
        kept = torch.tensor([int(row) not in self.dropped for row in batch["row"]])
        return {name: values[kept] for name, values in batch.items()}


class Stream(IterableDataset):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def rows(count: int, *, tokens: bool = False) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for index in range(count):
        shape = (5, 4) if tokens else (4,)
        labels = torch.randint(0, 3, shape[:-1], generator=generator)
        if tokens:
            labels[: index % 5] = -100
        made.append({"x": torch.randn(shape, generator=generator), "row": torch.tensor(index), "labels": labels})
    return made


SCENARIOS: dict[str, dict[str, Any]] = {
    "fifty_steps": {"rows": 200, "max_steps": 50},
    "uneven": {"rows": 37, "num_train_epochs": 3},
    "one_row_left": {"rows": 33, "num_train_epochs": 2},
    "accumulate": {"rows": 75, "num_train_epochs": 3, "gradient_accumulation_steps": 3},
    "tokens": {
        "rows": 75, "num_train_epochs": 3, "gradient_accumulation_steps": 2, "model": TokenModel, "tokens": True,
    },
    "forgetful": {
        "rows": 75, "num_train_epochs": 3, "gradient_accumulation_steps": 2, "model": ForgetfulModel, "tokens": True,
    },
    "own_share": {
        "rows": 75, "num_train_epochs": 3, "gradient_accumulation_steps": 2, "tokens": True, "trainer": ShareTrainer,
        "model": ForgetfulModel,
    },
    "own_making_up": {
        "rows": 75, "num_train_epochs": 3, "gradient_accumulation_steps": 2, "tokens": True,
        "trainer": MakingUpTrainer, "model": ForgetfulModel,
    },
    "partly_used": {"rows": 37, "num_train_epochs": 2, "model": PartlyUsed},
    "compiled": {
        "rows": 75, "num_train_epochs": 1, "gradient_accumulation_steps": 2, "model": TokenModel, "tokens": True,
        "torch_compile_backend": "aot_eager",
    },
    "empty_in_one": {
        "rows": 48, "num_train_epochs": 1, "gradient_accumulation_steps": 2, "model": TokenModel, "tokens": True,
    },
    "stream": {"rows": 40, "max_steps": 8, "stream": True},
    "saving": {"rows": 40, "max_steps": 4, "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2,
               "load_best_model_at_end": True},
}  # fmt: skip
GLOBAL_BATCH = 8


def main(scenario: str, out: Path) -> None:
    out.mkdir(exist_ok=True)
    settings = dict(SCENARIOS[scenario])
    tokens = settings.pop("tokens", False)
    model = settings.pop("model", Classifier)()
    trainer_class = settings.pop("trainer", Trainer)
    data: Any = rows(settings.pop("rows"), tokens=tokens)
    train_dataset = Stream(data) if settings.pop("stream", False) else data
    world = int(os.environ.get("WORLD_SIZE", "1"))
    args = TrainingArguments(
        str(out / "run"),
        per_device_train_batch_size=GLOBAL_BATCH // world,
        per_device_eval_batch_size=4 // world,
        learning_rate=1e-2,
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        **{"save_strategy": "no", **settings} if "save_steps" not in settings else settings,
    )
    metrics_rows: list[int] = []

    def compute_metrics(prediction):
        metrics_rows.append(len(prediction.predictions))
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}

    collator = Dropping()
    trainer = trainer_class(
        model,
        args,
        data_collator=collator,
        train_dataset=train_dataset,
        eval_dataset=data[:11],
        compute_metrics=compute_metrics,
        train_metrics=None if tokens else ["accuracy"],
    )
    if scenario == "empty_in_one":  # the second micro-batch of the second process has no rows left
        collator.dropped = frozenset(trainer.samples_at(1)[12:])
    told: list[str] = []
    with listen_to_notices(lambda kind, text: told.append(text)):
        trainer.train()
    collator.dropped = frozenset()
    predicted = trainer.predict(data[:11])
    report = {
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "norms": [entry["grad_norm"] for entry in trainer.state.log_history if "loss" in entry],
        "tracked": [entry["mean_row"] for entry in trainer.state.log_history if "mean_row" in entry],
        "odd": [entry.get("first_of_odd") for entry in trainer.state.log_history if "mean_row" in entry],
        "accuracies": [entry["accuracy"] for entry in trainer.state.log_history if "accuracy" in entry],
        "eval_loss": trainer.evaluate()["eval_loss"],
        "trained": model.trained,
        "predictions": predicted.predictions.tolist(),
        "labels": predicted.label_ids.tolist(),
        "metrics_rows": metrics_rows,
        "empty": [text for text in told if "without rows" in text],
        "weights": [parameter.tolist() for parameter in trainer.model.parameters()],
        "steps": trainer.state.global_step,
        "log_history": len(trainer.state.log_history),
    }
    (out / f"rank-{args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in SCENARIOS:
        main(name, Path(sys.argv[1]) / name)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # now and then gloo aborts while the interpreter is taken down, long after everything was compared
