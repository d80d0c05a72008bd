"""What a library costs per optimizer step, on models so small that a step is mostly library.

    python benchmarks/step_overhead.py                     # the regression MLP
    python benchmarks/step_overhead.py --model bert        # a small BERT (needs transformers)

Every contestant does the same work: batches of 8 in data-set order, AdamW (fused), clipping at 1.0, linear decay, a
running loss looked at every 500 steps. *bare* is the loop one would write by hand. Contestants take turns round by
round, each in a process of its own; what counts is the ratio of CPU time to *bare* in the same round.
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
from typing import Any

CONTESTANTS = ("bare", "ostinato", "transformers")
BATCH, RATE, CLIP = 8, 1e-3, 1.0


def build(kind: str, rows: int) -> tuple[Any, Any]:
    """A tiny model and its rows; the same weights for everyone."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if kind == "mlp":

        class Regression(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

            def forward(self, x, labels=None):
                self.tick()
                logits = self.layers(x).squeeze(-1)
                return {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}

        inputs, labels = torch.randn(rows, 16), torch.randn(rows)
        return Regression(), [{"x": inputs[i], "labels": labels[i]} for i in range(rows)]

    from transformers import BertConfig, BertForSequenceClassification

    class Classifier(BertForSequenceClassification):
        def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
            self.tick()
            return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **kwargs)

    config = BertConfig(
        vocab_size=1000, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    ids = torch.randint(5, 1000, (rows, 16))
    mask = torch.ones(16, dtype=torch.long)
    return Classifier(config), [{"input_ids": ids[i], "attention_mask": mask, "labels": i % 2} for i in range(rows)]


def bare(model: Any, rows: Any, steps: int) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (steps - step) / steps))
    running = torch.tensor(0.0)
    model.train()
    for number, batch in enumerate(torch.utils.data.DataLoader(rows, batch_size=BATCH), 1):
        loss = model(**batch)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        running += loss.detach()
        if number % 500 == 0:
            running.item()
            running.zero_()


def with_trainer(library: str) -> Any:
    def train(model: Any, rows: Any, steps: int) -> None:
        module = __import__(library)
        with tempfile.TemporaryDirectory() as directory:
            args = module.TrainingArguments(
                output_dir=directory, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=RATE,
                max_grad_norm=CLIP, train_sampling_strategy="sequential", save_strategy="no", report_to="none",
                use_cpu=True, disable_tqdm=True,
            )  # fmt: skip
            module.Trainer(model=model, args=args, train_dataset=rows).train()

    return train


def measure(contestant: str, kind: str, steps: int) -> float:
    """CPU microseconds per step, without the first hundred: stamps are taken inside the model's forward."""
    import torch

    torch.set_num_threads(1)
    model, rows = build(kind, (steps + 100) * BATCH)
    stamps: list[int] = []
    type(model).tick = lambda self: stamps.append(time.process_time_ns())
    train = bare if contestant == "bare" else with_trainer(contestant)
    train(model, rows, steps + 100)
    spans = [(b - a) / 1e3 / 50 for a, b in zip(stamps[100::50], stamps[150::50], strict=False)]
    return statistics.median(spans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("mlp", "bert"), default="mlp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(measure(options.contestant, options.model, options.steps)))
        return
    figures: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for _ in range(options.rounds):
        for name in CONTESTANTS:
            command = [sys.executable, __file__, "--contestant", name, "--model", options.model]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [*command, "--steps", str(options.steps)], capture_output=True, text=True, env=environment, check=True
            )
            figures[name].append(json.loads(done.stdout.splitlines()[-1]))
    for name, values in figures.items():
        ratio = statistics.median(mine / base for mine, base in zip(values, figures["bare"], strict=True))
        print(f"{name:14} {statistics.median(values):8.0f} us CPU per step   {ratio:5.2f} x bare")


if __name__ == "__main__":
    main()
