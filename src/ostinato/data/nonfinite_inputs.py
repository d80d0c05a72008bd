"""Inputs that are NaN or infinite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.phrases import format_items


def describe_nonfinite_inputs(batches: Sequence[Any], rows: list[int] | None) -> str:
    """Return which columns of which rows hold NaN or infinity; empty if none does.

    >>> describe_nonfinite_inputs([{"x": torch.tensor([[1.0], [float("nan")]])}], [7, 3])
    "'x' is nan in row 3 of the training set"
    """
    found, before = [], 0
    for batch in batches:
        columns = batch if isinstance(batch, Mapping) else {}
        length = 0
        for name, column in columns.items():
            if not isinstance(column, Tensor) or column.dim() == 0:
                continue
            length = max(length, len(column))
            if column.is_floating_point() and not bool(torch.isfinite(column).all()):
                found.append(_describe_column(name, column, before, rows))
        before += length
    return "; ".join(found)


def _describe_column(name: str, column: Tensor, before: int, rows: list[int] | None) -> str:
    bad = ~torch.isfinite(column)
    at = bad.reshape(len(bad), -1).any(dim=1).nonzero().flatten().tolist()
    value = float(column[bad].flatten()[0])
    if rows is not None and before + max(at) < len(rows):
        numbers = [rows[before + index] for index in at]
        return f"{name!r} is {value:g} in {format_items('row', numbers)} of the training set"
    return f"{name!r} is {value:g} in {format_items('row', at)} of its batch"
