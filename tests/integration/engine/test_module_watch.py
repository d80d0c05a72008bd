"""`debug="underflow_overflow"`: the first module whose numbers are not finite is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support import tiny
from tests.support.apis import Api


class Overflows(nn.Module):
    """A model whose second part divides by zero in its third training step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), Divide(), nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        prediction = self.last(self.second(self.first(x))).squeeze(-1)
        return {"loss": ((prediction - labels) ** 2).mean(), "logits": prediction}


class Divide(nn.Module):
    calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += self.training
        return x / 0.0 if self.calls == 3 else x


def test_the_first_module_is_named_with_the_last_calls(api: Api) -> None:
    torch.manual_seed(0)
    args = api.args(max_steps=5, debug="underflow_overflow")
    trainer = api.trainer(Overflows(), args, train_dataset=tiny.regression_rows())
    with pytest.raises(ValueError) as caught:
        trainer.train()
    if api.is_ours:
        text = str(caught.value)
        assert text.startswith("step 3, batches [2] of its epoch: output of second (Divide) is not finite")
        assert "first (Linear): output" in text
        assert "inf  second (Divide): output" in text
        assert "last (Linear)" not in text.split("fix:")[0].splitlines()[-1]


def test_weights_that_are_not_finite_are_named(ours: Api) -> None:
    model = Overflows()
    with torch.no_grad():
        model.last.bias.fill_(float("nan"))
    trainer = ours.trainer(
        model, ours.args(max_steps=1, debug=["underflow_overflow"]), train_dataset=tiny.regression_rows()
    )
    with pytest.raises(ArithmeticError, match=r"bias of last \(Linear\) is not finite"):
        trainer.train()


def test_a_sound_run_is_the_same_and_nothing_stays_attached(ours: Api) -> None:
    weights = []
    for debug in ("", "underflow_overflow"):
        trainer = ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=2, debug=debug)
        weights.append(torch.cat([one.detach().flatten() for one in trainer.model.parameters()]))
        assert not any(module._forward_hooks for module in trainer.model.modules())
    assert torch.equal(*weights)
