"""Two processes that differ in something: `agreement_worker.py OUT`. Rank r writes the errors to `OUT/rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ostinato
from ostinato import ConfigError, Trainer, TrainingArguments

RANK = int(os.environ["RANK"])


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        return {"loss": nn.functional.mse_loss(self.line(x[:, None]).squeeze(-1), labels)}


def train(out: Path, rows: int = 8, eval_rows: int = 4, **options: Any) -> str:
    """Train; return the error if there is one."""
    quiet = {"save_strategy": "no", "max_steps": 2, "use_cpu": True, "disable_tqdm": True, "report_to": "none"}
    data = [{"x": torch.tensor(float(n)), "labels": torch.tensor(1.0)} for n in range(max(rows, eval_rows))]
    args = TrainingArguments(str(out), **{**quiet, **options})
    trainer = Trainer(Line(), args, train_dataset=data[:rows], eval_dataset={"some": data[:eval_rows]})
    try:
        trainer.train()
    except ConfigError as error:
        return str(error)
    return "" if trainer.state.global_step == 2 else "stopped early"


def main(out: Path) -> None:
    told = {
        "arguments": train(out / "run", learning_rate=0.1 * (RANK + 1), gradient_accumulation_steps=1 + RANK),
        "rows": train(out / "run", rows=8 + RANK),
        "evaluation": train(out / "run", eval_rows=4 + RANK),
        "own": train(out / f"run-{RANK}", run_name=f"name {RANK}", log_level=("info", "error")[RANK]),
    }
    ostinato.__version__ = f"0.{RANK}"
    told["version"] = train(out / "run")
    (out / f"rank-{RANK}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
