"""The arithmetic of a run."""

from __future__ import annotations

import math

import pytest

from ostinato.engine.plan import Plan
from tests.support import tiny
from tests.support.apis import Api, guest

GRID = [(5, 2, 1, -1), (7, 3, 2.5, -1), (4, 4, 0.5, -1), (6, 4, 3, 7), (3, 8, 2, -1), (9, 2, 1, 2), (5, 1, 1, 12)]


@pytest.mark.parametrize(("rows", "accumulation", "epochs", "max_steps"), GRID)
def test_as_transformers(rows: int, accumulation: int, epochs: float, max_steps: int, tmp_path) -> None:
    """What transformers' own run wrote into its state."""
    pytest.importorskip("transformers")
    with guest("transformers"):
        api = Api("transformers", tmp_path)
        sizes = dict(per_device_train_batch_size=2, gradient_accumulation_steps=accumulation)
        args = api.args(num_train_epochs=epochs, max_steps=max_steps, **sizes)
        trainer = api.trainer(tiny.regression(), args, train_dataset=tiny.regression_rows(rows))
        trainer.train()
        state = trainer.state
    plan = Plan.for_length(
        math.ceil(rows / 2), epochs=epochs, max_steps=max_steps, accumulation=accumulation, max_grad_norm=1.0,
        rows_per_update=4, rows_per_epoch=None,
    )  # fmt: skip
    assert (plan.max_steps, plan.epochs) == (state.max_steps, state.num_train_epochs)
    assert state.global_step == plan.max_steps
