"""What each process of `test_metrics_of_two.py` runs: `metrics_worker.py OUT_DIR`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from ostinato import EvalSet, Trainer, TrainingArguments

try:
    from torchmetrics.aggregation import SumMetric
except ImportError:
    SumMetric = None


class Tags(nn.Module):
    """A class for each of five tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Tempered(Tags):
    """Answers with a number for the whole batch, too."""

    def forward(self, x, labels=None, unit=None):
        outputs = super().forward(x, labels)
        return {**outputs, "temperature": outputs["logits"].mean()}


class BatchByBatch:
    """A function for `batch_eval_metrics`, which is shown whole batches."""

    def __init__(self) -> None:
        self.hits = self.rows = self.total = 0.0

    def __call__(self, prediction, compute_result: bool) -> dict[str, float] | None:
        logits, _ = prediction.predictions
        assert prediction.inputs["unit"] == "words"
        assert torch.equal(prediction.inputs["labels"], prediction.label_ids)
        self.hits += float((logits.argmax(-1) == prediction.label_ids).sum())
        self.rows += len(prediction.inputs["x"])
        self.total += float(prediction.inputs["x"].sum())
        return {"hits": self.hits, "rows": self.rows, "total": self.total} if compute_result else None


class Boxes(Tags):
    """Each row has as many boxes as it likes: labels and predictions are lists with an entry for each row."""

    def forward(self, x, labels=None):
        found = self.layer(x).mean(1)
        loss = torch.stack(
            [(found[row] - target["boxes"]).square().mean() for row, target in enumerate(labels)]
        ).mean()
        return {"loss": loss, "found": [{"box": row} for row in found], "logits": found}


def collate_boxes(batch: list[dict[str, torch.Tensor]]) -> dict[str, object]:
    boxes = [{"boxes": torch.full((1 + int((row["labels"] == 1).sum()), 3), 0.5)} for row in batch]
    return {"x": torch.stack([row["x"] for row in batch]), "labels": boxes}


def count_boxes(seen) -> dict[str, float]:
    found = [row["box"] for batch in seen.predictions for row in batch[0]]
    return {
        "boxes": sum(len(row["boxes"]) for batch in seen.label_ids for row in batch),
        "found": float(sum(place * box.sum() for place, box in enumerate(found))),
        "logits": sum(len(batch[1]) for batch in seen.predictions),
    }


def collate(batch: list[dict[str, torch.Tensor]]) -> dict[str, object]:
    return {**{name: torch.stack([row[name] for row in batch]) for name in batch[0]}, "unit": "words"}


class Rows:
    """Counts what it is shown; two processes that add up would count twice."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.rows = self.labels = 0

    def update(self, prediction) -> None:
        self.rows += len(prediction.labels)
        self.labels += int(prediction.valid.sum())

    def compute(self) -> dict[str, int]:
        return {"rows": self.rows, "labels": self.labels}


def rows(count: int) -> list[dict[str, torch.Tensor]]:
    generator, made = torch.Generator().manual_seed(1), []
    for index in range(count):
        labels = torch.randint(0, 3, (5,), generator=generator)
        labels[: index % 6] = -100  # every sixth row has none at all
        made.append({"x": torch.randn((5, 4), generator=generator), "labels": labels})
    return made


def measure_in_first(out: Path) -> dict[str, object]:
    """Return how often this process called the function, and how evaluations end where it alone fails."""
    calls: list[int] = []

    def count(prediction) -> dict[str, float]:
        calls.append(len(prediction.predictions))
        return {"rows": float(len(prediction.predictions))}

    def fail(prediction) -> dict[str, float]:
        raise ValueError("no such metric")

    def send_code(prediction) -> dict[str, object]:
        return {"code": lambda: 0}

    def evaluate(function, **options) -> tuple[list[int], str]:
        calls.clear()
        args = TrainingArguments(str(out / "run"), use_cpu=True, disable_tqdm=True, report_to="none", **options)
        try:
            found = Trainer(Tags(), args, compute_metrics=function, eval_dataset=rows(11)).evaluate()
        except Exception as error:
            return calls[:], f"{type(error).__name__}: {error}"
        return calls[:], str(found.get("eval_rows"))

    return {
        "in first": evaluate(count),
        "in all": evaluate(count, metrics_in_all_processes=True),
        "failing": evaluate(fail),
        "code": evaluate(send_code),
    }


def main() -> None:
    out, rank = Path(sys.argv[1]), os.environ.get("RANK", "0")
    size = 4 // int(os.environ.get("WORLD_SIZE", "1"))
    metrics = ["accuracy", ("f1", {"average": "macro"}), Rows()]
    if SumMetric is not None:

        class Hits(SumMetric):
            """A sum: wrong by a factor if processes add up what all have seen."""

            def update(self, preds, target) -> None:  # type: ignore[override]
                super().update((preds.argmax(-1) == target).float())

        metrics.append(("hits", Hits()))
    args = TrainingArguments(
        str(out / "run"), per_device_eval_batch_size=size, use_cpu=True, disable_tqdm=True, report_to="none"
    )
    sets = {"a": rows(11), "b": EvalSet(rows(7), batch_size=2)}
    found = Trainer(Tags(), args, eval_dataset=sets, metrics=metrics).evaluate()
    kept = {name: value for name, value in found.items() if not name.endswith(("_time", "_runtime", "_second"))}
    args.batch_eval_metrics, args.include_for_metrics = True, ["inputs"]
    predicted = Trainer(Tempered(), args, compute_metrics=BatchByBatch(), data_collator=collate).predict(rows(11))
    kept |= {name: predicted.metrics[f"test_{name}"] for name in ("loss", "hits", "rows", "total")}
    kept["predicted"] = len(predicted.predictions[0])
    args.batch_eval_metrics, args.include_for_metrics = False, []
    args.eval_use_gather_object, args.eval_do_concat_batches, args.remove_unused_columns = True, False, False
    trainer = Trainer(Boxes(), args, compute_metrics=count_boxes, data_collator=collate_boxes)
    boxes = trainer.evaluate(rows(11), metric_key_prefix="box")
    kept |= {f"box_{name}": boxes[f"box_{name}"] for name in ("loss", "boxes", "found", "logits")}
    (out / f"calls-{rank}.json").write_text(json.dumps(measure_in_first(out)))
    (out / f"rank-{rank}.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
