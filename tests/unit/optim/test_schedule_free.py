"""Switching the weights of a schedule-free optimizer leaves those it trains with as they are, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato.optim import schedule_free
from tests.support.schedule_free import ScheduleFreeSGD


def trained() -> tuple[nn.Linear, ScheduleFreeSGD]:
    torch.manual_seed(0)
    model = nn.Linear(30, 20)
    optimizer = ScheduleFreeSGD(model.parameters(), lr=0.1)
    optimizer.train()
    for _ in range(4):
        model(torch.randn(4, 30)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def test_other_optimizers_have_no_modes() -> None:
    for optimizer in (None, torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)):
        assert not schedule_free.has_modes(optimizer) and not schedule_free.is_training(optimizer)
        with schedule_free.use_averaged_weights(optimizer):
            pass
        schedule_free.end_training(optimizer)


def test_averaged_weights_are_used_inside_the_block_only() -> None:
    model, optimizer = trained()
    before, storage = model.weight.detach().clone(), model.weight.data_ptr()
    with schedule_free.use_averaged_weights(optimizer):
        assert not schedule_free.is_training(optimizer)
        inside = model.weight.detach().clone()
        with schedule_free.use_averaged_weights(optimizer):
            assert torch.equal(model.weight, inside)
    assert schedule_free.is_training(optimizer)
    assert torch.equal(model.weight, before) and model.weight.data_ptr() == storage
    assert not torch.equal(inside, before)
    optimizer.eval()
    assert torch.equal(model.weight, inside)


def test_switching_back_and_forth_would_round_them() -> None:
    """Why the weights are kept: this is what `eval` and `train` alone do."""
    model, optimizer = trained()
    before = model.weight.detach().clone()
    optimizer.eval()
    optimizer.train()
    assert torch.allclose(model.weight, before) and not torch.equal(model.weight, before)


def test_weights_come_back_after_a_failure() -> None:
    model, optimizer = trained()
    before = model.weight.detach().clone()
    with pytest.raises(RuntimeError, match="inside"), schedule_free.use_averaged_weights(optimizer):
        raise RuntimeError("inside")
    assert torch.equal(model.weight, before) and schedule_free.is_training(optimizer)


def test_training_ends_with_the_average() -> None:
    model, optimizer = trained()
    with schedule_free.use_averaged_weights(optimizer):
        average = model.weight.detach().clone()
    schedule_free.end_training(optimizer)
    assert torch.equal(model.weight, average)


@pytest.mark.parametrize(("given", "steps"), [(0.25, 3), (2, 2), (0, 0)])
def test_a_warmup_given_as_a_fraction_becomes_a_number_of_steps(given: float, steps: int) -> None:
    _, optimizer = trained()
    optimizer.param_groups[0]["warmup_steps"] = given
    schedule_free.resolve_warmup(optimizer, 10)
    assert optimizer.param_groups[0]["warmup_steps"] == steps
