"""Sweeps of wandb: its own client and its own agent, against a server that the test runs.

Starting wandb's service takes longer than the trials: `make long` runs the sweeps; otherwise one has a stand-in for
the agent and for the run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ostinato import TrainerCallback
from ostinato.core.errors import ConfigError
from ostinato.journal.study_record import read_study
from tests.support import tiny
from tests.support.long_tests import long_only
from tests.support.searches import build_trainer
from tests.support.wandb_server import ENTITY, SWEEP, SweepServer, serve_sweep

wandb = pytest.importorskip("wandb")
pytestmark = [  # what wandb itself does
    pytest.mark.filterwarnings("ignore:Read the `app_url` setting:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in.*config-:pytest.PytestUnraisableExceptionWarning"),
]
RATES = [0.01, 0.03, 0.1]
SPACE = {"method": "grid", "parameters": {"learning_rate": {"values": RATES}, "hidden": {"value": 8}}}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepServer]:
    from wandb.agents import pyagent
    from wandb.analytics.opentelemetry import opentelemetry_proxy

    silent = threading.Event()
    silent.set()
    monkeypatch.setattr(opentelemetry_proxy, "_disabled", silent)  # its telemetry has threads that stay
    monkeypatch.setattr(pyagent.Agent, "HEARTBEAT_SLEEP_SECONDS", 0.05)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for name in ("WANDB_DIR", "WANDB_ENTITY", "WANDB_PROJECT"):  # the agent sets them
        monkeypatch.setenv(name, str(tmp_path))
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with serve_sweep([{"learning_rate": rate, "hidden": 8} for rate in RATES]) as made:
        monkeypatch.setenv("WANDB_BASE_URL", made.address)
        wandb.teardown()
        yield made
        wandb.teardown()


def make_model(trial: Any) -> Any:
    return tiny.Regression(hidden=4 if trial is None else trial["hidden"])


@long_only
def test_a_sweep(server: SweepServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    trainer = build_trainer(out, model_init=make_model)
    given: dict[str, Any] = {"backend": "wandb", "hp_name": lambda trial: f"rate-{trial['learning_rate']}"}
    best = trainer.hyperparameter_search(lambda trial: SPACE, n_trials=2, project="p", **given)
    (sweep,) = server.sweeps
    assert sweep["projectName"] == "p"
    assert "metric:\n  goal: minimize\n  name: eval/loss" in sweep["config"]
    assert best.run_summary == SWEEP
    # The sweep goes on: its best is that of all its trials.
    best = trainer.hyperparameter_search(
        lambda trial: SPACE, n_trials=1, sweep_id=SWEEP, entity=ENTITY, project="p", **given
    )
    assert len(server.sweeps) == 1 and len(server.agents) == 2
    trials = read_study(out).trials
    assert [one.params for one in trials] == [{"learning_rate": rate, "hidden": 8} for rate in RATES]
    assert [(one.id, one.directory) for one in trials] == [(f"run{n}", f"rate-{rate}") for n, rate in enumerate(RATES)]
    for one in trials:
        assert [row["eval/loss"] for row in server.rows[one.id]] == [value.values[0] for value in one.curve]
        assert server.configs[one.id].items() >= {**one.params, "metric": "eval/loss"}.items()
        assert server.exit_codes[one.id] == 0
    winner = min(trials, key=lambda one: one.values or ())
    assert (best.run_id, best.objective) == (winner.id, (winner.values or ())[0])
    assert best.hyperparameters == {**winner.params, "assignments": {}, "metric": "eval/loss"}
    assert trainer.load_best_trial()[:2] == best[:2]
    assert trainer.evaluate()["eval_loss"] == best.objective
    again = build_trainer(tmp_path / "again", model_init=make_model)
    again.train(trial=best.hyperparameters)
    assert again.evaluate()["eval_loss"] == best.objective


class Waits(TrainerCallback):
    """Waits after the first evaluation of the second trial, until the agent stops it."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.learning_rate == RATES[1] and state.global_step == 4:
            for _ in range(2_000):
                time.sleep(0.01)


