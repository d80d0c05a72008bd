"""Signals: the step is finished, a checkpoint written, the exit code is not that of success, and the run repeats."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.core.stop_request import ask_to_stop, is_stopping
from tests.support import tiny
from tests.support.launcher import ROOT
from tests.support.quiet_trainer import build_quiet_trainer


class Sends(TrainerCallback):
    """Sends a signal to its own process when an event comes for the nth time."""

    def __init__(self, event: str, at: int, number: signal.Signals = signal.SIGTERM) -> None:
        self.left, self.number = at, number
        setattr(self, event, self._hear)

    def _hear(self, *args: Any, **kwargs: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)


class Counted(TrainerCallback):
    def __init__(self) -> None:
        self.saves: list[int] = []

    def on_save(self, args, state, control, **kwargs):
        assert (Path(args.output_dir) / f"checkpoint-{state.global_step}" / "MANIFEST.json").exists()
        self.saves.append(state.global_step)


def metric(prediction: Any) -> dict[str, float]:
    return {"error": float(abs(prediction.predictions - prediction.label_ids).mean())}


def noisy(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch = ostinato.default_data_collator(rows)
    return {**batch, "x": batch["x"] + torch.rand(4)}


def build(directory: Path, callbacks: list[TrainerCallback] | None = None, **options: Any) -> Trainer:
    settings = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "max_steps": 9,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 4,
        "logging_steps": 2,
        "write_report": False,
        **options,
    }
    return build_quiet_trainer(
        directory,
        tiny.seeded(tiny.Regression, dropout=0.2),
        train_dataset=tiny.regression_rows(20),
        eval_dataset=tiny.regression_rows(16),
        compute_metrics=metric,
        callbacks=callbacks,
        **settings,
    )


def outcome(trainer: Trainer) -> tuple[Any, ...]:
    speed = ("runtime", "per_second")
    log = [
        {name: value for name, value in entry.items() if not name.endswith(speed)}
        for entry in trainer.state.log_history
    ]
    weights = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
    return weights, str(trainer.optimizer.state_dict()), trainer.lr_scheduler.state_dict(), log


ACCUMULATIONS = {
    1: {"gradient_accumulation_steps": 1, "max_steps": 9},
    2: {"gradient_accumulation_steps": 2, "max_steps": 7},
}
EVENTS = [("on_step_end", 1), ("on_step_end", 4), ("on_step_begin", 6), ("on_log", 3), ("on_prediction_step", 2)]


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Any, ...]]:
    """What every run that is stopped and resumed has to come to."""
    outcomes = {}
    for steps, settings in ACCUMULATIONS.items():
        whole = build(tmp_path_factory.mktemp("whole"), **settings)
        whole.train()
        outcomes[steps] = outcome(whole)
    return outcomes


@pytest.mark.parametrize(("event", "at"), [*EVENTS, ("on_prediction_step", 7), ("on_evaluate", 2), ("on_save", 1)])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_stopped_and_resumed_is_never_stopped(tmp_path, never_stopped, event: str, at: int, accumulation: int) -> None:
    settings = ACCUMULATIONS[accumulation]
    stopped = build(tmp_path / "cut", [Sends(event, at)], **settings)
    with pytest.raises(SystemExit) as left:
        stopped.train()
    assert left.value.code == 143
    assert stopped.state.global_step < settings["max_steps"]
    resumed = build(tmp_path / "cut", **settings)
    resumed.train(resume_from_checkpoint=True)
    assert outcome(resumed) == never_stopped[accumulation]


@pytest.mark.parametrize("by", ["steps", "epoch"])
def test_an_evaluation_that_was_broken_off_is_made_up_for(tmp_path, by: str) -> None:
    """Also where it decides about the best model, and where a checkpoint was to follow it."""
    settings = {
        "eval_strategy": by,
        "save_strategy": by,
        "save_steps": 3,
        "load_best_model_at_end": True,
        "metric_for_best_model": "error",
        "greater_is_better": False,
        "max_steps": 10,
    }
    whole = build(tmp_path / "whole", **settings)
    whole.train()
    stopped = build(tmp_path / "cut", [Sends("on_prediction_step", 6)], **settings)
    with pytest.raises(SystemExit):
        stopped.train()
    evaluated = [entry["step"] for entry in stopped.state.log_history if "eval_loss" in entry]
    resumed = build(tmp_path / "cut", **settings)
    resumed.train(resume_from_checkpoint=True)
    assert outcome(resumed) == outcome(whole)
    assert len([entry for entry in resumed.state.log_history if "eval_loss" in entry]) > len(evaluated)
    names = [Path(one.state.best_model_checkpoint).name for one in (whole, resumed)]
    assert names[0] == names[1]


@pytest.mark.parametrize("sharing", [False, True], ids=["own streams", "shared streams"])
def test_a_checkpoint_before_the_first_step_of_a_resumed_run(tmp_path, sharing: bool) -> None:
    """The one that was to follow the evaluation is written before anything is read, and says how to go on."""

    def build_one(name: str, *callbacks: TrainerCallback) -> Trainer:
        settings = {"eval_steps": 4, "isolate_rng": not sharing, "eval_on_start": False}
        trainer = build(tmp_path / name, list(callbacks), **settings)
        trainer.data_collator = noisy
        return trainer

    whole = build_one("whole")
    whole.train()
    with pytest.raises(SystemExit):
        build_one("cut", Sends("on_prediction_step", 2)).train()  # in the evaluation at step 4
    counted = Counted()  # looks at the checkpoint: it is written at once
    with pytest.raises(SystemExit):
        build_one("cut", counted, Sends("on_step_begin", 2)).train(resume_from_checkpoint=True)
    assert counted.saves[0] == 4
    for checkpoint in ("checkpoint-4", "checkpoint-6"):
        resumed = build_one(checkpoint)
        resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / checkpoint))
        assert outcome(resumed)[:3] == outcome(whole)[:3], checkpoint


def test_early_stopping_that_was_broken_off(tmp_path) -> None:
    """The evaluation that is made up for may be the one that ends the run."""
    settings = {"metric_for_best_model": "never", "greater_is_better": True, "max_steps": 40}

    def build_one(name: str, *callbacks: TrainerCallback) -> Trainer:
        trainer = build(tmp_path / name, [ostinato.EarlyStoppingCallback(2), *callbacks], **settings)
        trainer.compute_metrics = lambda prediction: {"never": 0.0}
        return trainer

    whole = build_one("whole")
    whole.train()
    assert whole.state.global_step == 9
    with pytest.raises(SystemExit):
        build_one("cut", Sends("on_prediction_step", 10)).train()  # in the third evaluation, at step 9
    resumed = build_one("cut")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 9
    assert outcome(resumed)[:2] == outcome(whole)[:2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 128 + signal.SIGUSR1)])
def test_the_exit_code_names_the_signal(tmp_path, number, code: int) -> None:
    with pytest.raises(SystemExit) as left:
        build(tmp_path, [Sends("on_step_end", 2, number)]).train()
    assert left.value.code == code


def test_ctrl_c_saves_and_leaves(tmp_path, capsys) -> None:
    counted = Counted()
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, [Sends("on_step_begin", 3, signal.SIGINT), counted]).train()
    assert counted.saves == [3]
    said = [line for line in capsys.readouterr().err.splitlines() if "SIGINT" in line]
    assert len(said) == 1
    assert f"stopped after step 3 of 9, and saved checkpoint-3 in {tmp_path}" in said[0]


def test_the_second_ctrl_c_does_not_wait(tmp_path) -> None:
    twice = [Sends("on_substep_end", at, signal.SIGINT) for at in (1, 2)]
    trainer = build(tmp_path, twice, gradient_accumulation_steps=4)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.state.global_step == 0
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_checkpoint_that_is_there_is_not_written_again(tmp_path) -> None:
    counted = Counted()
    with pytest.raises(SystemExit):
        build(tmp_path, [counted, Sends("on_save", 1)]).train()
    assert counted.saves == [4]


def test_who_does_not_save_is_told(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        build(tmp_path, [Sends("on_step_end", 2)], save_strategy="no").train()
    assert "nothing was saved, because save_strategy is 'no'" in capsys.readouterr().err
    assert not list(tmp_path.glob("checkpoint-*"))


def test_handlers_of_before_are_back(tmp_path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    with pytest.raises(SystemExit):
        build(tmp_path / "a", [Sends("on_step_end", 2)]).train()
    build(tmp_path / "b").train()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before


def test_evaluating_alone_is_not_our_business(tmp_path) -> None:
    """Outside of `train` a signal does what it always does."""
    trainer = build(tmp_path, [Sends("on_prediction_step", 1, signal.SIGINT)])
    with pytest.raises(KeyboardInterrupt):
        trainer.evaluate()


SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
import torch, ostinato
from tests.support import tiny
from ostinato import Trainer, TrainingArguments

class Slow(tiny.Regression):
    def forward(self, x, labels=None):
        time.sleep(0.02)
        return super().forward(x, labels)

args = TrainingArguments({directory!r}, max_steps=500, save_steps=400, use_cpu=True, disable_tqdm=True,
                         dataloader_num_workers={workers})
trainer = Trainer(tiny.seeded(Slow), args, train_dataset=tiny.regression_rows(64))
class Tell(ostinato.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            print("going", flush=True)
trainer.add_callback(Tell())
trainer.train()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_real_process_group(tmp_path, number: signal.Signals) -> None:
    """As a scheduler does it, or a terminal, which sends the signal to the workers of the loader too."""
    script = SCRIPT.format(root=str(ROOT), directory=str(tmp_path), workers=2)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    run = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, **pipes)
    assert run.stdout is not None
    while "going" not in run.stdout.readline():
        assert run.poll() is None, run.communicate()
    time.sleep(0.1)
    os.killpg(run.pid, number) if number == signal.SIGINT else run.send_signal(number)
    _, said = run.communicate(timeout=60)
    if number == signal.SIGINT:  # 130 by Python's own rule, unless something that runs at exit loses it
        assert run.returncode != 0 and said.rstrip().endswith("KeyboardInterrupt")
    else:
        assert run.returncode == 143, said
    saved = list(tmp_path.glob("checkpoint-*"))
    assert len(saved) == 1, said
    assert f"saved {saved[0].name}" in said


def test_a_run_may_be_asked_to_stop_from_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It saves inside its epoch, and `train` returns; without a run nobody is asked."""

    class Asks(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                assert not is_stopping() and ask_to_stop("enough") and is_stopping()

    rows = tiny.regression_rows(24)
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", max_steps=9, save_strategy="epoch")
    trainer = Trainer(tiny.regression(), args, train_dataset=rows, callbacks=[Asks()])
    assert trainer.train().global_step == 3
    assert "enough: stopped after step 3 of 9, and saved checkpoint-3" in capsys.readouterr().err
    assert (tmp_path / "checkpoint-3").is_dir()
    assert not ask_to_stop("nobody is there") and not is_stopping()


class TestJustInTime:
    """`enable_jit_checkpoint=True`, where transformers saves some seconds later and returns from `train`, too."""

    @pytest.mark.parametrize("strategy", ["no", "steps"])
    def test_a_checkpoint_is_written_and_train_returns(self, tmp_path: Path, strategy: str) -> None:
        options = {"enable_jit_checkpoint": True, "save_strategy": strategy}
        stopped = build(tmp_path, [Sends("on_step_end", at=3)], **options)
        assert stopped.train().global_step == 3
        assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]
        resumed = build(tmp_path, **options)
        resumed.train(resume_from_checkpoint=True)
        whole = build(tmp_path / "whole", **options)
        whole.train()
        assert outcome(resumed) == outcome(whole)

    def test_inside_an_evaluation(self, tmp_path: Path) -> None:
        stopped = build(tmp_path, [Sends("on_prediction_step", at=2)], enable_jit_checkpoint=True, save_strategy="no")
        assert stopped.train().global_step == 3
        assert (tmp_path / "checkpoint-3").is_dir()

    def test_other_signals_end_the_program(self, tmp_path: Path) -> None:
        stopped = build(tmp_path, [Sends("on_step_end", 3, signal.SIGUSR1)], enable_jit_checkpoint=True)
        with pytest.raises(SystemExit) as left:
            stopped.train()
        assert left.value.code == 128 + signal.SIGUSR1

    def test_without_it_nothing_is_written_where_nothing_is_to_be(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit):
            build(tmp_path, [Sends("on_step_end", at=3)], save_strategy="no").train()
        assert not list(tmp_path.glob("checkpoint-*"))
