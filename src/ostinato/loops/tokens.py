"""How many input tokens a run has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..core.notices import note_once
from ..core.protocols import Batch
from ..core.tree import read

FEW = 256  # numbers that are added up faster one by one than by torch


class TokenCounter:
    """The elements of a batch's main input; with `mode="non_padding"` those that are not padding.

    >>> import torch
    >>> count = TokenCounter("input_ids", mode="non_padding", pad_token_id=0)
    >>> count({"input_ids": torch.tensor([[5, 6, 0], [7, 0, 0]])})
    3
    """

    def __init__(self, main_input: str, *, mode: str, pad_token_id: int | None) -> None:
        self.main_input, self.pad_token_id = main_input, pad_token_id
        self.counts_padding = mode != "non_padding"

    def __call__(self, batch: Batch) -> int:
        tokens: Any = batch.get(self.main_input) if isinstance(batch, Mapping) else None
        if not isinstance(tokens, Tensor):
            name = self.main_input
            note_once(f"input tokens are not counted: the batch has no tensor {name!r}, the model's main input")
            return 0
        if self.counts_padding:
            return tokens.numel()
        mask = batch.get("attention_mask")
        if isinstance(mask, Tensor):
            return _sum(mask)
        if self.pad_token_id is not None:
            return _sum(tokens != self.pad_token_id)
        note_once("all input tokens are counted: neither an attention_mask nor a pad token tells which are padding")
        return tokens.numel()


def _sum(mask: Tensor) -> int:
    if mask.is_cpu and mask.dim() == 2 and mask.numel() <= FEW:
        return int(sum(map(sum, read(mask))))
    return int(read(mask.sum()))
