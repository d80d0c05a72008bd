"""A search that can be killed: `search_program.py OUTPUT_DIR TRIALS WORKERS [SECONDS]`. Each worker prints its best.

It is killed after so many seconds of computing since its first trial: not of the clock, however busy the machine is.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import optuna

from ostinato import TrainerCallback
from tests.support.searches import RATES, build_trainer

SPACE = {**RATES, "weight_decay": {"low": 0.0, "high": 0.1}, "lr_scheduler_type": ["linear", "cosine"]}
optuna.logging.set_verbosity(optuna.logging.ERROR)


class Kill(TrainerCallback):
    """Lets the system end the process, which cannot do anything about it."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.seconds:
            signal.setitimer(signal.ITIMER_PROF, self.seconds.pop())


def main(directory: Path, trials: int, workers: int, seconds: list[float]) -> None:
    others = []
    while len(others) < workers - 1:
        process = os.fork()
        if process == 0:
            others.clear()
            break
        others.append(process)
    trainer = build_trainer(
        directory, rows=64, save_strategy="steps", save_steps=4, num_train_epochs=1, callbacks=[Kill(seconds)]
    )
    sampler = optuna.samplers.TPESampler(seed=5, n_startup_trials=3, multivariate=True)
    given = {"storage": f"sqlite:///{directory}/study.db", "study_name": "search", "load_if_exists": True}
    options = given if "SQLITE" in os.environ else {}
    best = trainer.hyperparameter_search(SPACE, n_trials=trials, sampler=sampler, **options)
    print("BEST", best.run_id, best.objective, best.hyperparameters, flush=True)
    for other in others:
        assert os.waitpid(other, 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), [float(number) for number in sys.argv[4:]])
