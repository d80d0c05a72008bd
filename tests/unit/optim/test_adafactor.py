"""Adafactor: bit for bit as in transformers, and what it promises by itself."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.core.errors import ConfigError
from ostinato.optim.adafactor import Adafactor, AdafactorSchedule, get_adafactor_schedule

SHAPES = ((), (1,), (7,), (3, 5), (1, 1), (33, 17), (1, 9), (2, 3, 4), (5, 1, 7), (2, 3, 4, 5))
RATES: tuple[dict[str, Any], ...] = ({"lr": 1e-3, "relative_step": False}, {}, {"warmup_init": True})
OPTIONS = [
    dict(weight_decay=decay, beta1=beta1, scale_parameter=scale, clip_threshold=clip, decay_rate=fade, **rate)
    for decay, beta1, scale, clip, fade, rate in itertools.product(
        (0.0, 0.1), (None, 0.0, 0.9), (True, False), (1.0, 0.3), (-0.8, -0.5), RATES
    )
] + [{"eps": (1e-8, 1e-2)}, {"eps": (1e-30, 10.0)}]


def parameters(seed: int, dtype: torch.dtype, scale: float = 1.0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter((torch.randn(shape, generator=generator) * scale).to(dtype)) for shape in SHAPES]


def set_gradients(seed: int, *lists: list[nn.Parameter]) -> None:
    """The same gradients for all lists, of very different sizes, some of them zero."""
    generator = torch.Generator().manual_seed(1000 + seed)
    for same in zip(*lists, strict=True):
        size = 10.0 ** int(torch.randint(-3, 2, (), generator=generator))
        gradient = torch.randn(same[0].shape, generator=generator) * size
        if same[0].dim() == 1 and seed % 3 == 1:
            gradient.zero_()
        for parameter in same:
            parameter.grad = gradient.to(parameter.dtype)


def take_steps(optimizer: torch.optim.Optimizer, values: list[nn.Parameter], seeds: range) -> None:
    for seed in seeds:
        set_gradients(seed, values)
        optimizer.step()


def assert_same(ours: Adafactor, mine: list[nn.Parameter], theirs: torch.optim.Optimizer, other: list[Any]) -> None:
    for a, b in zip(mine, other, strict=True):
        assert torch.equal(a, b), f"a parameter of shape {tuple(a.shape)} differs by {(a - b).abs().max()}"
        assert ours.state[a].keys() == theirs.state[b].keys()
        for name, value in ours.state[a].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs.state[b][name])), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_saved_state_continues_bit_for_bit(dtype: torch.dtype) -> None:
    straight, broken = parameters(0, dtype), parameters(0, dtype)
    one, before = Adafactor(straight, beta1=0.9), Adafactor(broken, beta1=0.9)
    take_steps(one, straight, range(6))
    take_steps(before, broken, range(3))
    after = Adafactor(broken, beta1=0.9)
    after.load_state_dict(before.state_dict())
    take_steps(after, broken, range(3, 6))
    assert_same(after, broken, one, straight)


def test_a_loaded_state_is_not_shared_with_where_it_came_from() -> None:
    values = parameters(0, torch.float32)
    first, second = Adafactor(values), Adafactor(values)
    take_steps(first, values, range(1))
    second.load_state_dict(first.state_dict())
    saved = first.state[values[3]]["exp_avg_sq_row"].clone()
    take_steps(second, values, range(1, 2))
    assert torch.equal(first.state[values[3]]["exp_avg_sq_row"], saved)


def test_state_of_a_matrix_is_its_rows_and_columns() -> None:
    weight = nn.Parameter(torch.ones(30, 20))
    optimizer = Adafactor([weight])
    weight.grad = torch.ones(30, 20)
    optimizer.step()
    assert sum(value.numel() for value in optimizer.state[weight].values() if isinstance(value, torch.Tensor)) == 51


def test_one_step_of_a_constant_gradient_moves_by_the_rate() -> None:
    weight = nn.Parameter(torch.full((4, 3), 2.0))
    weight.grad = torch.full((4, 3), 0.01)
    Adafactor([weight], lr=0.5, relative_step=False, scale_parameter=False).step()
    torch.testing.assert_close(weight.detach(), torch.full((4, 3), 1.5))


def test_it_finds_a_minimum() -> None:
    weight = nn.Parameter(torch.tensor([[3.0, -2.0], [1.0, 4.0]]))
    optimizer = Adafactor([weight], lr=0.05, relative_step=False, scale_parameter=False)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        optimizer.step()
    assert weight.abs().max() < 0.1


def test_a_closure_is_called_with_gradients_and_its_loss_returned() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = Adafactor([weight])

    def closure() -> torch.Tensor:
        loss = weight.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert (weight < 1.0).all()


def test_parameters_without_a_gradient_stay() -> None:
    still, moving = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    moving.grad = torch.ones(2)
    optimizer = Adafactor([still, moving])
    optimizer.step()
    assert torch.equal(still, torch.ones(2)) and still not in optimizer.state


def test_sparse_gradients_are_refused() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        Adafactor([weight]).step()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"lr": 1e-3}, "Cannot combine manual `lr` and `relative_step=True` options"),
        (
            {"lr": 1e-3, "relative_step": False, "warmup_init": True},
            "`warmup_init=True` requires `relative_step=True`",
        ),
        ({"relative_step": False}, "no learning rate"),
    ],
)
def test_contradictions_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Adafactor([nn.Parameter(torch.ones(1))], **kwargs)


# ---------------------------------------------------------------------------------------------------------- schedule


def test_the_schedule_reports_the_rate_of_the_last_step() -> None:
    values = [nn.Parameter(torch.full((2, 2), 3.0)), nn.Parameter(torch.ones(2))]
    optimizer = Adafactor([{"params": values[:1]}, {"params": values[1:]}])
    schedule = get_adafactor_schedule(optimizer, initial_lr=0.5)
    assert schedule.get_last_lr() == [0.5, 0.5]
    values[0].grad = torch.ones(2, 2)
    optimizer.step()
    schedule.step()
    # The first group: one percent of the root mean square of its weights. The second has not been updated.
    assert schedule.get_last_lr() == [pytest.approx(0.03), 0.5]
    assert json.loads(json.dumps(schedule.state_dict()))["_last_lr"] == schedule.get_last_lr()


def test_the_schedule_does_not_change_what_the_optimizer_does() -> None:
    alone, scheduled = parameters(0, torch.float32), parameters(0, torch.float32)
    first, second = Adafactor(alone), Adafactor(scheduled)
    schedule = AdafactorSchedule(second)
    for seed in range(3):
        set_gradients(seed, alone, scheduled)
        first.step()
        second.step()
        schedule.step()
    assert_same(second, scheduled, first, alone)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: torch.optim.SGD(values, lr=0.1),
        lambda values: Adafactor(values, lr=0.1, relative_step=False),
    ],
)
def test_the_schedule_refuses_an_optimizer_with_a_given_rate(make: Any) -> None:
    with pytest.raises(ConfigError, match="AdafactorSchedule cannot be used"):
        AdafactorSchedule(make([nn.Parameter(torch.ones(1))]))


# -------------------------------------------------------------------------------------------------- bit for bit


@pytest.mark.parametrize(
    ("dtype", "scale", "every"),  # with scale 1e-3 the root mean square of the weights is below its floor
    [
        (torch.float32, 1.0, 1),
        (torch.float32, 1e-3, 5),
        (torch.float16, 1.0, 11),
        (torch.bfloat16, 1.0, 11),
        (torch.float64, 1.0, 11),
    ],
    ids=str,
)
def test_same_bits_as_transformers(dtype: torch.dtype, scale: float, every: int, peer: Any) -> None:
    for seed, kwargs in enumerate(OPTIONS[::every]):
        mine, other = parameters(seed, dtype, scale), parameters(seed, dtype, scale)
        ours, theirs = Adafactor(mine, **kwargs), peer.optimization.Adafactor(other, **kwargs)
        for step in range(3):
            set_gradients(step, mine, other)
            ours.step()
            theirs.step()
        assert_same(ours, mine, theirs, other)


def test_same_defaults_as_transformers(peer: Any) -> None:
    weight = nn.Parameter(torch.ones(2))
    assert Adafactor([weight]).defaults == peer.optimization.Adafactor([weight]).defaults


def test_a_checkpoint_of_transformers_continues(peer: Any) -> None:
    mine, other = parameters(0, torch.float32), parameters(0, torch.float32)
    theirs = peer.optimization.Adafactor(other, beta1=0.9)
    take_steps(theirs, other, range(3))
    with torch.no_grad():
        for a, b in zip(mine, other, strict=True):
            a.copy_(b)
    ours = Adafactor(mine, beta1=0.9)
    ours.load_state_dict(theirs.state_dict())
    for seed in range(3, 5):
        set_gradients(seed, mine, other)
        ours.step()
        theirs.step()
    assert_same(ours, mine, theirs, other)


def test_the_schedule_reports_what_transformers_reports(peer: Any) -> None:
    mine, other = parameters(0, torch.float32), parameters(0, torch.float32)
    ours, theirs = Adafactor(mine), peer.optimization.Adafactor(other)
    schedule, reference = AdafactorSchedule(ours, 0.25), peer.optimization.AdafactorSchedule(theirs, 0.25)
    for seed in range(4):
        assert schedule.get_last_lr() == [float(rate) for rate in reference.get_last_lr()]
        set_gradients(seed, mine, other)
        for part in (ours, theirs, schedule, reference):
            part.step()
