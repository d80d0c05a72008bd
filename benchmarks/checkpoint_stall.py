"""Checkpoints: how long training stands still for one, and what all of them cost in the end.

    python benchmarks/checkpoint_stall.py                  # 50 M parameters: 600 MB a checkpoint
    python benchmarks/checkpoint_stall.py --layers 24      # 100 M: 1.2 GB
    python benchmarks/checkpoint_stall.py --sharded        # two processes, each with half of the model

Both libraries train the same 15 steps and save after steps 5 and 10. The clock is in the model's forward, so it is the
same for both. With `--sharded` ours is compared with itself: a callback that reads checkpoints makes training wait
until they are on the disk. *stands still* is the time between two forwards with a save in between, less that without
one; *all time lost* is the time of all steps, less that of as many without a save, so what a writer in the background
takes away from training is in it. They take turns round by round, each in a process of its own; what counts is the
ratio to the first one in the same round. Disks differ: `--directory` says where to write.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from typing import Any

BATCH, STEPS, SAVE_AT, WIDTH = 4, 15, (5, 10), 2048
LIBRARIES, SHARDED = ("transformers", "ostinato"), ("waiting", "background")


def build(layers: int) -> Any:
    import torch
    from torch import nn

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
            self.head = nn.Linear(WIDTH, 1)
            self.clock: list[float] = []

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            self.clock.append(time.perf_counter())
            for layer in self.layers:
                x = torch.relu(layer(x)) + x
            return {"loss": nn.functional.mse_loss(self.head(x).squeeze(-1), labels)}

    torch.manual_seed(0)
    return Stack()


def contest(name: str, layers: int, directory: str | None) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    model, how, callbacks = build(layers), {}, []
    library = importlib.import_module(name if name in LIBRARIES else "ostinato")
    if name in SHARDED:
        how = {"shard": "full", "fsdp_config": {"min_num_params": WIDTH}}
    if name == "waiting":

        class Reads(library.TrainerCallback):
            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                pass

        callbacks = [Reads()]
    chance = torch.Generator().manual_seed(1)
    count = BATCH * STEPS * int(os.environ.get("WORLD_SIZE", "1"))
    rows = [{"x": torch.randn(WIDTH, generator=chance), "labels": torch.tensor(i % 2.0)} for i in range(count)]
    # Processes of one run share the directory, which the one that starts them made.
    with tempfile.TemporaryDirectory(dir=directory) if name in LIBRARIES else nullcontext(directory) as out:
        args = library.TrainingArguments(
            output_dir=out, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=1e-4,
            save_strategy="steps", save_steps=SAVE_AT[0], report_to="none", use_cpu=True, disable_tqdm=True,
            dataloader_pin_memory=False, logging_steps=1000, **how,
        )  # fmt: skip
        library.Trainer(model=model, args=args, train_dataset=rows, callbacks=callbacks).train()
    gaps = [later - earlier for earlier, later in zip(model.clock, model.clock[1:], strict=False)]
    saving = [step - 1 for step in SAVE_AT]  # the gap after step n holds its save, and the next one the writer
    step = statistics.median(gap for k, gap in enumerate(gaps) if k and k not in saving and k - 1 not in saving)
    return {
        "stall": statistics.mean(max(gaps[k] - step, 1e-4) for k in saving),
        "lost": max(sum(gaps[1:]) - step * (len(gaps) - 1), 1e-4),
        "step": step,
    }


def measure(name: str, layers: int, directory: str | None) -> dict[str, float]:
    """Return the figures of one contestant, in processes of its own."""
    with tempfile.TemporaryDirectory(dir=directory) as out:
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"] if name in SHARDED else []
        command = [sys.executable, *start, __file__, "--contestant", name, "--layers", str(layers), "--directory", out]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="where to write checkpoints (a temporary directory)")
    parser.add_argument("--sharded", action="store_true", help="two processes that train a sharded model")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contestant:
        found = contest(given.contestant, given.layers, given.directory)
        if os.environ.get("RANK", "0") == "0":
            print("RESULT " + json.dumps(found))
        return
    ratios: dict[str, list[float]] = {"stall": [], "lost": []}
    names = SHARDED if given.sharded else LIBRARIES
    for number in range(given.rounds):
        found = {name: measure(name, given.layers, given.directory) for name in names}
        for key, values in ratios.items():
            values.append(found[names[1]][key] / found[names[0]][key])
        shown = ", ".join(
            f"{name} stands still {seconds['stall']:.2f} s, loses {seconds['lost']:.2f} s in all "
            f"(a step takes {seconds['step']:.2f} s)"
            for name, seconds in found.items()
        )
        print(f"round {number + 1}: {shown}")
    stall, lost = (statistics.median(values) for values in ratios.values())
    print(f"median of the ratios: stands still {stall:.2f}, all time lost {lost:.2f}")


if __name__ == "__main__":
    main()
