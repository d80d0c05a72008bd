"""Loaders are built for anything that satisfies `LoaderHost`; a trainer is one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import SequentialSampler

from ostinato import TrainingArguments
from ostinato.data.build import build_loader


class Host:
    """A dozen members in place of a trainer."""

    def __init__(self, **arguments: Any) -> None:
        self.args = TrainingArguments("out", use_cpu=True, **arguments)
        self.model: nn.Module = nn.Linear(1, 1)
        self.processing_class = self.batch_sampler = None
        self.data_collator = lambda rows: {"x": torch.tensor(rows)}
        self._train_batch_size = 2

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        return dataset

    def _get_collator_with_removed_columns(self, data_collator: Any, description: str | None = None) -> Any:
        return data_collator

    def _is_overridden(self, method: str) -> bool:
        return method == "_get_train_sampler"


def test_a_loader_needs_no_trainer() -> None:
    loader = build_loader(Host(), list(range(5)), "Evaluation", 2, None, is_training=False)
    assert [batch["x"].tolist() for batch in loader] == [[0, 1], [2, 3], [4]]


def test_arguments_count_as_they_stand_when_a_loader_is_built() -> None:
    host = Host()
    host.args.dataloader_drop_last = True
    loader = build_loader(host, list(range(5)), "Training", 2, SequentialSampler, is_training=True)
    assert [batch["x"].tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_a_token_budget_refuses_an_overridden_sampler() -> None:
    with pytest.raises(ValueError, match="max_tokens_per_batch"):
        build_loader(Host(max_tokens_per_batch=8), list(range(5)), "Training", 2, None, is_training=True)
