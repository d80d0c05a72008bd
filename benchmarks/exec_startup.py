"""What `ostinato exec` costs over running a script on stock transformers: four scripts, both ways, in turn.

    python benchmarks/exec_startup.py            # best of 5, in seconds of processor time and by the clock
    python benchmarks/exec_startup.py --times 9

nothing    a script that prints, and imports neither library
model      a model and a tokenizer of transformers, no trainer
trainer    Trainer and TrainingArguments alone; a torch module takes two steps
both       a model of transformers, trained for two steps
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"

_TRAIN = """
import tempfile
args = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
                         max_steps=2)
Trainer(model, args, train_dataset=rows).train()
"""
SCRIPTS = {
    "nothing": "print('hello')",
    "model": "from transformers import BertForSequenceClassification, PreTrainedTokenizerFast",
    "trainer": """
import torch
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

model, rows = Net(), [{"x": [float(i), 1.0], "labels": float(i)} for i in range(16)]
"""
    + _TRAIN,
    "both": """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

model = BertForSequenceClassification(
    BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
rows = [{"input_ids": [1, 2, 3], "labels": i % 2} for i in range(16)]
"""
    + _TRAIN,
}


def seconds(command: list[str]) -> tuple[float, float]:
    """Processor time and clock time of a process."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    print(f"{'':10} {'stock':>15} {'ostinato exec':>15} {'difference':>15}   processor / clock, best of {times}")
    with tempfile.TemporaryDirectory() as directory:
        for name, text in SCRIPTS.items():
            script = Path(directory) / f"{name}.py"
            script.write_text(text, encoding="utf-8")
            stock, ours = [], []
            for _ in range(times):  # in turn, so that a busy minute is shared
                stock.append(seconds([sys.executable, str(script)]))
                ours.append(seconds([sys.executable, "-m", "ostinato", "exec", str(script)]))
            best = [[min(run[kind] for run in runs) for kind in (0, 1)] for runs in (stock, ours)]
            best.append([best[1][0] - best[0][0], best[1][1] - best[0][1]])
            print(f"{name:10} " + " ".join(f"{cpu:7.2f} /{clock:6.2f}" for cpu, clock in best))


if __name__ == "__main__":
    main()
