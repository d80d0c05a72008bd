"""The number of input tokens that a run has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..core.notices import note_once
from ..core.protocols import Batch
from ..core.tree import read

FEW = 1024  # below this size, counting in Python is faster than one torch operation


class TokenCounter:
    """Count the elements of a batch's main input; with `mode="non_padding"`, those that are not padding.

    >>> import torch
    >>> count = TokenCounter("input_ids", mode="non_padding", pad_token_id=0)
    >>> count({"input_ids": torch.tensor([[5, 6, 0], [7, 0, 0]])})
    3
    """

    def __init__(self, main_input: str, *, mode: str, pad_token_id: int | None) -> None:
        self.main_input, self.pad_token_id = main_input, pad_token_id
        self.counts_padding = mode != "non_padding"

    def __call__(self, batch: Batch) -> int:
        # A check against an abstract class takes longer, and nearly every batch is a dict.
        tokens: Any = batch.get(self.main_input) if type(batch) is dict or isinstance(batch, Mapping) else None
        if not isinstance(tokens, Tensor):
            name = self.main_input
            note_once(f"input tokens are not counted: the batch has no tensor {name!r}, the model's main input")
            return 0
        if self.counts_padding:
            return tokens.numel()
        mask = batch.get("attention_mask")
        if isinstance(mask, Tensor):
            if mask.is_cpu and mask.dim() == 2 and (size := mask.numel()) <= FEW:
                return size - sum(row.count(0) for row in mask.tolist())
            return int(read(torch.count_nonzero(mask)))
        if self.pad_token_id is not None:
            return int(read(torch.count_nonzero(tokens != self.pad_token_id)))
        note_once("all input tokens are counted: neither an attention_mask nor a pad token tells which are padding")
        return tokens.numel()
