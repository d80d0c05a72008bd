"""Describe rows, batches and outputs by names, shapes, types and ranges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.tree import first_dimension
from ..data.batching.split_by_length import PaddingMeter
from ..data.columns import ColumnChoice
from .batch_report import BatchSummary, Column, Outputs, Value
from .context import format_dtype, is_integer
from .model_heads import IGNORED

_TYPE_NAMES = {"str": "text", "NoneType": "None"}
_MIN_SAVED_SHARE = 0.2  # of the tokens, below which splitting batches is not suggested
BY_TRANSFORM = "read by its transform"  # a column that the transform of a data set drops from its rows
_LABEL_ALIASES = ("label", "label_ids")
_UNNAMED = "(no name)"


# ---- columns ------------------------------------------------------------------------------------------------------


def describe_columns(
    rows: Sequence[Mapping[str, Any]], choice: ColumnChoice, parameters: Collection[str]
) -> list[Column]:
    """Describe every column of some rows: what it holds, whether it is kept, and why.

    `parameters` are those of the model's forward.
    """
    found = []
    for name in dict.fromkeys([*choice.kept, *choice.left_out]):
        values = [row[name] for row in rows if name in row]
        kept = name not in choice.left_out
        kind = describe_type(values) if values or not rows else BY_TRANSFORM
        found.append(Column(str(name), kind, kept, _explain_choice(name, choice, parameters)))
    return found


def _explain_choice(name: str, choice: ColumnChoice, parameters: Collection[str]) -> str:
    if name in choice.left_out:
        return "forward does not take it"
    if name in parameters:
        return "forward takes it"
    if name in _LABEL_ALIASES and "labels" in parameters:
        return "the collator renames it to labels"
    return "label_names has it" if name in choice.columns else "remove_unused_columns=False keeps all"


def describe_type(values: Sequence[Any]) -> str:
    """Return the type of a column, from some of its values.

    >>> (
    ...     describe_type([[1, 2, 3], [4, 5]]),
    ...     describe_type(["a"]),
    ...     describe_type([0.5, 1.5]),
    ...     describe_type([torch.ones(2, 3)]),
    ... )
    ('list of 2 to 3 int', 'text', 'float', '(2, 3) float32')
    """
    if not values:
        return "unknown"
    first = values[0]
    if isinstance(first, (Tensor, np.ndarray)):
        shapes = {tuple(value.shape) for value in values if isinstance(value, (Tensor, np.ndarray))}
        shape = str(tuple(first.shape)) if len(shapes) == 1 else "varying shapes,"
        return f"{shape} {format_dtype(first)}"
    if isinstance(first, (list, tuple)):
        sizes = [len(value) for value in values if isinstance(value, (list, tuple))]
        size = str(min(sizes)) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        inner = [one for value in values if isinstance(value, (list, tuple)) for one in value[:1]]
        return f"{type(first).__name__} of {size} {describe_type(inner) if inner else 'items'}"
    kinds = list(dict.fromkeys(type(value).__name__ for value in values))
    return " or ".join(_TYPE_NAMES.get(kind, kind) for kind in kinds[:3])


# ---- batches ------------------------------------------------------------------------------------------------------


def describe_batch(
    batch: Mapping[str, Any], *, collator: str, kept: Iterable[str], labels: Collection[str], micro_batches: int
) -> BatchSummary:
    """Describe a batch, and which of the columns `kept` for the model are not in it."""
    meter = PaddingMeter(batches=1)
    meter.add_batch(batch)
    missing = [name for name in kept if name not in batch and not (name in _LABEL_ALIASES and "labels" in batch)]
    return BatchSummary(
        collator=collator,
        rows=first_dimension(batch),
        values=tuple(describe_value(str(name), value, is_label=name in labels) for name, value in batch.items()),
        padding=meter.share_of_padding if meter.padded else None,
        saved_by_cutting=meter.saved if meter.saved >= _MIN_SAVED_SHARE else None,
        micro_batches=micro_batches,
        left_out=tuple(map(str, missing)),
    )


def describe_value(name: str, value: Any, note: str = "", *, is_label: bool = False) -> Value:
    """Describe a tensor by its shape and type; labels also by their range."""
    if isinstance(value, (Tensor, np.ndarray)):
        return Value(name, tuple(value.shape), format_dtype(value), note or (_format_range(value) if is_label else ""))
    return Value(name, None, _describe_contents(value), note)


def _describe_contents(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return f"{type(value).__name__} of {len(value)}: {describe_type(list(value[:1]))}"
    return _TYPE_NAMES.get(type(value).__name__, type(value).__name__)


def _format_range(labels: Any) -> str:
    """Return the range of labels, as in `0 to 2`."""
    labels = torch.as_tensor(labels) if not isinstance(labels, Tensor) else labels
    if labels.dtype == torch.bool or labels.is_complex() or not labels.numel():
        return ""
    real = labels[labels != IGNORED]
    if real.numel() == 0:
        return "all -100"
    low, high = real.min().item(), real.max().item()
    low, high = (low, high) if is_integer(labels) else (f"{low:.3g}", f"{high:.3g}")
    span = f"all {low}" if low == high else f"{low} to {high}"
    return span if real.numel() == labels.numel() else f"{span}, or -100"


def find_ignored_share(labels: Any) -> float | None:
    """Return the share of labels that are -100; None if they are not integers."""
    arrays = [
        np.asarray(one) for one in (labels if isinstance(labels, (tuple, list)) else [labels]) if one is not None
    ]
    whole = [array for array in arrays if array.dtype.kind in "iu" and array.size]
    return (
        sum(int((array == IGNORED).sum()) for array in whole) / sum(array.size for array in whole) if whole else None
    )


# ---- outputs ------------------------------------------------------------------------------------------------------


def describe_outputs(outputs: Any, roles: Mapping[str, str]) -> Outputs:
    """Describe what a model returned; `roles` gives the use of each output, by name or index."""
    kind = type(outputs).__name__
    if isinstance(outputs, Mapping):
        values = [describe_value(str(name), value, roles.get(str(name), "")) for name, value in outputs.items()]
    elif isinstance(outputs, Tensor):
        kind, values = "one tensor", [describe_value(_UNNAMED, outputs, roles.get(_UNNAMED, ""))]
    elif isinstance(outputs, (tuple, list)):
        values = [describe_value(f"[{place}]", one, roles.get(f"[{place}]", "")) for place, one in enumerate(outputs)]
    else:
        values = []
    return Outputs(kind, tuple(values))


def list_output_names(outputs: Any) -> list[str]:
    """Return the names that `describe_outputs` gives to outputs."""
    return [value.name for value in describe_outputs(outputs, {}).values]
