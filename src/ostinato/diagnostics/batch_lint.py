"""Find batches that train without an error, and probably not what is intended.

Only `trainer.explain()` reports these findings; they never stop a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .batch_report import Finding
from .context import FailureContext, is_integer
from .model_heads import IGNORED, count_embeddings

_MAX_CHANCE_MATCHES = 4  # labels that may be equal by chance


def lint_batch(context: FailureContext, *, shifts: bool, tokenizer: Any) -> list[Finding]:
    """Return what is suspicious about a batch. `shifts`: the loss compares each position with the next label."""
    return [found for lint in _LINTS for found in lint(context, shifts, tokenizer)]


def lint_loss(loss: float | None) -> Finding | None:
    """Return a finding if the loss is NaN or infinite."""
    if loss is None or math.isfinite(loss):
        return None
    return Finding(
        "loss",
        what=f"the loss of this batch is {loss}",
        why="a division by zero, a logarithm of zero, labels that are all -100, or an overflow",
        fix="check the labels above; with fp16=True, try bf16=True",
        certain=False,
    )


def _find_double_shift(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    """Find labels that were shifted already, for a model that shifts them itself."""
    ids, labels = _get_integer_columns(context, "input_ids", "labels")
    if not shifts or ids is None or labels is None:
        return
    if _is_copy(labels[:, :-1], ids[:, 1:]) and not _is_copy(labels, ids):
        yield Finding(
            "loss",
            what="the labels are already shifted by one position, and the model shifts them again",
            why=f"labels[i] is input_ids[i + 1] in every row, and {context.name} compares its prediction at "
            "position i with labels[i + 1]: it would learn the token after the next",
            fix="make labels a copy of input_ids, with -100 at positions to ignore",
            certain=False,
        )


def _is_copy(labels: Tensor, ids: Tensor) -> bool:
    """Return whether all labels but -100 equal these tokens, and there are enough to be sure."""
    counts = labels != IGNORED
    return int(counts.sum()) > _MAX_CHANCE_MATCHES and bool((labels == ids)[counts].all())


def _find_padding_labels(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    """Find labels of padding tokens."""
    labels, mask = _get_integer_columns(context, "labels", "attention_mask")
    decodes = getattr(context.config, "is_encoder_decoder", False)
    if decodes or labels is None or mask is None:
        return
    padding = (mask == 0) & (labels != IGNORED)
    if bool(padding.any()):
        share = float(padding.sum() / (labels != IGNORED).sum())
        yield Finding(
            "loss",
            what=f"{share * 100:.0f} % of the labels that are not -100 belong to padding",
            why="attention_mask is 0 at these positions, and the labels are not -100",
            fix="set labels to -100 wherever attention_mask is 0",
            certain=False,
        )


def _find_ignored_batch(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    labels = context.columns.get("labels")
    if isinstance(labels, Tensor) and is_integer(labels) and labels.numel() and bool((labels == IGNORED).all()):
        yield Finding(
            "loss",
            what="all labels of this batch are -100, so it does not train the model",
            why="the loss ignores labels of -100",
            fix="check why no label is left: the prompt may be longer than the row, or the answer truncated",
            certain=False,
        )


def _find_large_tokenizer(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    """Find a tokenizer with more tokens than the model has embeddings."""
    known, size = count_embeddings(context.inner, "get_input_embeddings"), _count_tokens(tokenizer)
    if known is not None and size is not None and size > known:
        yield Finding(
            "forward",
            what=f"the tokenizer has {size:,} tokens, and {context.name} has embeddings for {known:,}",
            why=f"a row with one of the tokens {known:,} to {size - 1:,} would fail",
            fix="use the model's own tokenizer, or call model.resize_token_embeddings(len(tokenizer))",
            certain=False,
        )


_LINTS: list[Callable[[FailureContext, bool, Any], Iterator[Finding]]] = [
    _find_large_tokenizer,
    _find_double_shift,
    _find_padding_labels,
    _find_ignored_batch,
]


def _get_integer_columns(context: FailureContext, *names: str) -> tuple[Tensor | None, Tensor | None]:
    """Return two columns of integers of the same shape, or None twice."""
    one, other = (context.columns.get(name) for name in names)
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape or one.dim() != 2:
        return None, None
    return (one, other) if all(is_integer(each) or each.dtype == torch.bool for each in (one, other)) else (None, None)


def _count_tokens(tokenizer: Any) -> int | None:
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if not callable(getattr(tokenizer, "decode", None)):
        return None
    try:
        return len(tokenizer)
    except TypeError:
        return None
