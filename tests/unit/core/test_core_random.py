"""Seeds and snapshots."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ostinato.core.random import RandomState, preserve_rng, set_seed
from tests.support.apis import guest, load_library


def draw() -> tuple[float, ...]:
    numbers = torch.rand(2).tolist() + torch.randn(1).tolist()
    return (random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.randn()), *numbers)


@pytest.fixture(autouse=True)
def streams_put_back():
    state = RandomState.capture()
    yield
    state.restore()


def test_preserve_rng() -> None:
    set_seed(3)
    expected = draw()
    set_seed(3)
    with preserve_rng():
        draw()
        set_seed(99)
    assert draw() == expected


def test_preserve_rng_after_an_error() -> None:
    set_seed(3)
    expected = draw()
    set_seed(3)
    with pytest.raises(KeyError), preserve_rng():
        draw()
        raise KeyError
    assert draw() == expected


def test_preserve_rng_keeps_half_used_pairs() -> None:
    """A normal draw makes two numbers and keeps one; the one that waits belongs to the stream as well."""
    set_seed(3)
    random.gauss(0, 1)
    np.random.randn()
    expected = draw()
    set_seed(3)
    random.gauss(0, 1)
    np.random.randn()
    with preserve_rng():
        draw()
    assert draw() == expected


def test_inside_goes_on_from_outside() -> None:
    set_seed(3)
    expected = draw()
    set_seed(3)
    with preserve_rng():
        assert draw() == expected


def test_seeds_differ() -> None:
    set_seed(1)
    one = draw()
    set_seed(2)
    assert all(a != b for a, b in zip(one, draw(), strict=True))


@pytest.mark.parametrize("seed", [0, 42, 2**31])
def test_seed_as_transformers(seed: int) -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        load_library("transformers").set_seed(seed)
    theirs = draw()
    set_seed(seed)
    assert draw() == theirs


def test_deterministic_kernels_on_request() -> None:
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        set_seed(1, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