@long_only
def test_a_trial_that_the_server_stops_and_one_that_fails(server: SweepServer, tmp_path: Path) -> None:
    def space(trial: Any) -> dict[str, float]:
        return {"learning_rate": trial.suggest_categorical("learning_rate", RATES)}

    def fail_once(prediction: Any) -> dict[str, float]:
        if trainer.args.learning_rate == RATES[0]:
            raise RuntimeError("the metric is broken")
        return {"score": trainer.args.learning_rate}

    server.draws = [{"learning_rate": rate} for rate in RATES]
    server.stops_after_row = "run1"
    trainer = build_trainer(tmp_path / "out", compute_metrics=fail_once, callbacks=[Waits()], report_to="wandb")
    best = trainer.hyperparameter_search(
        space, "score", n_trials=3, backend="wandb", direction="maximize", metric="score"
    )
    assert best.objective == RATES[2]
    assert [one.state for one in read_study(tmp_path / "out").trials] == ["failed", "pruned", "complete"]
    assert server.exit_codes == {"run0": 1, "run1": 0, "run2": 0}
    # The callback logs to the run of the trial: there is no other.
    assert [row["score"] for row in server.rows["run2"] if "score" in row] == [RATES[2]] * 2
    assert len([row for row in server.rows["run2"] if "eval/loss" in row]) == 2


@long_only
def test_a_mistake_that_every_trial_would_make_ends_the_sweep(server: SweepServer, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="eval_f1"):
        build_trainer(tmp_path / "out", model_init=make_model).hyperparameter_search(
            SPACE, lambda metrics: metrics["eval_f1"], n_trials=3, backend="wandb"
        )
    assert len(list((tmp_path / "out").glob("run-*"))) == 1


# ------------------------------------------------------------------------------------------------ without a server


class Run:
    """What a search uses of a run."""

    sweep_id = SWEEP

    def __init__(self, number: int, config: dict[str, Any]) -> None:
        self.id, self.config, self.rows = f"run{number}", config, []
        self.exit_code: int | None = None

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def test_the_trials_of_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with wandb's own, each has a thread."""
    runs = [Run(number, {"learning_rate": rate, "hidden": 8}) for number, rate in enumerate(RATES)]
    sweeps: list[dict[str, Any]] = []

    def run_agent(sweep: str, function: Callable[[], Any], count: int) -> None:
        for one in runs[:count]:
            monkeypatch.setattr(wandb, "run", one)
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()

    monkeypatch.setattr(wandb, "sweep", lambda config: sweeps.append(config) or "s")
    monkeypatch.setattr(wandb, "agent", run_agent)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    trainer = build_trainer(tmp_path, model_init=make_model, eval_strategy="no")
    best = trainer.hyperparameter_search(
        {"learning_rate": RATES, "hidden": {"low": 4, "high": 8}}, n_trials=3, backend="wandb"
    )
    assert sweeps == [
        {
            "method": "random",
            "parameters": {
                "learning_rate": {"values": RATES},
                "hidden": {"min": 4, "max": 8, "distribution": "int_uniform"},
            },
            "metric": {"name": "eval/loss", "goal": "minimize"},
        }
    ]
    trials = read_study(tmp_path).trials
    assert [one.state for one in trials] == ["complete"] * 3
    assert [one.rows for one in runs] == [[{"eval/loss": (trial.values or ())[0]}] for trial in trials]
    assert [one.exit_code for one in runs] == [0] * 3
    assert best.run_summary == "s"
    assert json.dumps(best.hyperparameters["assignments"]) == "{}"


def test_mistakes_before_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = build_trainer(tmp_path)
    space = {"learning_rate": RATES}
    with pytest.raises(ConfigError, match="sweep_id="):
        trainer.hyperparameter_search(space, n_trials=1, backend="wandb", sweep_id={"sweep_id": "s"})
    with pytest.raises(TypeError, match="projct"):
        trainer.hyperparameter_search(space, n_trials=1, backend="wandb", projct="p")
    with pytest.raises(ConfigError, match="one objective"):
        trainer.hyperparameter_search(
            space, ["loss", "loss"], n_trials=1, backend="wandb", direction=["minimize", "maximize"]
        )
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ConfigError, match="WANDB_MODE=offline"):
        trainer.hyperparameter_search(space, n_trials=1, backend="wandb")
    assert not list(tmp_path.glob("run-*"))
