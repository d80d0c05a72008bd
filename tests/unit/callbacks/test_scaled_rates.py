"""Rates that are changed while a schedule goes on: torch's own schedules keep their shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from ostinato.callbacks.group_rates import scale_rates

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.02], total_steps=12),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(
        optimizer, base_lr=[0.01, 0.002], max_lr=[0.1, 0.02], step_size_up=4, cycle_momentum=False
    ),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 12),
    "exponential": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "one after the other": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, total_iters=4), lr_scheduler.CosineAnnealingLR(optimizer, 8)],
        [4],
    ),
}


def rates(schedule: Callable[[Any], Any], factor: float) -> list[list[float]]:
    """Of two groups over ten steps; scaled after the third."""
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    groups = [{"params": [one], "lr": rate} for one, rate in zip(parameters, (0.1, 0.02), strict=True)]
    optimizer = torch.optim.SGD(groups)
    scheduler = schedule(optimizer)
    found = []
    for step in range(10):
        optimizer.step()
        found.append([group["lr"] for group in optimizer.param_groups])
        scheduler.step()
        if step == 2:
            scale_rates(optimizer, scheduler, factor)
    return found


@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")  # said by SequentialLR to itself
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_a_schedule_keeps_its_shape(schedule: Callable[[Any], Any]) -> None:
    usual, scaled = rates(schedule, 1.0), rates(schedule, 0.5)
    assert scaled[:3] == usual[:3]
    for after, before in zip(scaled[3:], usual[3:], strict=True):
        assert after == pytest.approx([rate * 0.5 for rate in before])
