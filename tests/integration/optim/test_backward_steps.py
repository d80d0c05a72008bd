"""Runs with optimizers that change the weights during the backward pass."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import NonFiniteError, Trainer, TrainerCallback
from ostinato.core.notices import forget_notices
from ostinato.optim.layerwise import LayerwiseOptimizer
from tests.support.apis import Api
from tests.support.optimizer_packages import WARNINGS, require_optimizer
from tests.support.optimizer_runs import Classifier, flatten_weights, make_rows
from tests.support.tiny import seeded

pytestmark = WARNINGS

ARGUMENTS: dict[str, Any] = {"max_steps": 6, "per_device_train_batch_size": 4, "write_report": False}


class FusedSGD(torch.optim.Optimizer):
    """Has no `step`, as LOMO has none, and records the rates it is given."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self.rates: list[float] = []

    @torch.no_grad()
    def fused_backward(self, loss: torch.Tensor, learning_rate: float) -> None:
        self.rates.append(learning_rate)
        with torch.enable_grad():
            loss.backward()
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad, alpha=learning_rate)
            parameter.grad = None


def build(ours: Api, cls: Any = FusedSGD, **arguments: Any) -> Trainer:
    model = seeded(Classifier)
    optimizer = (
        FusedSGD(model.parameters(), lr=0.01)
        if cls is FusedSGD
        else LayerwiseOptimizer([{"params": list(model.parameters())}], cls, lr=0.01)
    )
    arguments = {**ARGUMENTS, **arguments}
    return ours.trainer(model, ours.args(**arguments), train_dataset=make_rows(), optimizers=(optimizer, None))


def test_the_rate_of_the_schedule_is_used_and_the_schedule_moves(ours: Api) -> None:
    trainer = build(ours, warmup_steps=2)
    trainer.train()
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert trainer.optimizer.rates == logged == pytest.approx([0, 0.005, 0.01, 0.0075, 0.005, 0.0025])


def test_every_micro_batch_changes_the_weights(ours: Api) -> None:
    trainer, seen = build(ours, gradient_accumulation_steps=2, max_steps=2), []

    class Watch(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            seen.append(flatten_weights(model))

        on_step_end = on_substep_end

    trainer.add_callback(Watch())
    trainer.train()
    assert len(seen) == 4 and all(not torch.equal(one, other) for one, other in itertools.pairwise(seen))


@pytest.mark.parametrize("cls", [FusedSGD, torch.optim.AdamW])
def test_clipping_is_mentioned_and_no_norm_is_logged(ours: Api, cls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    trainer = build(ours, cls)
    trainer.train()
    assert all("grad_norm" not in entry for entry in trainer.state.log_history)
    name = "FusedSGD" if cls is FusedSGD else "LayerwiseOptimizer"
    assert f"max_grad_norm=1 has no effect, and grad_norm is not logged: {name}" in capsys.readouterr().err


@pytest.mark.parametrize("cls", [FusedSGD, torch.optim.AdamW])
def test_a_loss_that_is_not_finite_does_not_reach_the_weights(ours: Api, cls: Any) -> None:
    trainer = build(ours, cls, nonfinite_patience=1)
    before = flatten_weights(trainer.model)
    forward = trainer.model.forward
    trainer.model.forward = lambda x, labels: {"loss": forward(x, labels)["loss"] * torch.nan}  # type: ignore
    with pytest.raises(NonFiniteError, match="loss nan"):
        trainer.train()
    assert torch.equal(flatten_weights(trainer.model), before)


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW])
def test_layerwise_runs_are_those_of_one_optimizer_without_clipping(ours: Api, cls: Any) -> None:
    layerwise = build(ours, cls)
    layerwise.train()
    model = seeded(Classifier)
    plain = ours.trainer(
        model,
        ours.args(**ARGUMENTS, max_grad_norm=0),
        train_dataset=make_rows(),
        optimizers=(cls(model.parameters(), lr=0.01), None),
    )
    plain.train()
    assert torch.equal(flatten_weights(layerwise.model), flatten_weights(plain.model))


def test_a_layerwise_run_resumes_exactly(ours: Api, tmp_path: Path) -> None:
    whole = build(ours, torch.optim.AdamW, save_strategy="steps", save_steps=3)
    whole.train()
    resumed = build(Api("ostinato", tmp_path / "resumed"), torch.optim.AdamW)
    resumed.train(resume_from_checkpoint=str(ours.output_dir / "checkpoint-3"))
    assert torch.equal(flatten_weights(whole.model), flatten_weights(resumed.model))


def test_another_optimizer_after_lomo_is_alone(ours: Api) -> None:
    """LOMO hooks itself into the parameters and never lets go."""
    require_optimizer("lomo")
    model = seeded(Classifier)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    ours.fit(model, make_rows(), optim="lomo", **ARGUMENTS)
    results = []
    for again in (model, seeded(Classifier)):
        again.load_state_dict(start)
        again.zero_grad()
        results.append(flatten_weights(ours.fit(again, make_rows(), optim="sgd", **ARGUMENTS).model))
    assert torch.equal(*results)


def test_lomo_trains_twice_on_one_model(ours: Api) -> None:
    require_optimizer("lomo")
    model = seeded(Classifier)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    results = []
    for _ in range(2):
        model.load_state_dict(start)
        results.append(flatten_weights(ours.fit(model, make_rows(), optim="lomo", **ARGUMENTS).model))
    assert torch.equal(*results)


def test_other_hooks_on_parameters_stay(ours: Api) -> None:
    model, calls = seeded(Classifier), []
    hook = model.head.weight.register_hook(lambda gradient: calls.append(1))
    ours.fit(model, make_rows(), **ARGUMENTS)
    assert len(calls) == 6
    hook.remove()
    assert isinstance(model, nn.Module)
