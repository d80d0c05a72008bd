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
    (out / f"rank-{rank}.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
