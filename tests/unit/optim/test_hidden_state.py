"""State that GrokAdamW and AdaLomo keep outside of their state dict is saved and restored with it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ostinato.checkpoint.tensors import flatten
from ostinato.optim.hidden_state import show_hidden_state


class GrokAdamW(Optimizer):
    """Keeps its averages in the parameter groups, by parameter."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            states = group.setdefault("state", {})
            for parameter in group["params"]:
                state = states.setdefault(parameter, {"step": 0, "average": torch.zeros_like(parameter)})
                state["step"] += 1
                state["average"].lerp_(parameter.grad, 0.1)
                parameter.sub_(state["average"], alpha=group["lr"])


class AdaLomo(Optimizer):
    """Keeps its averages in attributes, by the name of the parameter."""

    def __init__(self, model: nn.Module, lr: float = 0.1) -> None:
        self.model, self.step_num = model, 0
        self.exp_avg_sq = {name: torch.zeros_like(one) for name, one in model.named_parameters()}
        self.exp_avg_sq_row: dict[str, Any] = {}
        self.exp_avg_sq_col: dict[str, Any] = {}
        super().__init__(model.parameters(), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.step_num += 1
        for name, parameter in self.model.named_parameters():
            self.exp_avg_sq[name].lerp_(parameter.grad, 0.1)
            parameter.sub_(self.exp_avg_sq[name] * self.step_num, alpha=0.1)


def build(cls: type, seed: int = 0) -> tuple[nn.Module, Any]:
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = cls(model) if cls is AdaLomo else cls([{"params": [model.bias]}, {"params": [model.weight]}])
    show_hidden_state(optimizer)
    show_hidden_state(optimizer)  # once is enough
    return model, optimizer


def take_steps(model: nn.Module, optimizer: Any, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_resumed_optimizer_repeats_the_one_it_was_saved_from() -> None:
    for cls in (GrokAdamW, AdaLomo):
        model, optimizer = build(cls)
        take_steps(model, optimizer, range(3))
        saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
        assert flatten(saved).tensors, "a checkpoint can hold it"
        take_steps(model, optimizer, range(3, 6))

        other, resumed = build(cls, seed=1)
        other.load_state_dict(weights)
        resumed.load_state_dict(saved)
        take_steps(other, resumed, range(3, 6))
        assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias), cls


def test_loading_copies_the_state() -> None:
    model, optimizer = build(GrokAdamW)
    take_steps(model, optimizer, range(2))
    saved = optimizer.state_dict()
    before = copy.deepcopy(saved)
    other, resumed = build(GrokAdamW)
    resumed.load_state_dict(saved)
    take_steps(other, resumed, range(2))
    assert torch.equal(saved["hidden_state"][0][0]["average"], before["hidden_state"][0][0]["average"])


def test_a_state_before_the_first_step_can_be_restored() -> None:
    for cls in (GrokAdamW, AdaLomo):
        model, optimizer = build(cls)
        fresh = copy.deepcopy(optimizer.state_dict())
        take_steps(model, optimizer, range(2))
        optimizer.load_state_dict(fresh)
        assert str(optimizer.state_dict()) == str(fresh)


def test_other_optimizers_are_left_alone() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    show_hidden_state(optimizer)
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
