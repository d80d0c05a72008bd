"""A run ends before its time is up."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato import TimeLimitCallback, TrainerCallback
from ostinato.callbacks import time_limit
from ostinato.core import pauses
from ostinato.core.errors import ConfigError
from tests.support.resumed_runs import assert_same_weights, make_trainer, rows


class Clock:
    """A clock that somebody else moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    return clock


class Takes(TrainerCallback):
    """Steps, evaluation batches and saves take so many seconds."""

    def __init__(self, clock: Clock, step: float = 60, batch: float = 0, save: float = 0) -> None:
        self.clock, self.step, self.batch, self.save = clock, step, batch, save
        self.evaluated = []

    def on_optimizer_step(self, *args, **kwargs) -> None:
        self.clock.now += self.step

    def on_prediction_step(self, *args, **kwargs) -> None:
        self.clock.now += self.batch

    def on_save(self, *args, **kwargs) -> None:
        self.clock.now += self.save

    def on_evaluate(self, args, state, control, **kwargs) -> None:
        self.evaluated.append(state.global_step)


def test_stops_before_the_step_that_would_not_fit(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five minutes and steps of one: a fifth step would leave no room for the margin of 15 seconds."""
    limited = make_trainer(tmp_path / "a", [Takes(clock), TimeLimitCallback(minutes=5)], save_strategy="epoch")
    limited.train()
    assert limited.state.global_step == 4
    said = capsys.readouterr().err
    assert said.count("the time limit of 5 min is near: stopped after step 4 of 6, and saved checkpoint-4") == 1
    whole = make_trainer(tmp_path / "whole")
    whole.train()
    resumed = make_trainer(tmp_path / "a", [Takes(clock), TimeLimitCallback(minutes=5)])
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6, "every leg has its own time"
    assert_same_weights(whole.model, resumed.model)


def test_saves_are_reckoned_with(tmp_path: Path, clock: Clock) -> None:
    trainer = make_trainer(tmp_path, [Takes(clock, save=60), TimeLimitCallback(minutes=5)])
    trainer.train()
    assert trainer.state.global_step == 2, "two steps and two saves are four minutes"


def test_saves_after_evaluations_are_reckoned_with(tmp_path: Path, clock: Clock) -> None:
    """Of five minutes, evaluations of two batches take 20 seconds each, and saves a minute: no third step fits."""
    takes = Takes(clock, batch=10, save=60)
    options = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    trainer = make_trainer(tmp_path, [takes, TimeLimitCallback(minutes=5)], **options)
    trainer.train()
    assert trainer.state.global_step == 2


class Loads(list):
    """Rows that are long in coming: a second each."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(rows())
        self.clock = clock

    def __getitem__(self, index):
        self.clock.now += 1
        return super().__getitem__(index)


def test_waiting_for_data_is_part_of_a_step(tmp_path: Path, clock: Clock) -> None:
    """Eight seconds for a batch, one to train on it; a save and the margin take none."""
    trainer = make_trainer(tmp_path, [Takes(clock, step=1), TimeLimitCallback(minutes=0.5, margin=0)])
    trainer.train_dataset = Loads(clock)
    trainer.train()
    assert trainer.state.global_step == 2, "27 s at the end of the third, which would fit without its data"


def test_logging_in_the_middle_makes_no_step_shorter(tmp_path: Path, clock: Clock) -> None:
    class Logs(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **kwargs) -> None:
            trainer.log({"mine": 1.0})

    trainer = make_trainer(tmp_path, [Takes(clock), Logs(), TimeLimitCallback(minutes=5)])
    trainer.train()
    assert trainer.state.global_step == 4


def test_a_pause_makes_no_step_longer(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pauses(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs) -> None:
            if state.global_step == 1:
                clock.now += 100
                pauses.add_pause(100)

    monkeypatch.setattr(pauses, "_seconds", 0.0)
    trainer = make_trainer(tmp_path, [Takes(clock), Pauses(), TimeLimitCallback(minutes=6, margin=0)])
    trainer.train()
    assert trainer.state.global_step == 4, "340 of 360 s: with steps of 160 s it would have ended before"


def test_with_several_processes_ten_steps_have_to_fit(tmp_path: Path, clock: Clock) -> None:
    class Several(TimeLimitCallback):
        def on_train_begin(self, *args, **kwargs) -> None:
            self.set_check_interval(10)  # as where they agree to stop every ten steps
            super().on_train_begin(*args, **kwargs)

    trainer = make_trainer(tmp_path, [Takes(clock), Several(minutes=12.5, margin=0)], num_train_epochs=4)
    trainer.train()
    assert trainer.state.global_step == 3


def test_a_new_run_has_its_whole_time(tmp_path: Path, clock: Clock) -> None:
    trainer = make_trainer(tmp_path, [Takes(clock), TimeLimitCallback(minutes=7, all_legs=True)])
    for _ in range(2):
        trainer.train()
        assert trainer.state.global_step == 6


def test_an_evaluation_that_does_not_fit_is_made_up_for(tmp_path: Path, clock: Clock) -> None:
    takes = Takes(clock, step=1, batch=200)
    options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 2}
    trainer = make_trainer(tmp_path, [takes, TimeLimitCallback(minutes=5)], **options)
    trainer.train()
    assert trainer.state.global_step == 2 and takes.evaluated == []
    takes = Takes(clock, step=1)
    make_trainer(tmp_path, [takes, TimeLimitCallback(minutes=5)], **options).train(resume_from_checkpoint=True)
    assert takes.evaluated == [2, 4, 6]


def test_all_legs_share_one_limit_on_request(tmp_path: Path, clock: Clock) -> None:
    def leg(minutes: float, **resume):
        trainer = make_trainer(tmp_path, [Takes(clock), TimeLimitCallback(minutes=minutes, all_legs=True)])
        trainer.train(**resume)
        return trainer.state.global_step

    assert leg(3) == 2
    assert leg(5, resume_from_checkpoint=True) == 4, "the limit is the new one, and two minutes of it are gone"


def test_enough_time_changes_nothing(tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer(tmp_path, [Takes(clock), TimeLimitCallback(minutes=7)])
    trainer.train()
    assert trainer.state.global_step == 6
    assert "limit" not in capsys.readouterr().err


def test_verify_resume_does_not_compare_clocks(tmp_path: Path) -> None:
    assert make_trainer(tmp_path, [TimeLimitCallback(hours=1, all_legs=True)]).verify_resume(2).equal


def test_a_limit_is_longer_than_nothing() -> None:
    with pytest.raises(ConfigError, match="no time"):
        TimeLimitCallback()
