"""CPU time of the import, over `import torch`. Each measurement is a new interpreter; contestants take turns."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

STATEMENTS = {
    "torch": "import torch",
    "ostinato": "from ostinato import Trainer, TrainingArguments",
    "transformers": "from transformers import Trainer, TrainingArguments",
}


def cpu_seconds(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(rounds: int = 7) -> None:
    for statement in STATEMENTS.values():
        cpu_seconds(statement)  # warm page cache, compiled byte code
    figures: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            figures[name].append(cpu_seconds(statement))
    for name, values in figures.items():
        ratio = statistics.median(mine / base for mine, base in zip(values, figures["torch"], strict=True))
        print(f"{name:14} {statistics.median(values):6.2f} s CPU   {ratio:5.2f} x import torch")


if __name__ == "__main__":
    main()
