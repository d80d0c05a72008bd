"""What becomes of gradients, counted by hand and by the callback."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from ostinato import GradientStatisticsCallback, TrainerCallback
from ostinato.callbacks import gradient_stats
from ostinato.core.errors import ConfigError
from tests.support.resumed_runs import Net, assert_resumes, assert_same_weights, make_trainer, weights_of


class Exact(TrainerCallback):
    """Looks at every element: the share that has a gradient and did not move, and norms by module."""

    def __init__(self) -> None:
        self.shares, self.norms = [], []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs) -> None:
        self.before = weights_of(model)
        self.norms.append(math.sqrt(sum(float(p.grad.float().norm()) ** 2 for p in model.body.parameters())))

    def on_optimizer_step(self, args, state, control, model=None, **kwargs) -> None:
        lost = total = 0
        for name, parameter in model.named_parameters():
            has = parameter.grad != 0
            total += int(has.sum())
            lost += int((has & (parameter == self.before[name])).sum())
        self.shares.append(lost / total)


def logged(trainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def wide(dtype: torch.dtype) -> Net:
    """A model of which a part is looked at only."""
    model = Net()
    model.body, model.head = torch.nn.Linear(4, 900), torch.nn.Linear(900, 1)
    return model.to(dtype)


@pytest.mark.parametrize(("dtype", "rate"), [(torch.float32, 1e-3), (torch.bfloat16, 1e-4), (torch.bfloat16, 1e-3)])
def test_updates_lost_is_the_exact_count(tmp_path: Path, dtype: torch.dtype, rate: float) -> None:
    exact = Exact()
    options = {"learning_rate": rate, "lr_scheduler_type": "constant", "save_strategy": "no"}
    trainer = make_trainer(tmp_path, [exact, GradientStatisticsCallback(every=1)], model=wide(dtype), **options)
    trainer.train()
    assert logged(trainer, "updates_lost") == pytest.approx(exact.shares)
    assert (max(exact.shares) < 0.01) == (dtype == torch.float32), "the case is about what rounding loses"


def test_a_sample_stands_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_stats, "SAMPLED", 1000)
    exact = Exact()
    options = {"learning_rate": 1e-4, "lr_scheduler_type": "constant", "save_strategy": "no", "logging_steps": 6}
    trainer = make_trainer(
        tmp_path, [exact, GradientStatisticsCallback(every=1)], model=wide(torch.bfloat16), **options
    )
    trainer.train()
    assert logged(trainer, "updates_lost") == pytest.approx([sum(exact.shares) / 6], abs=0.05)


def test_steps_in_between_are_not_looked_at(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, [GradientStatisticsCallback(every=3)], save_strategy="no")
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "updates_lost" in entry] == [1, 4]


def test_a_rate_of_nothing_loses_nothing(tmp_path: Path) -> None:
    """The first step of a warmup moves no weight, and there is nothing to lose."""
    trainer = make_trainer(tmp_path, [GradientStatisticsCallback(every=1)], warmup_steps=2, save_strategy="no")
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "updates_lost" in entry] == [2, 3, 4, 5, 6]


def test_a_step_that_was_refused_loses_nothing(tmp_path: Path) -> None:
    class Breaks(TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **kwargs) -> None:
            hook = model.head.weight.register_hook
            if state.global_step == 1:
                handle = hook(lambda gradient: gradient * math.nan)
                self.handle = handle
            elif state.global_step == 2:
                self.handle.remove()

    trainer = make_trainer(
        tmp_path, [Breaks(), GradientStatisticsCallback(every=1)], save_strategy="no", max_grad_norm=0.0
    )
    trainer.train()
    assert all(share == 0 for share in logged(trainer, "updates_lost"))
    assert len(logged(trainer, "updates_lost")) == 5


def test_norms_by_layer(tmp_path: Path) -> None:
    exact = Exact()
    trainer = make_trainer(tmp_path, [exact, GradientStatisticsCallback(every=1, by_layer=True)], save_strategy="no")
    trainer.train()
    assert logged(trainer, "grad_norm/body") == pytest.approx(exact.norms)
    assert len(logged(trainer, "grad_norm/head")) == 6


def test_parameters_without_gradient_are_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Net()
    model.spare, model.frozen = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    model.frozen.requires_grad_(False)
    make_trainer(tmp_path, [GradientStatisticsCallback(every=2)], model=model, save_strategy="no").train()
    said = capsys.readouterr().err
    assert said.count("no gradient so far: spare.bias, spare.weight; the loss does not depend on them") == 1


def test_it_changes_nothing_and_is_resumed(tmp_path: Path) -> None:
    def make(out: Path):
        return make_trainer(out, [GradientStatisticsCallback(every=2, by_layer=True)], logging_steps=3)

    watched = assert_resumes(make, tmp_path, at=(1, 2, 4))
    alone = make_trainer(tmp_path / "alone")
    alone.train()
    assert_same_weights(alone.model, watched.model)
    assert not watched.optimizer._optimizer_step_post_hooks


def test_every_is_a_number_of_steps() -> None:
    with pytest.raises(ConfigError, match="looks at no step"):
        GradientStatisticsCallback(every=0)
