"""Searches that take milliseconds per trial, and a script of one that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from ostinato import Trainer, TrainingArguments
from tests.support import tiny

SOURCE = Path(__file__).parents[2]
RATES = {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}


def build_trainer(directory: Path, cls: type[Trainer] = Trainer, rows: int = 16, **rest: Any) -> Any:
    """Return a trainer with `model_init`, which evaluates every epoch and says nothing."""
    names = ("model_init", "callbacks", "compute_metrics", "metrics", "eval_dataset", "data_collator")
    parts = {name: rest.pop(name) for name in names if name in rest}
    arguments = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "write_report": False,
        **rest,
    }
    return cls(
        args=TrainingArguments(str(directory), **arguments),
        train_dataset=tiny.regression_rows(rows),
        **{"eval_dataset": tiny.regression_rows(8), "model_init": lambda: tiny.Regression(), **parts},
    )


SCRIPT = """
import signal
import sys
import optuna
from ostinato import TrainerCallback
from tests.support.searches import RATES, build_trainer

optuna.logging.set_verbosity(optuna.logging.ERROR)
trials, seconds = int(sys.argv[2]), [float(number) for number in sys.argv[3:]]

class Kill(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        if seconds:  # of computing, not of the clock: the signal ends the process at once, however busy the machine is
            signal.setitimer(signal.ITIMER_PROF, seconds.pop())

trainer = build_trainer(
    sys.argv[1], rows=64, save_strategy="steps", save_steps=4, num_train_epochs=1, callbacks=[Kill]
)
space = {**RATES, "weight_decay": {"low": 0.0, "high": 0.1}, "lr_scheduler_type": ["linear", "cosine"]}
best = trainer.hyperparameter_search(
    space, n_trials=trials, sampler=optuna.samplers.TPESampler(seed=5, n_startup_trials=3, multivariate=True)
)
print("BEST", best.run_id, best.objective, best.hyperparameters)
"""


def start_search(
    directory: Path, trials: int, script: str = SCRIPT, killed_after: float | None = None
) -> subprocess.Popen[str]:
    """Start a search in a process of its own; it is killed after some seconds of computing since its first trial."""
    limit = [] if killed_after is None else [str(killed_after)]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), str(directory), str(trials), *limit],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=SOURCE,
        env={**os.environ, "PYTHONPATH": f"{SOURCE / 'src'}{os.pathsep}{SOURCE}", "OMP_NUM_THREADS": "1"},
    )


def finish_search(process: subprocess.Popen[str]) -> str:
    """Wait for a search, and return the line of its best trial."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return next(line for line in out.splitlines() if line.startswith("BEST"))
