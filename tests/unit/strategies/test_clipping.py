"""The length of a gradient, bit for bit as torch's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ostinato.strategies.clipping import clip
from ostinato.strategies.single import SingleDevice

SHAPES = {"one number": [(1,)], "a few": [(3,), (2, 5), (7,)], "many": [(4, 4)] * 40 + [(300, 17)]}


def gradients(shapes, scale: float) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) * scale for shape in shapes]


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e6, math.inf])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("shapes", SHAPES)
def test_as_torch(shapes: str, scale: float, max_norm: float) -> None:
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES[shapes]]
    for parameter, gradient in zip(parameters, gradients(SHAPES[shapes], scale), strict=True):
        parameter.grad = gradient
    expected = nn.utils.clip_grad_norm_(parameters, max_norm)
    ours = gradients(SHAPES[shapes], scale)
    norm = SingleDevice(torch.device("cpu")).clip(ours, max_norm)
    assert torch.equal(norm, expected)
    for gradient, parameter in zip(ours, parameters, strict=True):
        assert torch.equal(gradient, parameter.grad)


def test_off_measures_without_touching() -> None:
    before = gradients(SHAPES["a few"], 100.0)
    after = [gradient.clone() for gradient in before]
    assert clip(after, math.inf) > 100
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_no_gradients() -> None:
    assert clip([], 1.0) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_reported(bad: float) -> None:
    assert not torch.isfinite(clip([torch.tensor([1.0, bad])], 1.0))
