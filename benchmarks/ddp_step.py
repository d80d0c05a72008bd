"""What a step of two processes costs beside a bare loop with DDP: CPU time of both processes, in turns.

    torchrun --standalone --nproc-per-node 2 benchmarks/ddp_step.py                # the regression MLP
    torchrun --standalone --nproc-per-node 2 benchmarks/ddp_step.py --model bert   # a small BERT (needs transformers)

Every contestant does the same work (`step_overhead.py`): batches of 8 in data-set order, AdamW (fused), clipping at
1.0, linear decay. All take turns in the same processes; what counts is the ratio to *bare* in the same round.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from step_overhead import BATCH, CLIP, RATE, build
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

CONTESTANTS, WARM_UP = ("bare", "ostinato", "transformers"), 50


class Clock:
    """CPU time between the forward after the warm-up and the last one."""

    def __init__(self) -> None:
        self.calls, self.times = 0, [0.0, 0.0]

    def __call__(self) -> None:
        self.calls += 1
        if self.calls >= WARM_UP:
            self.times[self.calls > WARM_UP] = time.process_time()

    def measure(self) -> float:
        """Return microseconds of a step, of this process."""
        return (self.times[1] - self.times[0]) / (self.calls - WARM_UP) * 1e6


def bare(model: Any, rows: Any, steps: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    starts = range(rank * BATCH, len(rows), size * BATCH)
    loader = DataLoader(rows, batch_sampler=[list(range(start, start + BATCH)) for start in starts])
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (steps - step) / steps))
    running = torch.tensor(0.0)
    for batch in loader:
        loss = replica(**batch)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        running += loss.detach()


def train(library: str, model: Any, rows: Any) -> None:
    theirs = importlib.import_module(library)
    with tempfile.TemporaryDirectory() as out:
        args = theirs.TrainingArguments(
            out, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=RATE, use_cpu=True,
            train_sampling_strategy="sequential", save_strategy="no", report_to="none", disable_tqdm=True,
            logging_steps=500,
        )  # fmt: skip
        theirs.Trainer(model, args, train_dataset=rows).train()
        dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("mlp", "bert"), default="mlp")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=",".join(CONTESTANTS[:2]), help="contestants; the first is what counts as 1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    names = options.only.split(",")
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(options.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            model, rows = build(options.model, dist.get_world_size() * options.steps * BATCH)
            model.tick = clock = Clock()
            bare(model, rows, options.steps) if name == "bare" else train(name, model, rows)
            both = torch.tensor(clock.measure())
            dist.all_reduce(both)
            found[name].append(float(both))
    if dist.get_rank() == 0:
        for name in names:
            ratio = statistics.median(own / base for own, base in zip(found[name], found[names[0]], strict=True))
            print(f"{name:13} {statistics.median(found[name]):8.0f} us of CPU, {ratio:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
