"""Find batches that train without an error and probably do not train what is meant.

These are said by `trainer.explain()` only, and never stop a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .batch_report import Finding
from .context import FailureContext, is_integer
from .model_heads import IGNORED

_FEW = 4  # labels that may be equal by chance


def lint_batch(context: FailureContext, *, shifts: bool, tokenizer: Any) -> list[Finding]:
    """Return what is suspicious about a batch. `shifts`: the loss compares each position with the next label."""
    return [found for look in _LINTS for found in look(context, shifts, tokenizer)]


def lint_loss(loss: float | None) -> Finding | None:
    """Return a finding if the loss is NaN or infinite."""
    if loss is None or math.isfinite(loss):
        return None
    return Finding(
        "loss",
        what=f"the loss of this batch is {loss}",
        why="a division by zero, a logarithm of zero, labels that are all -100, or numbers beyond the precision",
        fix="look at the labels above; with fp16=True, try bf16=True",
        certain=False,
    )


def _shifted_twice(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    """Find labels that were shifted already, for a model that shifts them itself."""
    ids, labels = _tables(context, "input_ids", "labels")
    if not shifts or ids is None or labels is None:
        return
    if _agree(labels[:, :-1], ids[:, 1:]) and not _agree(labels, ids):
        yield Finding(
            "loss",
            what="the labels are shifted by one place already, and the model shifts them once more",
            why=f"labels[i] is input_ids[i + 1] in every row, and {context.name} compares what it predicts at place i "
            "with labels[i + 1]: it would learn the token after the next",
            fix="make labels a copy of input_ids, with -100 where nothing is to be learnt",
            certain=False,
        )


def _agree(labels: Tensor, ids: Tensor) -> bool:
    """Return whether all labels that count equal these tokens, and there are enough to be sure."""
    counts = labels != IGNORED
    return int(counts.sum()) > _FEW and bool((labels == ids)[counts].all())


def _learns_padding(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    """Find labels of padding."""
    labels, mask = _tables(context, "labels", "attention_mask")
    decodes = getattr(context.config, "is_encoder_decoder", False)
    if decodes or labels is None or mask is None:
        return
    padding = (mask == 0) & (labels != IGNORED)
    if bool(padding.any()):
        share = float(padding.sum() / (labels != IGNORED).sum())
        yield Finding(
            "loss",
            what=f"{share * 100:.0f} % of the labels that count are those of padding",
            why="where attention_mask is 0 there is no token, and the labels there are not -100",
            fix="let labels be -100 wherever attention_mask is 0",
            certain=False,
        )


def _nothing_to_learn(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    labels = context.columns.get("labels")
    if isinstance(labels, Tensor) and is_integer(labels) and labels.numel() and bool((labels == IGNORED).all()):
        yield Finding(
            "loss",
            what="all labels of this batch are -100, so there is nothing to learn from it",
            why="-100 marks what the loss leaves out",
            fix="see why no label is left: a prompt longer than the row, or a tokenizer that cut the answer off",
            certain=False,
        )


def _tokenizer_too_large(context: FailureContext, shifts: bool, tokenizer: Any) -> Iterator[Finding]:
    """Find a tokenizer with more tokens than the model has embeddings."""
    known, size = _embeddings(context.inner), _length(tokenizer)
    if known is not None and size is not None and size > known:
        yield Finding(
            "forward",
            what=f"the tokenizer knows {size:,} tokens, and {context.name} only {known:,}",
            why=f"a row with one of the tokens {known:,} to {size - 1:,} would fail",
            fix="use the tokenizer the model was made for, or call model.resize_token_embeddings(len(tokenizer))",
            certain=False,
        )


_LINTS: list[Callable[[FailureContext, bool, Any], Iterator[Finding]]] = [
    _tokenizer_too_large,
    _shifted_twice,
    _learns_padding,
    _nothing_to_learn,
]


def _tables(context: FailureContext, *names: str) -> tuple[Tensor | None, Tensor | None]:
    """Return two columns of integers of the same shape, or None twice."""
    one, other = (context.columns.get(name) for name in names)
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape or one.dim() != 2:
        return None, None
    return (one, other) if all(is_integer(each) or each.dtype == torch.bool for each in (one, other)) else (None, None)


def _embeddings(model: Any) -> int | None:
    """Return how many tokens the model has embeddings for."""
    get = getattr(model, "get_input_embeddings", None)
    try:
        weight = getattr(get() if callable(get) else None, "weight", None)
    except (AttributeError, NotImplementedError):
        return None
    return weight.shape[0] if isinstance(weight, Tensor) and weight.dim() == 2 else None


def _length(tokenizer: Any) -> int | None:
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if not callable(getattr(tokenizer, "decode", None)):
        return None
    try:
        return len(tokenizer)
    except TypeError:
        return None
