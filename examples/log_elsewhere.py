"""A callback that logs elsewhere: every number of a run goes into a SQLite file, where any tool can read it.

    python examples/log_elsewhere.py

The rows are made up, so nothing is downloaded. Seconds on one core. A tracker of yours is written the same way.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import torch
from torch import nn

from ostinato import Trainer, TrainerCallback, TrainingArguments, set_seed


class SqliteLogger(TrainerCallback):
    """One row for each run, one for each number it logs."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.run = Path(path), None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:  # of several processes, one writes
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS runs (run INTEGER PRIMARY KEY, arguments TEXT)")
            database.execute("CREATE TABLE IF NOT EXISTS numbers (run, step, epoch, name, value)")
            arguments = json.dumps(args.to_sanitized_dict())
            self.run = database.execute("INSERT INTO runs (arguments) VALUES (?)", [arguments]).lastrowid

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.run is None:  # another process, or an evaluation without training
            return
        numbers = [
            (name, value) for name, value in logs.items() if isinstance(value, (int, float)) and name != "epoch"
        ]
        rows = [(self.run, state.global_step, state.epoch, name, value) for name, value in numbers]
        with closing(sqlite3.connect(self.path)) as database, database:  # who looks meanwhile sees the run so far
            database.executemany("INSERT INTO numbers VALUES (?, ?, ?, ?, ?)", rows)


class Curve(nn.Module):
    """Learns a curve from points on it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x, labels=None):
        y = self.layers(x.unsqueeze(-1)).squeeze(-1)
        return {"logits": y} if labels is None else {"loss": nn.functional.mse_loss(y, labels), "logits": y}


def make_rows(count: int, seed: int):
    """Points of a sine, blurred a little."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, generator=generator) * 6 - 3
    y = torch.sin(2 * x) + 0.1 * torch.randn(count, generator=generator)
    return [{"x": float(one), "labels": float(other)} for one, other in zip(x, y)]


def main(epochs: int = 30) -> tuple[float, float]:
    """Train, then ask the file; returns the last error on unseen points, and that of always answering their mean."""
    set_seed(42)
    path, test_rows = Path("runs/log_elsewhere/numbers.sqlite"), make_rows(200, seed=1)
    args = TrainingArguments(
        output_dir="runs/log_elsewhere",
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=1e-2,
        logging_strategy="epoch",
        eval_strategy="epoch",
        save_strategy="no",
    )
    trainer = Trainer(
        Curve(), args, train_dataset=make_rows(1000, seed=0), eval_dataset=test_rows, callbacks=[SqliteLogger(path)]
    )
    trainer.train()

    with closing(sqlite3.connect(path)) as database:
        (run,) = database.execute("SELECT max(run) FROM runs").fetchone()
        query = "SELECT step, value FROM numbers WHERE run = ? AND name = 'eval_loss' ORDER BY step"
        errors = database.execute(query, [run]).fetchall()
        (count,) = database.execute("SELECT count(*) FROM numbers WHERE run = ?", [run]).fetchone()
    labels = torch.tensor([row["labels"] for row in test_rows])
    mean_error = float(((labels - labels.mean()) ** 2).mean())
    print(f"\nRun {run} wrote {count} numbers into {path}. What it says of the error on unseen points:")
    for step, error in errors[:: max(len(errors) // 6, 1)]:
        print(f"  step {step:4}  {error:.4f}  {'#' * round(60 * min(error, 1))}")
    print(f"In the end {errors[-1][1]:.4f}; always answering the mean would give {mean_error:.4f}.")
    return errors[-1][1], mean_error


if __name__ == "__main__":
    main()
