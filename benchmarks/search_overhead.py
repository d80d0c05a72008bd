"""What a search adds to a trial: the CPU time of a search, less that of as many plain runs with the same arguments.

    python benchmarks/search_overhead.py [--trials 20] [--rounds 3]

Both train the same small model with the same values, in one process and in turns. The plain runs build their model,
train, evaluate every epoch and write a journal as the trials do; what remains is the study, the record, the restored
state and the weights of the best.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments


class Model(nn.Module):
    """A small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layers(x).squeeze(-1)
        return {"loss": nn.functional.mse_loss(y, labels), "logits": y}


ROWS = [{"x": torch.full((8,), float(row % 7)), "labels": torch.tensor(float(row % 3))} for row in range(64)]
SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "weight_decay": {"low": 0.0, "high": 0.1}}


def make_trainer(directory: Path) -> Trainer:
    args = TrainingArguments(
        str(directory),
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
    )
    return Trainer(model_init=lambda: Model(), args=args, train_dataset=ROWS, eval_dataset=ROWS[:16])


def measure(action: Callable[[], object]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - cpu, time.perf_counter() - wall


def train_plainly(directory: Path, trials: int) -> None:
    trainer = make_trainer(directory)
    for _ in range(trials):
        trainer.train()


def search(directory: Path, trials: int) -> None:
    import optuna

    make_trainer(directory).hyperparameter_search(
        SPACE, n_trials=trials, sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.NopPruner()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    added: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as root:
        search(Path(root, "warm-up"), 2)
        train_plainly(Path(root, "warm-up-plain"), 2)
        for turn in range(options.rounds):
            plain = measure(lambda turn=turn: train_plainly(Path(root, f"plain-{turn}"), options.trials))
            searched = measure(lambda turn=turn: search(Path(root, f"search-{turn}"), options.trials))
            added.append(((searched[0] - plain[0]) / options.trials, (searched[1] - plain[1]) / options.trials))
            print(
                f"round {turn + 1}: a plain run {plain[0] / options.trials * 1e3:.1f} ms, "
                f"a trial {searched[0] / options.trials * 1e3:.1f} ms of CPU time"
            )
    cpu, wall = (statistics.median(column) for column in zip(*added, strict=True))
    print(f"added by the search per trial: {cpu * 1e3:.1f} ms of CPU time, {wall * 1e3:.1f} ms (medians)")


if __name__ == "__main__":
    main()
