"""What each of two processes does: `two_on_device.py OUT_DIR cpu|device`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from ostinato import Trainer, TrainingArguments
from tests.device.test_waits import train
from tests.support import tiny
from tests.support.pretend_device import record_waits

STEPS = 3
LOGGED = {"loss", "eval_loss", "grad_norm"}


def use_collectives(device: torch.device, rank: int) -> dict[str, Any]:
    mine = torch.full((2,), float(rank + 1), device=device)
    total, first = mine.clone(), mine.clone()
    gathered = [torch.empty_like(mine) for _ in range(2)]
    with record_waits() as waits:
        dist.all_reduce(total)
        dist.broadcast(first, 0)
        dist.all_gather(gathered, mine)
    return {"numbers": [one.tolist() for one in (total, first, *gathered)], "waits": len(waits)}


def use_ddp(device: torch.device, rank: int) -> dict[str, Any]:
    """Take steps with gradients that are averaged over the processes; in the second one DDP orders its buckets."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(tiny.regression().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    rows = torch.randn(4, 4, generator=torch.Generator().manual_seed(rank)).to(device)
    for _ in range(STEPS):
        with record_waits() as waits:
            model(rows)["logits"].square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return {"numbers": [one.tolist() for one in model.parameters()], "waits": len(waits)}


def use_trainer(directory: Path, *, use_cpu: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    args = TrainingArguments(
        str(directory),
        use_cpu=use_cpu,
        ddp_backend="gloo",
        max_steps=STEPS,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
    )
    rows = tiny.regression_rows(12)
    trainer = Trainer(tiny.regression(), args, train_dataset=rows, eval_dataset=tiny.regression_rows(5, seed=2))
    trainer.train()
    logged = [{key: one[key] for key in LOGGED & one.keys()} for one in trainer.state.log_history]
    weights = [one.tolist() for one in trainer.model.parameters()]
    return {"numbers": [logged, weights], "device": str(next(trainer.model.parameters()).device)}


def count_waits(directory: Path) -> dict[str, list[str]]:
    """Return the lines that wait for the device between logs, for runs of several settings."""
    found = {}
    for name, arguments in {"plain": {}, "bf16": {"bf16": True}, "fp16": {"fp16": True}}.items():
        for accumulation in (1, 4):
            home = directory / f"{name}-{accumulation}"
            _, seen = train(home, accumulation=accumulation, steps=5, ddp_backend="gloo", **arguments)
            found[home.name] = seen.list_waits(first=1)
    return found


if __name__ == "__main__":
    out, where = Path(sys.argv[1]), sys.argv[2]
    chosen = torch.device("cpu") if where == "cpu" else torch.accelerator.current_accelerator()
    assert chosen is not None
    this = int(os.environ["RANK"])
    trained = use_trainer(out / "run", use_cpu=where == "cpu")
    waits = {} if where == "cpu" else count_waits(out)
    found = {
        "trainer": trained,
        "waits": waits,
        "collectives": use_collectives(chosen, this),
        "ddp": use_ddp(chosen, this),
    }
    (out / f"rank-{this}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
