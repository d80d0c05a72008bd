"""A sweep of wandb: its package makes the runs, offline; what its server does, proposing values, is replaced.

Starting wandb's service takes longer than the trials: `make long` runs these tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ostinato.core.errors import ConfigError
from ostinato.journal.study_record import read_study
from tests.support import tiny
from tests.support.long_tests import long_only
from tests.support.searches import build_trainer

pytestmark = [
    long_only,
    # wandb leaves the file with the values of a run open
    pytest.mark.filterwarnings("ignore:Exception ignored in.*config-:pytest.PytestUnraisableExceptionWarning"),
]
wandb = pytest.importorskip("wandb")
RATES = [0.01, 0.03, 0.1]


class Server:
    """Takes a sweep, and hands its agent one rate after another, as wandb's own agent gives them to a function."""

    def __init__(self, directory: Path) -> None:
        self.sweeps: list[dict[str, Any]] = []
        self._directory = directory

    def sweep(self, config: dict[str, Any], **place: Any) -> str:
        self.sweeps.append({**config, "place": place})
        return f"sweep-{len(self.sweeps)}"

    def agent(self, sweep_id: str, function: Callable[[], Any], count: int, **place: Any) -> None:
        for number, rate in zip(range(count), RATES, strict=False):
            file = self._directory / f"config-{number}.yaml"
            values = {"learning_rate": rate, "hidden": 8}
            given = {name: {"value": values[name]} for name in self.sweeps[-1]["parameters"]}
            file.write_text(json.dumps({"wandb_version": 1, **given}))
            told = {"WANDB_SWEEP_ID": sweep_id, "WANDB_RUN_ID": f"run{number}", "WANDB_SWEEP_PARAM_PATH": str(file)}
            os.environ.update(told)
            wandb.teardown()
            wandb.setup(wandb.Settings(mode="offline", silent=True, root_dir=str(self._directory)))
            try:
                function()
            finally:
                for name in told:
                    del os.environ[name]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server(tmp_path)
    monkeypatch.setattr(wandb, "sweep", made.sweep)
    monkeypatch.setattr(wandb, "agent", made.agent)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield made
    wandb.teardown()


SPACE = {"method": "grid", "parameters": {"learning_rate": {"values": RATES}, "hidden": {"value": 8}}}


def test_a_sweep(server: Server, tmp_path: Path) -> None:
    hidden = []

    def model_init(trial: Any) -> Any:
        hidden.append(None if trial is None else trial["hidden"])
        return tiny.Regression()

    trainer = build_trainer(tmp_path / "out", model_init=model_init)
    best = trainer.hyperparameter_search(
        lambda trial: SPACE,
        n_trials=3,
        backend="wandb",
        hp_name=lambda trial: f"rate-{trial['learning_rate']}",
        project="p",
    )
    (sweep,) = server.sweeps
    assert (sweep["method"], sweep["metric"]) == ("grid", {"name": "objective", "goal": "minimize"})
    assert sweep["place"] == {"project": "p"}
    trials = read_study(tmp_path / "out").trials
    assert [one.params for one in trials] == [{"learning_rate": rate, "hidden": 8} for rate in RATES]
    assert [(one.id, one.directory) for one in trials] == [(f"run{n}", f"rate-{rate}") for n, rate in enumerate(RATES)]
    assert best.run_id in {"run0", "run1", "run2"}
    assert best.run_summary == {"sweep_id": "sweep-1"}
    assert hidden == [None, 8, 8, 8]
    assert trainer.load_best_trial()[:3] == best[:3]
    assert trainer.evaluate()["eval_loss"] == best.objective


def test_a_trial_that_fails_does_not_end_the_sweep(server: Server, tmp_path: Path) -> None:
    def space(trial: Any) -> dict[str, float]:
        return {"learning_rate": trial.suggest_categorical("learning_rate", RATES)}

    def fail_once(prediction: Any) -> dict[str, float]:
        if trainer.args.learning_rate == RATES[1]:
            raise RuntimeError("the metric is broken")
        return {"score": trainer.args.learning_rate}

    trainer = build_trainer(tmp_path / "out", compute_metrics=fail_once)
    best = trainer.hyperparameter_search(space, "score", n_trials=3, backend="wandb", direction="maximize")
    assert best.objective == RATES[2]
    assert [one.state for one in read_study(tmp_path / "out").trials] == ["complete", "failed", "complete"]


def test_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ConfigError, match="WANDB_MODE=offline"):
        build_trainer(tmp_path).hyperparameter_search({"learning_rate": RATES}, n_trials=1, backend="wandb")
