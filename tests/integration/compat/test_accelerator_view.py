"""`trainer.accelerator`: the names that others reach for."""

from __future__ import annotations

import pytest
import torch

from tests.support import tiny
from tests.support.apis import Api


def looking(api: Api, look):
    """A trainer class that looks at its accelerator in every training step."""

    class Looking(api.Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            look(self.accelerator)
            return super().training_step(model, inputs, num_items_in_batch)

    return Looking


def test_sync_gradients_is_true_on_the_last_micro_batch(api: Api) -> None:
    """Clients log or clip `if self.accelerator.sync_gradients`."""
    seen: list[bool] = []
    cls = looking(api, lambda accelerator: seen.append(accelerator.sync_gradients))
    args = api.args(per_device_train_batch_size=2, gradient_accumulation_steps=3, max_steps=2)
    api.trainer(tiny.regression(), args, cls=cls, train_dataset=tiny.regression_rows(24)).train()
    assert seen == [False, False, True] * 2


@pytest.mark.parametrize("bf16", [False, True])
def test_autocast_follows_the_precision(api: Api, bf16: bool) -> None:
    seen: list[bool] = []

    def look(accelerator) -> None:
        with accelerator.autocast():
            seen.append(torch.is_autocast_enabled("cpu"))

    args = api.args(max_steps=1, bf16=bf16)
    api.trainer(tiny.regression(), args, cls=looking(api, look), train_dataset=tiny.regression_rows(8)).train()
    assert seen == [bf16]
