"""Evaluating a language model: peak memory and CPU time with a metric function over all logits.

    python benchmarks/evaluation_memory.py                 # 2 GB of logits
    python benchmarks/evaluation_memory.py --rows 400      # 0.4 GB
    python benchmarks/evaluation_memory.py --growth        # Ostinato alone: that many rows, and ten times as many

A small GPT-2 with 8000 tokens and rows of 32. *by hand* adds up the accuracy batch by batch in a loop over the data:
nothing is kept. transformers and Ostinato evaluate with the same ordinary `compute_metrics`, which takes the argmax
of all logits. Contestants take turns round by round, each in a process of its own; what counts is the ratio to *by
hand* in the same round. Memory is the peak of resident pages over what the process had before (Linux; pages of mapped
files count). With --growth, memory that is freed goes back to the system at once, so that only what is held counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

BATCH, LENGTH, VOCAB = 16, 32, 8000
NAMES = ["by hand", "transformers", "ostinato"]


def build(rows: int) -> tuple[Any, Any]:
    import torch
    import transformers

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return rows

        def __getitem__(self, index: int) -> dict[str, Any]:
            ids = torch.randint(VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": ids, "labels": ids}

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config), Rows()


def by_hand(model: Any, data: Any) -> Callable[[], float]:
    import torch

    def run() -> float:
        right = total = 0
        model.eval()
        with torch.no_grad():
            for batch in torch.utils.data.DataLoader(data, batch_size=BATCH):
                guesses = model(**batch).logits[:, :-1].argmax(-1)
                right += int((guesses == batch["labels"][:, 1:]).sum())
                total += guesses.numel()
        return right / total

    return run


def by_trainer(library: str, model: Any, data: Any, out: str) -> Callable[[], float]:
    import importlib

    def metrics(prediction: Any) -> dict[str, float]:
        guesses = prediction.predictions[:, :-1].argmax(-1)
        return {"accuracy": float((guesses == prediction.label_ids[:, 1:]).mean())}

    module = importlib.import_module(library)
    args = module.TrainingArguments(
        output_dir=out, per_device_eval_batch_size=BATCH, report_to="none", use_cpu=True, disable_tqdm=True
    )
    trainer = module.Trainer(model, args, eval_dataset=data, compute_metrics=metrics)
    return lambda: trainer.evaluate()["eval_accuracy"]


def contest(name: str, rows: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    model, data = build(rows)
    with tempfile.TemporaryDirectory() as out:
        few = torch.utils.data.Subset(data, range(2 * BATCH))
        for these in (few, data):  # the first is for what is loaded on first use
            run = by_hand(model, these) if name == "by hand" else by_trainer(name, model, these, out)
            before, started = reset_peak(), time.process_time()
            accuracy = run()
            spent, peak = time.process_time() - started, memory("VmHWM")
    return {"accuracy": accuracy, "cpu": spent, "memory": peak - before, "peak": peak}


def memory(name: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 / 1e6 for line in file if line.startswith(name))


def reset_peak() -> float:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return memory("VmRSS")


def in_a_process(name: str, rows: int, **more: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--rows", str(rows), "--contestant", name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def compare(rows: int, rounds: int) -> None:
    ratios: dict[str, dict[str, list[float]]] = {name: {"memory": [], "cpu": []} for name in NAMES}
    for number in range(rounds):
        found = {name: in_a_process(name, rows) for name in NAMES}
        for name in NAMES:
            for what, values in ratios[name].items():
                values.append(found[name][what] / found["by hand"][what])
        shown = ", ".join(f"{name} {found[name]['memory']:.0f} MB {found[name]['cpu']:.1f} s" for name in NAMES)
        agree = len({round(result["accuracy"], 12) for result in found.values()}) == 1
        print(f"round {number + 1}: {shown}; {'the same accuracy' if agree else 'ACCURACIES DIFFER'}")
    for what in ("memory", "cpu"):
        medians = ", ".join(f"{name} {statistics.median(ratios[name][what]):.2f}" for name in NAMES)
        print(f"{what}, ratio to by hand: {medians}")


def grow(rows: int, rounds: int) -> None:
    for number in range(rounds):
        few, many = (in_a_process("ostinato", count, MALLOC_MMAP_THRESHOLD_=str(2**20)) for count in (rows, 10 * rows))
        shown = f"{rows} rows {few['memory']:.0f} MB, {10 * rows} rows {many['memory']:.0f} MB"
        differ = f"the peaks of the whole process differ by {many['peak'] / few['peak'] - 1:+.1%}"
        print(f"round {number + 1}: {shown}; {differ}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contestant:
        print("RESULT " + json.dumps(contest(given.contestant, given.rows)))
    elif given.growth:
        grow(given.rows, given.rounds)
    else:
        compare(given.rows, given.rounds)


if __name__ == "__main__":
    main()
