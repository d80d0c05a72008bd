"""Peak memory of a process on a CPU: replicated and sharded training of 100 million parameters, and a save.

    python benchmarks/sharded_memory.py                # two processes, DDP and FSDP2 in turns
    python benchmarks/sharded_memory.py --rounds 3

The peak is that of the resident memory (VmHWM) of each process above what it had before the model was made. The
figures of docs/distributed.md come from it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WIDTH, LAYERS, PROCESSES = 1024, 12, 2


def read_memory(name: str) -> float:
    """Return a line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1000


def forget_peak() -> None:
    """Set the peak of this process to what it has now."""
    Path("/proc/self/clear_refs").write_text("5")


def run_process(kind: str, out: Path) -> dict[str, float]:
    """Train and save in one of the processes; return its figures, in MB."""
    import torch
    from torch import nn

    from ostinato import Trainer, TrainingArguments

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.relu(self.up(x)))

    class Model(nn.Module):
        _no_split_modules = ["Layer"]

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            y = self.layers(x)
            return {"loss": ((y - labels) ** 2).mean()}

    shards: dict[str, Any] = {"shard": "full"} if kind == "sharded" else {}
    args = TrainingArguments(
        str(out),
        max_steps=4,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        journal=False,
        **shards,
    )
    rows = [{"x": torch.randn(WIDTH), "labels": torch.randn(WIDTH)} for _ in range(16)]
    warm = nn.Linear(8, 8)  # what is imported and allocated once, by an optimizer too
    torch.optim.AdamW(warm.parameters()).step()
    before = read_memory("VmRSS")
    trainer = Trainer(Model(), args, train_dataset=rows)
    made = read_memory("VmHWM") - before
    forget_peak()
    trainer.train()
    found = {"start": made, "train": read_memory("VmHWM") - before}
    if kind == "sharded":
        resident = read_memory("VmRSS")
        forget_peak()
        trainer._save_checkpoint(trainer.model, None)
        found["save"] = read_memory("VmHWM") - resident
    found["largest tensor"] = 4 * WIDTH * WIDTH * 4 / 1e6
    return found


def launch(kind: str, out: Path) -> list[dict[str, float]]:
    """Return the figures of every process."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={PROCESSES}", __file__]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--as", kind, str(out)], check=True, env=environment, stdout=subprocess.DEVNULL)
    return [json.loads(path.read_text()) for path in sorted(out.glob("*.figures"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--as", dest="kind", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        kind, out = options.kind[0], Path(options.kind[1])
        found = run_process(kind, out)
        (out / f"{os.environ['RANK']}.figures").write_text(json.dumps(found))
        return
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            both = {}
            for kind in ("replicated", "sharded"):
                (Path(folder) / kind).mkdir()
                both[kind] = launch(kind, Path(folder) / kind)
        for kind, each in both.items():
            for rank, found in enumerate(each):
                figures = "  ".join(f"{name} {value:.0f} MB" for name, value in found.items())
                print(f"{kind:10}  rank {rank}  {figures}")
        peaks = {kind: max(one["train"] for one in each) for kind, each in both.items()}
        print(f"FSDP2 over DDP, peak in training: {peaks['sharded'] / peaks['replicated']:.2f}")


if __name__ == "__main__":
    main()
