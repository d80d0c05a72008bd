"""What functions and objects remember, put back."""

from __future__ import annotations

import functools
import random
from collections import Counter, deque

import numpy as np
import pytest
import torch
from torch import nn

from ostinato.core.state_guard import can_restore, preserve_objects

HISTORY: list[int] = []
COUNT = 0


def test_variables_of_a_closure() -> None:
    count, seen, best = 0, [], {"score": 0.0}

    def metric(prediction):
        nonlocal count
        count += 1
        seen.append(prediction)
        best["score"] = 1.0
        return count

    with preserve_objects(metric):
        metric(1)
        metric(2)
    assert (count, seen, best) == (0, [], {"score": 0.0})
    assert metric(3) == 1


def test_global_variables() -> None:
    def metric():
        global COUNT
        COUNT += 1
        HISTORY.append(COUNT)

    with preserve_objects(metric):
        metric()
    assert COUNT == 0
    assert HISTORY == []


def test_default_arguments() -> None:
    def metric(value, calls=[]):  # noqa: B006
        calls.append(value)
        return len(calls)

    with preserve_objects(metric):
        metric(1)
    assert metric(2) == 1


class Metric:
    def __init__(self) -> None:
        self.calls, self.names, self.recent = 0, Counter(), deque(maxlen=3)
        self.generator = torch.Generator().manual_seed(1)

    def __call__(self) -> float:
        self.calls += 1
        self.names["a"] += 1
        self.recent.append(1)
        self.late = True
        return float(torch.rand((), generator=self.generator))

    def method(self) -> float:
        return self()


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: one.method, lambda one: functools.partial(one)])
def test_objects_that_can_be_called(wrap) -> None:
    metric, other = Metric(), Metric()
    call = wrap(metric)
    with preserve_objects(call):
        call()
        call()
    assert vars(metric).keys() == vars(other).keys()
    assert (metric.calls, metric.names, list(metric.recent)) == (0, Counter(), [])
    assert metric() == other()


@pytest.mark.parametrize(
    ("generator", "draw"),
    [
        (torch.Generator().manual_seed(3), lambda one: float(torch.rand((), generator=one))),
        (np.random.default_rng(3), lambda one: one.random()),
        (np.random.RandomState(3), lambda one: one.rand()),
        (random.Random(3), lambda one: one.random()),
    ],
    ids=["torch", "numpy", "numpy of old", "python"],
)
def test_generators(generator, draw) -> None:
    def collate():
        return draw(generator)

    with preserve_objects(collate):
        drawn = collate()
    assert collate() == drawn


@pytest.mark.parametrize("values", [[1, 2, 3], (1, 2, 3), range(1, 4), "123"])
def test_iterators(values) -> None:
    left = iter(values)
    next(left)
    with preserve_objects(lambda: left):
        next(left)
    assert list(left) == list(values)[1:]


def test_generators_cannot_be_restored(tmp_path) -> None:
    numbers = (number for number in range(3))
    with open(tmp_path / "log", "w") as file:
        assert not can_restore(lambda: file)
    assert not can_restore(lambda: numbers)
    assert can_restore(lambda: HISTORY, Metric(), None)


def test_tensors_that_are_added_to() -> None:
    total = torch.zeros(3)

    def metric():
        total.add_(1)

    with preserve_objects(metric):
        metric()
    assert total.tolist() == [0, 0, 0]


def test_a_model_is_left_alone() -> None:
    model = nn.Linear(2, 2)
    with preserve_objects(lambda: model):
        model.extra = 3
    assert model.extra == 3


def test_unchanged_objects_are_not_written() -> None:
    class Watched(dict):
        def clear(self):
            raise AssertionError("touched")

    watched = Watched(a=1)
    with preserve_objects(lambda: watched):
        pass
    assert watched == {"a": 1}


def test_restored_after_an_error() -> None:
    seen = []

    def metric():
        seen.append(1)
        raise ValueError

    with pytest.raises(ValueError), preserve_objects(metric):
        metric()
    assert seen == []


def test_cycles_and_large_containers() -> None:
    circle: list = []
    circle.append(circle)
    large = [{"x": i} for i in range(5_000)]
    with preserve_objects(lambda: (circle, large)):
        circle.append(2)
        large.pop()
    assert circle == [circle]
    assert len(large) == 5_000
