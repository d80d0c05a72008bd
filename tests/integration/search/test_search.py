"""A search in one process: clean trials, what is recorded, what remains, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import BestRun, EarlyStoppingCallback, Trainer, TrainerCallback
from ostinato.core.errors import ConfigError, MetricError
from ostinato.journal.study_record import read_study
from tests.support import tiny
from tests.support.searches import RATES, build_trainer

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def random_sampler(seed: int = 0) -> Any:
    return optuna.samplers.RandomSampler(seed=seed)


# ---------------------------------------------------------------------------------------------------- what is recorded


def test_the_record_of_a_search(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path)
    best = trainer.hyperparameter_search(RATES, n_trials=3, sampler=random_sampler())
    record = read_study(tmp_path)
    assert (record.backend, record.engine, record.directions) == ("optuna", "RandomSampler", ("minimize",))
    assert record.space == [
        {"name": "learning_rate", "kind": "float", "low": 1e-4, "high": 1e-1, "step": None, "log": True}
    ]
    assert [one.state for one in record.trials] == ["complete"] * 3
    winner = record.find_best()[0]
    assert winner.values is not None
    assert best == BestRun(str(winner.number), winner.values[0], winner.params)
    assert [value.step for value in winner.curve] == [4, 8]
    assert winner.curve[-1].values == winner.values
    for one in record.trials:
        lines = (tmp_path / one.directory / "events.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["arguments"]["learning_rate"] == one.params["learning_rate"]
    assert len({one.directory for one in record.trials}) == 3
    assert trainer.args.learning_rate == 5e-5
    assert trainer.hp_search_backend is None


def test_the_winner_is_on_disk(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path)
    best = trainer.hyperparameter_search(RATES, n_trials=4, sampler=random_sampler())
    models = [path.name for path in (tmp_path / "search" / "models").iterdir()]
    assert models == [best.run_id]
    other = build_trainer(tmp_path)
    assert other.load_best_trial() == best
    assert other.evaluate()["eval_loss"] == best.objective
    assert other.args.learning_rate == best.hyperparameters["learning_rate"]


def test_the_best_trial_trained_again_gives_the_same_metric(tmp_path: Path) -> None:
    def model_init(trial: Any) -> torch.nn.Module:
        return tiny.Regression(hidden=16 if trial is None else trial.suggest_int("hidden", 4, 16), dropout=0.3)

    trainer = build_trainer(tmp_path, model_init=model_init)
    best = trainer.hyperparameter_search(RATES, n_trials=3, sampler=random_sampler())
    again = build_trainer(tmp_path / "again", model_init=model_init)
    again.train(trial=best.hyperparameters)
    assert again.args.learning_rate == best.hyperparameters["learning_rate"]
    assert again.evaluate()["eval_loss"] == best.objective


def test_drawn_values_with_names_of_their_own(tmp_path: Path) -> None:
    """The space says what a drawn number does: it need not have the name of an argument, nor be its value."""

    def space(trial: Any) -> dict[str, float]:
        return {"learning_rate": 10 ** trial.suggest_float("exponent", -4, -1), "weight_decay": 0.1}

    trainer = build_trainer(tmp_path)
    best = trainer.hyperparameter_search(space, n_trials=3, sampler=random_sampler())
    assert set(best.hyperparameters) == {"exponent"}
    rate = 10 ** best.hyperparameters["exponent"]
    trainer.train(trial=best.hyperparameters)
    assert (trainer.args.learning_rate, trainer.args.weight_decay) == (rate, 0.1)
    assert trainer.evaluate()["eval_loss"] == best.objective
    other = build_trainer(tmp_path)
    assert other.load_best_trial() == best
    assert (other.args.learning_rate, other.args.weight_decay) == (rate, 0.1)
    again = build_trainer(tmp_path / "again")
    again.hp_space = space
    again.train(trial=optuna.trial.FixedTrial(best.hyperparameters))
    assert again.evaluate()["eval_loss"] == best.objective


class Builds(Trainer):
    def call_model_init(self, trial: Any = None) -> torch.nn.Module:
        return tiny.Regression(hidden=16 if trial is None else trial.suggest_int("hidden", 4, 16))


def test_a_trainer_that_makes_models_itself(tmp_path: Path) -> None:
    def build() -> Trainer:
        plain = build_trainer(tmp_path)
        return Builds(
            tiny.Regression(), plain.args, train_dataset=plain.train_dataset, eval_dataset=plain.eval_dataset
        )

    best = build().hyperparameter_search(RATES, n_trials=3, sampler=random_sampler())
    assert not isinstance(best, list)
    assert set(best.hyperparameters) == {"learning_rate", "hidden"}
    other = build()
    assert other.load_best_trial() == best
    assert other.evaluate()["eval_loss"] == best.objective


def test_several_objectives(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path)
    best = trainer.hyperparameter_search(
        {**RATES, "num_train_epochs": [1, 2]},
        lambda metrics: [metrics["eval_loss"], metrics["epoch"]],
        n_trials=5,
        direction=["minimize", "minimize"],
        sampler=random_sampler(1),
    )
    assert {one.run_id for one in best} == {str(one.number) for one in read_study(tmp_path).find_best()}
    kept = {path.name for path in (tmp_path / "search" / "models").iterdir()}
    assert kept == {one.run_id for one in best}


def test_a_sum_of_metrics_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = build_trainer(tmp_path, compute_metrics=lambda prediction: {"one": 1.0, "two": 2.0})
    assert trainer.hyperparameter_search(RATES, n_trials=1).objective == 3.0
    assert "minimize is eval_one + eval_two" in capsys.readouterr().err


def test_metrics_by_name(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path, compute_metrics=lambda prediction: {"size": float(len(prediction.predictions))})
    best = trainer.hyperparameter_search(RATES, "size", n_trials=1, direction="maximize")
    assert best.objective == 8.0


# ---------------------------------------------------------------------------------------------------- clean trials


class Counter(TrainerCallback):
    def __init__(self) -> None:
        self.evaluations = 0
        self.all_counts: list[int] = []

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.evaluations += 1
        self.all_counts.append(self.evaluations)


def test_every_trial_begins_with_clean_callbacks(tmp_path: Path) -> None:
    counter, stopping = Counter(), EarlyStoppingCallback(early_stopping_patience=2)
    trainer = build_trainer(
        tmp_path, callbacks=[counter, stopping], metric_for_best_model="loss", load_best_model_at_end=True,
        save_strategy="epoch", save_total_limit=1, num_train_epochs=3,
    )  # fmt: skip
    first: list[tuple[Any, int]] = []

    class Watch(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            first.append((stopping.early_stopping_patience_counter, len(optimizer.state)))

    trainer.add_callback(Watch())
    # Rates at which nothing gets better: the counter of early stopping ends above 0.
    trainer.hyperparameter_search({"learning_rate": [1e-30]}, n_trials=3)
    assert first == [(0, 0)] * 3
    assert counter.all_counts == [1, 2, 3] * 3


def test_a_value_does_not_leak_into_the_next_trial(tmp_path: Path) -> None:
    decays = []

    class Watch(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            decays.append(args.weight_decay)

    def space(trial: Any) -> dict[str, float]:
        return {"weight_decay": trial.suggest_float("weight_decay", 0.1, 0.2)} if trial.number == 0 else {}

    build_trainer(tmp_path, callbacks=[Watch()]).hyperparameter_search(space, n_trials=2)
    assert decays[0] >= 0.1
    assert decays[1] == 0.0


def test_trials_of_one_name_have_directories_of_their_own(tmp_path: Path) -> None:
    build_trainer(tmp_path).hyperparameter_search(RATES, n_trials=2, hp_name=lambda trial: "same")
    assert [one.directory for one in read_study(tmp_path).trials] == ["same", "same-1"]


def test_a_name_cannot_leave_the_output_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hp_name returned '\.\./x'"):
        build_trainer(tmp_path / "out").hyperparameter_search(RATES, n_trials=1, hp_name=lambda trial: "../x")


def test_nested_values(tmp_path: Path) -> None:
    seen = []

    class Watch(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
            seen.append((args.optim_args, optimizer.param_groups[0]["momentum"]))

    trainer = build_trainer(tmp_path, callbacks=[Watch()], optim="sgd", optim_args="nesterov=false")
    trainer.hyperparameter_search({"optim_args.momentum": [0.5]}, n_trials=1)
    assert seen == [("nesterov=false,momentum=0.5", 0.5)]
    assert trainer.args.optim_args == "nesterov=false"


def test_a_searched_seed_initializes_the_model_of_its_own_trial(tmp_path: Path) -> None:
    trainer = build_trainer(tmp_path)
    trainer.hyperparameter_search({"seed": [7]}, n_trials=2, sampler=random_sampler())
    values = [one.values for one in read_study(tmp_path).trials]
    assert values[0] == values[1]


# ---------------------------------------------------------------------------------------------------- failures


def test_a_trial_that_fails_is_recorded_and_the_search_goes_on(tmp_path: Path) -> None:
    calls = []

    def fail_sometimes(prediction: Any) -> dict[str, float]:
        rate = round(trainer.args.weight_decay, 1)
        calls.append(rate)
        if rate == 0.1:
            raise RuntimeError("the metric is broken")
        if rate == 0.2:
            raise MemoryError("out of memory")
        return {"score": math.nan if rate == 0.3 else rate}

    trainer = build_trainer(tmp_path, compute_metrics=fail_sometimes)
    sampler = optuna.samplers.GridSampler({"weight_decay": [0.1, 0.2, 0.3, 0.4]}, seed=0)
    best = trainer.hyperparameter_search(
        {"weight_decay": [0.1, 0.2, 0.3, 0.4]}, "score", direction="maximize", n_trials=4, sampler=sampler
    )
    assert best.objective == 0.4
    reasons = {one.params["weight_decay"]: one.reason for one in read_study(tmp_path).trials}
    assert "the metric is broken" in (reasons[0.1] or {})["text"]
    assert re.search(rf"{Path(__file__).name}:\d+ in fail_sometimes$", (reasons[0.1] or {})["where"])
    assert (reasons[0.2] or {})["type"] in ("MemoryError", "OutOfMemory")
    assert reasons[0.3] == {"type": "NaN", "text": "the objective is not a number"}
    assert reasons[0.4] is None


def test_a_search_of_which_all_trials_fail(tmp_path: Path) -> None:
    class Broken(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no step works")

    with pytest.raises(ConfigError, match="2 failed") as caught:
        build_trainer(tmp_path, cls=Broken).hyperparameter_search(RATES, n_trials=2)
    assert "no step works" in str(caught.value)


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("space", "what", "fix"),
    [
        ({"learnig_rate": [1e-3]}, "learnig_rate", "learning_rate"),
        ({"learning_rate": {"low": 1e-2, "high": 1e-4}}, "reversed", "low: 0.0001"),
        ({"learning_rate": {"low": 0, "high": 1e-2, "log": True}}, "logarithmic", "above 0"),
        ({"learning_rate": {"low": 1e-4}}, "no high", "high"),
        ({"learning_rate": {"low": 1e-4, "hihg": 1e-2}}, "hihg", "high"),
        ({"optim": []}, "empty", "first"),
        ({}, "empty", "parameter"),
        ({"learning_rate": 1e-3}, "0.001", "low"),
        (lambda trial: {"lr": trial.suggest_float("lr", 1e-4, 1e-2)}, "'lr'", "learning_rate"),
        (lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1, 0)}, "reversed", "low: 0"),
        (
            lambda trial: {"learningrate": trial.suggest_float("learning_rate", 0, 1)},
            "'learningrate'",
            "learning_rate",
        ),
        (lambda trial: None, "returned None", "return"),
        ({"optim": ["adamw_torch", "adafactr"]}, "optim='adafactr'", "'adafactor'"),
        (lambda trial: {"optim": trial.suggest_categorical("optim", ["sgd", "sdg"])}, "optim='sdg'", "'sgd'"),
        ({"learning_rate": {"low": -1.0, "high": 1e-3}}, "learning_rate=-1.0", "learning_rate"),
        ({"per_device_train_batch_size": [4, 0]}, "per_device_train_batch_size=0", "8"),
        ({"gradient_accumulation_steps": [1, "two"]}, "gradient_accumulation_steps='two'", "int"),
        ({"learning_rate.peak": [1e-3]}, "learning_rate.peak", "leave it out"),
    ],
)
def test_a_space_that_cannot_be_meant(tmp_path: Path, space: Any, what: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_trainer(tmp_path).hyperparameter_search(space, n_trials=1)
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert not list(tmp_path.glob("run-*"))


def test_mistakes_before_the_first_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = build_trainer(tmp_path)
    with pytest.raises(ValueError, match="select one of"):
        trainer.hyperparameter_search(RATES, backend="optona")
    with pytest.raises(TypeError, match="n_trails"):
        trainer.hyperparameter_search(RATES, n_trails=3)
    with pytest.raises(ConfigError, match="direction"):
        trainer.hyperparameter_search(RATES, direction="up")
    with pytest.raises(ConfigError, match="direction"):
        trainer.hyperparameter_search(RATES, direction=None)
    for number in (0, -1, "3", None):
        with pytest.raises(ConfigError, match="no trials"):
            trainer.hyperparameter_search(RATES, n_trials=number)
    with pytest.raises(ConfigError, match=r"RandomSampler\(\)"):
        trainer.hyperparameter_search(RATES, sampler=optuna.samplers.RandomSampler)
    with pytest.raises(ConfigError, match="compute_objective=5"):
        trainer.hyperparameter_search(RATES, 5)
    with pytest.raises(ConfigError, match="hp_name='trial'"):
        trainer.hyperparameter_search(RATES, hp_name="trial")
    with pytest.raises(ConfigError, match="cannot be opened"):
        trainer.hyperparameter_search(RATES, storage=f"sqlite:///{tmp_path}/missing/study.db")
    with pytest.raises(KeyError, match="eval_f1"):
        trainer.hyperparameter_search(RATES, "f1", n_trials=1)
    with pytest.raises(MetricError, match="2 directions"):
        trainer.hyperparameter_search(RATES, direction=["minimize", "maximize"], n_trials=1)
    with pytest.raises(RuntimeError, match="model_init"):
        Trainer(tiny.regression(), trainer.args, eval_dataset=[]).hyperparameter_search(RATES)
    with pytest.raises(ValueError, match="eval_dataset"):
        build_trainer(tmp_path, eval_dataset=None, eval_strategy="no").hyperparameter_search(RATES)
    monkeypatch.setattr("ostinato.search.backends.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="ostinato\\[search\\]"):
        trainer.hyperparameter_search(RATES, backend="optuna")
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize(
    ("objective", "message"),
    [(lambda metrics: metrics["eval_f1"], "eval_f1"), (lambda metrics: None, "returned None")],
)
def test_an_objective_that_no_evaluation_returns_ends_the_search(tmp_path: Path, objective: Any, message: str) -> None:
    with pytest.raises(KeyError, match=message):
        build_trainer(tmp_path).hyperparameter_search(RATES, objective, n_trials=3)
    assert len(list(tmp_path.glob("run-*"))) == 1


def test_a_study_of_another_space(tmp_path: Path) -> None:
    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_trainer(tmp_path, callbacks=[Stop()]).hyperparameter_search(RATES, n_trials=2)
    with pytest.raises(ConfigError, match="belongs to another search") as caught:
        build_trainer(tmp_path).hyperparameter_search({"weight_decay": [0.1]}, n_trials=2)
    assert "learning_rate (searched then)" in caught.value.why
    with pytest.raises(ConfigError, match="belongs to another search"):
        build_trainer(tmp_path, num_train_epochs=1).hyperparameter_search(RATES, n_trials=2)
    build_trainer(tmp_path).hyperparameter_search(RATES, n_trials=2)
    assert [one.times_begun for one in read_study(tmp_path).trials] == [2, 1]


def test_a_name_that_another_study_has(tmp_path: Path) -> None:
    given = {"storage": f"sqlite:///{tmp_path}/study.db", "study_name": "mine"}
    build_trainer(tmp_path).hyperparameter_search(RATES, n_trials=1, **given)
    with pytest.raises(ConfigError, match="a study 'mine'") as caught:
        build_trainer(tmp_path).hyperparameter_search(RATES, n_trials=2, **given)
    assert isinstance(caught.value, optuna.exceptions.DuplicatedStudyError)  # which scripts may catch
    assert "load_if_exists=True" in caught.value.fix
    build_trainer(tmp_path).hyperparameter_search(RATES, n_trials=2, load_if_exists=True, **given)
    assert len(read_study(tmp_path).trials) == 2


def test_a_finished_study_is_not_searched_again(tmp_path: Path) -> None:
    best = build_trainer(tmp_path).hyperparameter_search(RATES, n_trials=2)
    trainer = build_trainer(tmp_path)
    assert trainer.hyperparameter_search(RATES, n_trials=2) == best
    more = trainer.hyperparameter_search({"weight_decay": [0.1]}, n_trials=1)  # another search, in another study
    assert more.hyperparameters == {"weight_decay": 0.1}
    assert read_study(tmp_path, "search").num_trials == 2
    assert read_study(tmp_path).name == "search-2"
