"""A window of steps in torch's profiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ostinato import ProfilerCallback, TrainerCallback
from ostinato.core.errors import ConfigError
from tests.support.resumed_runs import assert_same_weights, make_trainer


class IsProfiled(TrainerCallback):
    def __init__(self) -> None:
        self.steps = []

    def on_optimizer_step(self, args, state, control, **kwargs) -> None:
        if torch.autograd._profiler_enabled():
            self.steps.append(state.global_step + 1)


def test_a_window_is_recorded_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watcher, profiler = IsProfiled(), ProfilerCallback(wait=2, warmup=1, active=2)
    watched = make_trainer(tmp_path / "a", [profiler, watcher])
    watched.train()
    assert watcher.steps == [4, 5]
    assert profiler.trace == tmp_path / "a" / "profile" / "steps-4-5.json"
    events = json.loads(profiler.trace.read_text())["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert sum(name.startswith("ProfilerStep#") for name in names) >= 2
    assert sum(name.startswith("Optimizer.step") for name in names) == 2
    assert "profiled steps 4 to 5" in capsys.readouterr().err
    alone = make_trainer(tmp_path / "b")
    alone.train()
    assert_same_weights(alone.model, watched.model)


def test_a_run_that_ends_inside_its_window_writes_what_there_is(tmp_path: Path) -> None:
    profiler = ProfilerCallback(wait=4, warmup=1, active=5)
    make_trainer(tmp_path, [profiler], save_strategy="no").train()
    assert profiler.trace is not None and profiler.trace.name == "steps-6-6.json"
    assert not torch.autograd._profiler_enabled()


def test_a_run_that_ends_before_its_window_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trainer(tmp_path, [ProfilerCallback()], save_strategy="no").train()
    assert "nothing was profiled: training ended before step 13" in capsys.readouterr().err
    assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize("in_the_way", ["profile", "profile/steps-2-2.json/something"])
def test_a_profile_that_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], in_the_way: str
) -> None:
    obstacle = tmp_path / in_the_way
    obstacle.parent.mkdir(parents=True, exist_ok=True)
    obstacle.write_text("")
    profiler = ProfilerCallback(wait=0, warmup=1, active=1)
    trainer = make_trainer(tmp_path, [profiler], save_strategy="no")
    trainer.train()
    assert trainer.state.global_step == 6 and profiler.trace is None
    said = capsys.readouterr().err
    assert "the profile of steps 2 to 2 could not be written" in said and "profiled steps" not in said


def test_a_window_has_a_step() -> None:
    with pytest.raises(ConfigError, match="has no window"):
        ProfilerCallback(active=0)
