"""How many input tokens a run has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..core.notices import note_once
from ..core.protocols import Batch


def count_tokens(batch: Batch, *, main_input: str, mode: str, pad_token_id: int | None) -> int:
    """The elements of a batch's main input; with `mode="non_padding"` those that are not padding."""
    tokens: Any = batch.get(main_input) if isinstance(batch, Mapping) else None
    if not isinstance(tokens, Tensor):
        note_once(f"input tokens are not counted: the batch has no tensor {main_input!r}, the model's main input")
        return 0
    if mode != "non_padding":
        return tokens.numel()
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor):
        return int(mask.sum())
    if pad_token_id is not None:
        return int((tokens != pad_token_id).sum())
    note_once("all input tokens are counted: neither an attention_mask nor a pad token tells which are padding")
    return tokens.numel()
