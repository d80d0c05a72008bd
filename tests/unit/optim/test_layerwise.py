"""An optimizer per parameter that steps in the backward pass does what one optimizer for all does after it."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from ostinato.optim.layerwise import LayerwiseOptimizer


def build(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def list_groups(model: nn.Module) -> list[dict[str, Any]]:
    first, *others = model.parameters()
    return [{"params": [first], "weight_decay": 0.1}, {"params": others}]


def take_steps(model: nn.Module, optimizer: Any, steps: range, schedule: Any = None) -> None:
    for step in steps:
        torch.manual_seed(step)
        loss = model(torch.randn(5, 3)).square().mean()
        if isinstance(optimizer, LayerwiseOptimizer):
            optimizer.fused_backward(loss, 0.0)
            assert all(parameter.grad is None for parameter in model.parameters())
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if schedule is not None:
            schedule.step()


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_steps_groups_and_schedule_are_those_of_one_optimizer(cls: Any) -> None:
    weights = []
    for layerwise in (False, True):
        model = build()
        groups = list_groups(model)
        optimizer = LayerwiseOptimizer(groups, cls, lr=0.1) if layerwise else cls(groups, lr=0.1)
        take_steps(model, optimizer, range(4), LambdaLR(optimizer, lambda step: 1 / (1 + step)))
        weights.append(flatten(model))
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], flatten(build()))


def test_its_state_continues_exactly_in_another_one() -> None:
    model = build()
    optimizer = LayerwiseOptimizer(list_groups(model), torch.optim.AdamW, lr=0.1)
    take_steps(model, optimizer, range(3))
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    assert sorted(saved["state"]) == [0, 1, 2, 3]
    take_steps(model, optimizer, range(3, 6))

    other = build(seed=1)
    resumed = LayerwiseOptimizer(list_groups(other), torch.optim.AdamW, lr=0.5)
    other.load_state_dict(weights)
    resumed.load_state_dict(saved)
    assert resumed.param_groups[0]["lr"] == 0.1
    take_steps(other, resumed, range(3, 6))
    assert torch.equal(flatten(other), flatten(model))


def test_a_state_before_the_first_step_can_be_restored() -> None:
    model = build()
    optimizer = LayerwiseOptimizer(list_groups(model), torch.optim.AdamW, lr=0.1)
    fresh = copy.deepcopy(optimizer.state_dict())
    take_steps(model, optimizer, range(2))
    optimizer.load_state_dict(fresh)
    assert optimizer.state_dict()["state"] == {}


def test_frozen_parameters_have_no_optimizer() -> None:
    model = build()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = LayerwiseOptimizer(list_groups(model), torch.optim.SGD, lr=0.1)
    take_steps(model, optimizer, range(1))
    assert torch.equal(model[0].weight, before)


def test_an_optimizer_that_was_replaced_no_longer_steps() -> None:
    model = build()
    optimizer = LayerwiseOptimizer(list_groups(model), torch.optim.SGD, lr=0.1)
    del optimizer
    gc.collect()
    before = flatten(model)
    model(torch.ones(2, 3)).sum().backward()
    assert torch.equal(flatten(model), before)
    assert all(parameter.grad is not None for parameter in model.parameters())
