"""A search on a local cluster of Ray: one process per trial, early stopping, workers that die, mutated values.

Starting Ray takes longer than the trials: `make long` runs these tests.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import Trainer, TrainerCallback
from ostinato.journal.study_record import read_study
from ostinato.search.session import get_params
from tests.support import tiny
from tests.support.digits import DIGITS_SPACE, build_digits_trainer, check_found
from tests.support.long_tests import long_only
from tests.support.searches import RATES, SOURCE, build_trainer

pytestmark = long_only
ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ.setdefault("CRC32C_SW_MODE", "auto")  # a package of Ray's sets it when it is imported
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("RAY_worker_niceness", "0")  # on a busy machine, Ray's 15 leaves the trials no time
    paths = os.pathsep.join([str(SOURCE / "src"), str(SOURCE)])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    yield
    ray.shutdown()
    monkeypatch.undo()


def test_one_space_in_three_forms(tmp_path: Path) -> None:
    from ray import tune

    def optuna_form(trial: Any) -> dict[str, float]:
        return {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)}

    for index, space in enumerate((RATES, optuna_form, lambda trial: {"learning_rate": tune.loguniform(1e-4, 1e-1)})):
        trainer = build_trainer(tmp_path / str(index))
        best = trainer.hyperparameter_search(space, n_trials=2, backend="ray")
        assert 1e-4 <= best.hyperparameters["learning_rate"] <= 1e-1
        assert len(best.run_summary.trials) == 2
        record = read_study(tmp_path / str(index))
        assert [one.state for one in record.trials] == ["complete"] * 2
        assert trainer.load_best_trial()[:3] == best[:3]
        assert trainer.evaluate()["eval_loss"] == best.objective


def test_early_stopping_by_asha(tmp_path: Path) -> None:
    from ray.tune.schedulers import ASHAScheduler

    trainer = build_trainer(tmp_path, num_train_epochs=8)
    scheduler = ASHAScheduler(max_t=8, grace_period=1, reduction_factor=2)
    space = {"learning_rate": {"grid_search": [1e-1, 1e-5]}}
    best = trainer.hyperparameter_search(lambda trial: space, n_trials=1, backend="ray", scheduler=scheduler)
    trials = read_study(tmp_path).trials
    assert len(trials) == 2
    assert "complete" in {one.state for one in trials} <= {"complete", "pruned"}
    assert best.hyperparameters["learning_rate"] == 1e-1
    assert trainer.load_best_trial()[:3] == best[:3]


class Die(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark = Path(args.output_dir) / "died"
        if state.global_step == 5 and not mark.exists():
            mark.write_text("once")
            os._exit(1)


class Counted(Trainer):
    def _tune_save_checkpoint(self, checkpoint_dir: str) -> None:
        with (Path(self.args.output_dir) / "for_ray.txt").open("a") as file:
            file.write(f"{self.state.global_step}\n")
        super()._tune_save_checkpoint(checkpoint_dir)


def test_a_trial_that_dies_is_tried_again_from_its_checkpoint(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, cls=Counted, callbacks=[Die()], save_strategy="epoch")
    best = trainer.hyperparameter_search({"learning_rate": [1e-2]}, n_trials=1, backend="ray")
    (trial,) = read_study(tmp_path).trials
    assert trial.times_begun == 2
    assert (tmp_path / "for_ray.txt").read_text().split() == ["4", "8"]  # the second process went on from step 4
    whole = build_trainer(tmp_path / "whole", learning_rate=1e-2)
    whole.train()
    assert whole.evaluate()["eval_loss"] == best.objective


class Rates(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        line = f"{state.global_step} {args.weight_decay} {optimizer.param_groups[0]['weight_decay']}\n"
        with (Path(args.output_dir) / "decays.txt").open("a") as file:
            file.write(line)


@pytest.mark.filterwarnings("ignore:Consider boosting PBT performance:UserWarning")
def test_values_mutated_by_population_based_training(tmp_path: Path) -> None:
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations={"weight_decay": [0.1, 0.2]},
        quantile_fraction=0.5, synch=True,  # a trial waits for the other, so that one of them is worse
    )  # fmt: skip
    trainer = build_trainer(tmp_path, callbacks=[Rates()], save_strategy="epoch", num_train_epochs=4)
    trainer.hyperparameter_search(
        lambda trial: {"weight_decay": tune.choice([0.0, 0.3])}, n_trials=2, backend="ray", scheduler=scheduler
    )
    lines = [line.split() for line in (tmp_path / "decays.txt").read_text().splitlines()]
    assert all(argument == used for _, argument, used in lines)
    assert {float(argument) for _, argument, _ in lines} & {0.1, 0.2}


def test_ray_finds_the_planted_optimum(tmp_path: Path) -> None:
    from ray.tune.search.optuna import OptunaSearch

    best = build_digits_trainer(tmp_path / "searched").hyperparameter_search(
        DIGITS_SPACE, "accuracy", direction="maximize", n_trials=20, backend="ray", search_alg=OptunaSearch(seed=0)
    )
    assert [one.state for one in read_study(tmp_path / "searched").trials] == ["complete"] * 20
    check_found(best, tmp_path)


class Breaks(Trainer):
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self.args.weight_decay == 0.1:
            raise RuntimeError("no step works")
        if self.args.weight_decay == 0.2:
            raise torch.OutOfMemoryError("out of memory")
        return super().training_step(*args, **kwargs)


def break_model(trial: Any) -> Any:
    if trial is not None and trial["weight_decay"] == 0.3:
        raise ValueError("no model of this form")
    return tiny.Regression()


def test_a_trial_that_fails_is_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    def score(prediction: Any) -> dict[str, float]:  # with the arguments of the trainer in the worker
        decay = trainer.args.weight_decay
        return {"score": 1 / (0.5 - decay) if decay != 0.6 else math.nan}

    trainer = build_trainer(tmp_path, cls=Breaks, model_init=break_model, compute_metrics=score)
    space = {"weight_decay": {"grid_search": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}}
    best = trainer.hyperparameter_search(space, "score", n_trials=1, backend="ray")
    assert best.hyperparameters == {"weight_decay": 0.4}
    reasons = {one.params["weight_decay"]: one.reason for one in read_study(tmp_path).trials}
    assert {value: reason and reason["type"] for value, reason in reasons.items()} == {
        0.1: "RuntimeError", 0.2: "OutOfMemory", 0.3: "ValueError", 0.4: None, 0.5: "ZeroDivisionError", 0.6: "NaN"
    }  # fmt: skip
    # A finished search has its result from the disk; so has one with a trial that Ray was not told of.
    again = build_trainer(tmp_path, cls=Breaks, model_init=break_model, compute_metrics=score)
    assert again.hyperparameter_search(space, "score", n_trials=1, backend="ray")[:3] == best[:3]
    assert [one.times_begun for one in read_study(tmp_path).trials] == [1] * 6


class Builds(Trainer):
    def call_model_init(self, trial: Any = None) -> torch.nn.Module:
        return tiny.Regression(hidden=16 if trial is None else get_params(trial)["hidden"])


def test_a_trainer_that_makes_models_itself(tmp_path: Path) -> None:
    trainer = Builds(tiny.Regression(), build_trainer(tmp_path).args, eval_dataset=tiny.regression_rows(8),
                     train_dataset=tiny.regression_rows(16))  # fmt: skip
    best = trainer.hyperparameter_search(lambda trial: {"hidden": {"grid_search": [4, 8]}}, n_trials=1, backend="ray")
    assert not isinstance(best, list)
    assert len(read_study(tmp_path).trials) == 2
    assert trainer.load_best_trial()[:3] == best[:3]
    assert trainer.evaluate()["eval_loss"] == best.objective


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("ray_program.py")), str(tmp_path)]
    paths = os.pathsep.join([str(SOURCE / "src"), str(SOURCE)])
    variables = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "waits").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    before = read_study(tmp_path).trials
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = read_study(tmp_path).trials
    assert [one.state for one in trials] == ["complete"] * 3
    assert [one.times_begun for one in trials] == [1, 2, 1]
    assert [one.id for one in trials[:2]] == [one.id for one in before]
    lines = (tmp_path / "search" / "study.jsonl").read_text().splitlines()
    entries = [entry for entry in map(json.loads, lines) if entry.get("number") == 1]
    assert [entry["resumed"] for entry in entries if entry["event"] == "trial"] == [False, True]
    assert [entry["step"] for entry in entries if entry["event"] == "value"] == [4, 8]
