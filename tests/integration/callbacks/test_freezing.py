"""Parts of a model that are trained later than others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import FreezeCallback, TrainerCallback
from ostinato.core.errors import ConfigError
from tests.support.resumed_runs import Net, assert_resumes, make_trainer, weights_of


class Moved(TrainerCallback):
    """Which parameters every step moved."""

    def __init__(self) -> None:
        self.steps, self.before = [], None

    def on_step_begin(self, args, state, control, model=None, **kwargs) -> None:
        self.before = weights_of(model)

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        now = model.state_dict()
        self.steps.append({name.split(".")[0] for name in now if not torch.equal(now[name], self.before[name])})


@pytest.mark.parametrize(
    ("until", "first"),
    [({"body": 2}, 2), ({"bod*": "step 2"}, 2), ({"body.*": "epoch 1"}, 3), ({"body": "until epoch 1.6"}, 5)],
)
def test_frozen_until(tmp_path: Path, until: dict, first: int) -> None:
    """With momentum and weight decay, which must not move what is frozen."""
    moved = Moved()
    trainer = make_trainer(tmp_path, [moved, FreezeCallback(until)], weight_decay=0.1)
    trainer.train()
    assert moved.steps == [{"head"}] * first + [{"body", "head"}] * (6 - first)
    assert all(parameter.requires_grad for parameter in trainer.model.parameters())


def test_the_last_of_several_thaws(tmp_path: Path) -> None:
    moved = Moved()
    make_trainer(
        tmp_path, [moved, FreezeCallback({"body": 1, "body.weight": 4, "*.bias": 4, "head.weight": 0})]
    ).train()
    assert [("body" in step) for step in moved.steps] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("until", [{"body": 2}, {"body": "epoch 1"}, {"head.bias": 5}])
def test_a_resumed_run_is_the_same(tmp_path: Path, until: dict) -> None:
    assert_resumes(lambda out: make_trainer(out, [FreezeCallback(until)]), tmp_path, at=(1, 2, 3, 5))


def test_parameters_are_trained_again_after_a_run_that_ended_early(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [FreezeCallback({"body": 1000})])
    trainer.train()
    assert all(parameter.requires_grad for parameter in trainer.model.parameters())


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_parameters_are_trained_again_after_a_run_that_failed(tmp_path: Path, error: BaseException) -> None:
    class Fails(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            raise error

    trainer = make_trainer(tmp_path, [FreezeCallback({"body": 1000}), Fails])
    with pytest.raises(type(error)):
        trainer.train()
    assert all(parameter.requires_grad for parameter in trainer.model.parameters())


def test_a_name_that_fits_nothing_is_refused_before_the_first_step(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [FreezeCallback({"bodi": 2})])
    with pytest.raises(ConfigError, match=r"nothing to freeze under 'bodi'[\s\S]*body, dropout, head"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_step_that_would_train_nothing_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [FreezeCallback({"body": "epoch 1", "head.*": 3})])
    with pytest.raises(ConfigError, match="leaves nothing to train") as refused:
        trainer.train()
    assert "by 'body', 'head.*'" in str(refused.value)
    assert all(parameter.requires_grad for parameter in trainer.model.parameters())


def test_what_the_optimizer_does_not_hold_is_refused(tmp_path: Path) -> None:
    model = Net()
    model.body.requires_grad_(False)
    with pytest.raises(ConfigError, match="trains none of them"):
        make_trainer(tmp_path, [FreezeCallback({"body": 2})], model=model).train()


@pytest.mark.parametrize("until", ["soon", -1, None, 2.5, True])
def test_a_time_that_is_none(until: Any) -> None:
    with pytest.raises(ConfigError, match=f"does not know when {until!r} is"):
        FreezeCallback({"body": until})
