"""Unmodified search scripts on both libraries: the same values are drawn, and every objective is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dropin_runs import run_both_ways

pytest.importorskip("transformers")
pytest.importorskip("optuna")

SETTING = """
import optuna, torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import default_hp_space_optuna
from transformers.utils.hp_naming import TrialShortNamer

optuna.logging.set_verbosity(optuna.logging.ERROR)

class Config(PretrainedConfig):
    def __init__(self, hidden=4, **kwargs):
        super().__init__(**kwargs)
        self.hidden = hidden

class Model(PreTrainedModel):
    config_class = Config
    def __init__(self, config):
        super().__init__(config)
        self.inner, self.outer = nn.Linear(3, config.hidden), nn.Linear(config.hidden, 1)
        self.post_init()
    def _init_weights(self, module):
        pass
    def forward(self, x, labels=None):
        y = self.outer(torch.tanh(self.inner(x))).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

draw = torch.Generator().manual_seed(0)
rows = [{"x": torch.randn(3, generator=draw), "labels": torch.randn((), generator=draw)} for _ in range(24)]
seen = []

class Watch(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        seen.append([dict(state.trial_params), state.is_hyper_param_search, args.learning_rate, args.num_train_epochs])
    def on_evaluate(self, args, state, control, metrics, **kwargs):
        seen.append([state.global_step, metrics["eval_loss"]])
    def on_train_end(self, args, state, control, **kwargs):
        seen.append("end")

def make_trainer(name, model_init=lambda: Model(Config()), **arguments):
    defaults = {"eval_strategy": "epoch", "save_strategy": "no", "num_train_epochs": 2, "report_to": "none",
                "disable_tqdm": True, "use_cpu": True, "learning_rate": 0.01}
    args = TrainingArguments(name, **{**defaults, **arguments})
    return Trainer(model_init=model_init, args=args, train_dataset=rows, eval_dataset=rows[:8], callbacks=[Watch()])
"""

SCRIPT = (
    SETTING
    + """
def space(trial):
    return {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
            "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [4, 8]),
            "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 3)}

found = {}
trainer = make_trainer("tpe")
found["tpe"] = trainer.hyperparameter_search(space, n_trials=4, sampler=optuna.samplers.TPESampler(seed=3,
    n_startup_trials=2))
found["objective"] = trainer.objective

found["pruned"] = make_trainer("pruned", num_train_epochs=3).hyperparameter_search(
    lambda trial: {"learning_rate": 10 ** trial.suggest_float("exponent", -5, -1)}, n_trials=5,
    sampler=optuna.samplers.RandomSampler(seed=1), pruner=optuna.pruners.MedianPruner(n_startup_trials=1))

found["two"] = make_trainer("two").hyperparameter_search(
    space, compute_objective=lambda metrics: (metrics["eval_loss"], metrics["epoch"]),
    direction=["minimize", "maximize"], n_trials=4, sampler=optuna.samplers.NSGAIISampler(seed=1, population_size=2))

class Namer(TrialShortNamer):
    DEFAULTS = {"hidden": 0, "learning_rate": 0}

def model_init(trial):
    return Model(Config(hidden=4 if trial is None else trial.suggest_int("hidden", 2, 8)))

names = []
def hp_name(trial):
    names.append(Namer.shortname(trial.params))
    return names[-1]

found["shaped"] = make_trainer("shaped", model_init).hyperparameter_search(
    lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1)}, n_trials=2, hp_name=hp_name,
    sampler=optuna.samplers.RandomSampler(seed=2), direction="maximize")

count = len(seen)
found["default"] = make_trainer("default", eval_strategy="no").hyperparameter_search(
    default_hp_space_optuna, n_trials=1, sampler=optuna.samplers.RandomSampler(seed=2))

result = {"found": found, "seen": seen[:count], "names": sorted(set(names))}
"""
)


def test_the_same_values_and_the_same_objectives(tmp_path: Path) -> None:
    theirs, ours = run_both_ways(SCRIPT, tmp_path)
    # transformers initializes a model with the seed of the trial before: the same values give another objective again.
    seeds = [one.result["found"].pop("default") for one in (theirs, ours)]
    assert seeds[0][2] == seeds[1][2]
    assert seeds[0][1] != seeds[1][1]
    assert theirs.result["found"] == ours.result["found"]
    assert theirs.result["seen"] == ours.result["seen"]
    assert theirs.result["names"] == ours.result["names"]
    pruned = [entry for entry in ours.result["seen"] if entry == "end"]
    assert len(pruned) == 4 + 5 + 4 + 2
    assert (tmp_path / "ostinato" / "shaped" / ours.result["names"][-1] / "events.jsonl").is_file()
