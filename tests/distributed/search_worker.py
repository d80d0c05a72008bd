"""What each process of the test of searches runs: `search_worker.py OUT_DIR [ray]`. Rank r writes `rank-r.json`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import optuna
import torch

from ostinato import TrainerCallback
from ostinato.core.errors import ConfigError
from tests.support import tiny
from tests.support.searches import RATES, build_trainer

RANK = int(os.environ["RANK"])
optuna.logging.set_verbosity(optuna.logging.ERROR)


def make_model(trial: Any) -> torch.nn.Module:
    return tiny.Regression(hidden=8 if trial is None else trial.suggest_int("hidden", 4, 16))


def space(trial: Any) -> dict[str, Any]:
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        "optim": trial.suggest_categorical("optim", ["adamw_torch", "sgd"]),
    }


def search_with_ray(out: Path) -> None:
    trainer = build_trainer(out / "searched", model_init=make_model)
    try:
        trainer.hyperparameter_search(RATES, n_trials=1, backend="ray")
    except ConfigError as error:
        (out / f"rank-{RANK}.json").write_text(json.dumps({"what": error.what, "fix": error.fix}))


def main(out: Path) -> None:
    seen: list[Any] = []

    class Watch(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append([dict(state.trial_params), state.trial_name, args.learning_rate, str(args.optim)])

        def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            seen.append([state.global_step, float(sum(one.sum() for one in model.parameters()))])

    trainer = build_trainer(out / "searched", model_init=make_model, callbacks=[Watch()], num_train_epochs=3)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=1)
    best = trainer.hyperparameter_search(
        space, n_trials=4, sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner
    )
    loaded = trainer.load_best_trial()
    found = {"best": best, "loaded": loaded, "seen": seen, "loss": trainer.evaluate()["eval_loss"]}
    (out / f"rank-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    (search_with_ray if sys.argv[2:] == ["ray"] else main)(Path(sys.argv[1]))
