"""The arithmetic of a run."""

from __future__ import annotations

import itertools
import math

import pytest

from ostinato.engine.plan import Plan


def plan_for(batches, **changes) -> Plan:
    defaults = dict(
        epochs=3.0, max_steps=-1, accumulation=1, max_grad_norm=1.0, rows_per_update=4, rows_per_epoch=None
    )
    return Plan.for_length(batches, **{**defaults, **changes})


def brute_force(batches: int, accumulation: int, epochs: float, max_steps: int) -> tuple[int, int]:
    """Steps and epochs by counting: an epoch's last update may be short."""
    per_epoch = sum(1 for first in range(0, batches, accumulation))
    if max_steps > 0:
        return max_steps, math.ceil(max_steps / per_epoch)
    return math.ceil(epochs * per_epoch), math.ceil(epochs)


@pytest.mark.parametrize("accumulation", [1, 2, 3, 8])
@pytest.mark.parametrize("batches", [1, 2, 5, 7, 12])
def test_steps_and_epochs(batches: int, accumulation: int) -> None:
    for epochs, max_steps in itertools.product([0.3, 1, 1.5, 3, 2.9], [-1, 0, 1, 4, 25]):
        plan = plan_for(batches, accumulation=accumulation, epochs=epochs, max_steps=max_steps)
        assert (plan.max_steps, plan.epochs) == brute_force(batches, accumulation, epochs, max_steps)
        assert plan.batches_per_epoch == batches


def test_unknown_length() -> None:
    plan = plan_for(None, max_steps=10, accumulation=2)
    assert (plan.max_steps, plan.batches_per_epoch) == (10, 20)
    assert plan.epochs > 10**9  # as often as it takes
    assert plan.rows == 40


def test_rows() -> None:
    assert plan_for(6, rows_per_epoch=23, epochs=2).rows == 46
    assert plan_for(6, rows_per_epoch=23, max_steps=5).rows == 20
    assert plan_for(6, rows_per_epoch=10, epochs=1.5).rows == 15


@pytest.mark.parametrize(("asked", "limit"), [(1.0, 1.0), (0.0, math.inf), (None, math.inf), (-1.0, math.inf)])
def test_no_clipping_is_an_infinite_limit(asked: float | None, limit: float) -> None:
    assert plan_for(2, max_grad_norm=asked).max_grad_norm == limit
