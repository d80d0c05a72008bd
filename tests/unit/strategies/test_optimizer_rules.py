"""Optimizers that cannot train divided parameters are named, with what to use."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato.core.errors import NotSupportedError
from ostinato.strategies.optimizer_rules import choose_options, keep_parameters


def test_torch_adafactor_is_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"torch\.optim\.Adafactor cannot train") as refused:
        choose_options(torch.optim.Adafactor, {}, nn.Linear(2, 2))
    assert "optim='adafactor'" in str(refused.value)


def test_options_stay_where_all_parameters_are_alike() -> None:
    assert choose_options(torch.optim.AdamW, {"lr": 0.1, "fused": True}, nn.Linear(2, 2)) == {"lr": 0.1, "fused": True}


def test_an_optimizer_of_a_model_that_stays_whole_keeps_its_parameters() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    before = list(optimizer.param_groups[0]["params"])
    with keep_parameters(optimizer, model):
        pass
    assert all(one is other for one, other in zip(before, optimizer.param_groups[0]["params"], strict=True))
