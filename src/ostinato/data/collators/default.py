"""The collator for rows that need no padding: every column becomes one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...core.errors import NotSupportedError
from ..collate_errors import build_not_a_row_error, find_column_fault, find_non_row
from ..dataset_errors import RowNames, RowsError, WrongValueError, build_no_rows_error, build_rows_error

DataCollator = Callable[[list[Any]], dict[str, Any]]
"""What turns a list of rows into a batch."""

_LABEL_COLUMNS = ("label", "label_ids")  # both become `labels`


def default_data_collator(features: list[Any], return_tensors: str = "pt") -> dict[str, Any]:
    """Join rows column by column.

    `label` and `label_ids` become `labels`; columns that hold text or None are left out. The first row decides
    which columns there are and of which type.

    Args:
        features: The rows: mappings, or objects whose attributes are the columns.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

    Returns:
        The batch: a tensor or array for each column.

    Raises:
        NotSupportedError: `return_tensors` has another value.
        RowsError: The values of a column do not make one tensor.

    >>> default_data_collator([{"x": [1, 2], "label": 0}, {"x": [3, 4], "label": 1}])
    {'labels': tensor([0, 1]), 'x': tensor([[1, 2],
            [3, 4]])}
    """
    join = _JOINERS.get(return_tensors)
    if join is None:
        raise NotSupportedError(
            what=f"return_tensors={return_tensors!r} is not available",
            why="batches are made of torch tensors or numpy arrays",
            fix="use return_tensors='pt' or return_tensors='np'",
        )
    rows = _to_mappings(features)
    first = rows[0]
    batch: dict[str, Any] = {}
    name, column = "label", join.column
    try:
        if first.get("label") is not None:
            batch["labels"] = join.label([row["label"] for row in rows])
        elif first.get("label_ids") is not None:
            name = "label_ids"
            batch["labels"] = join.label_ids([row["label_ids"] for row in rows])
        for name, value in first.items():
            if value is not None and name not in _LABEL_COLUMNS and not isinstance(value, str):
                batch[name] = column([row[name] for row in rows])
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise _build_column_error(rows, name, error) from error
    return batch


def torch_default_data_collator(features: list[Any]) -> dict[str, Any]:
    """Join rows to torch tensors; see `default_data_collator`.

    Args:
        features: The rows: dicts or objects.

    Returns:
        The batch, by column.

    >>> torch_default_data_collator([{"x": 1}, {"x": 2}])
    {'x': tensor([1, 2])}
    """
    return default_data_collator(features, "pt")


def numpy_default_data_collator(features: list[Any]) -> dict[str, Any]:
    """Join rows to numpy arrays; see `default_data_collator`.

    Args:
        features: The rows: dicts or objects.

    Returns:
        The batch, by column.

    >>> numpy_default_data_collator([{"x": 1}, {"x": 2}])
    {'x': array([1, 2])}
    """
    return default_data_collator(features, "np")


@dataclass
class DefaultDataCollator:
    """`default_data_collator` as an object that stores the kind of tensors to make.

    Args:
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

    >>> DefaultDataCollator(return_tensors="np")([{"x": 1}])
    {'x': array([1])}
    """

    return_tensors: str = "pt"

    def __call__(self, features: list[Any], return_tensors: str | None = None) -> dict[str, Any]:
        return default_data_collator(features, return_tensors or self.return_tensors)


def _to_mappings(features: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
    """Return the rows as mappings; the attributes of objects are their columns."""
    if len(features) == 0:
        raise build_no_rows_error()
    if isinstance(features[0], (dict, Mapping)):
        return features
    if isinstance(features[0], torch.Tensor):  # its attributes are not columns
        raise _build_not_mappings_error(features)
    try:
        return [vars(row) for row in features]
    except TypeError as error:
        raise _build_not_mappings_error(features) from error


# torch ---------------------------------------------------------------------------------------------------------------


def _join_torch_column(values: list[Any]) -> torch.Tensor:
    """Return one tensor of the values of one column."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(values)
    if isinstance(first, np.ndarray):
        return torch.from_numpy(np.stack(values))
    return _join_torch_numbers(values)


def _join_torch_numbers(values: list[Any]) -> torch.Tensor:
    """Return a tensor of numbers or nested lists. numpy reads Python lists several times faster than torch does."""
    leaf = values[0]
    while isinstance(leaf, (list, tuple)) and leaf:
        leaf = leaf[0]
    if type(leaf) in (int, float, bool):
        array = np.array(values)
        kind = array.dtype.kind
        if kind == "i":
            return torch.from_numpy(array).long()
        if kind == "f":
            return torch.from_numpy(array).to(torch.get_default_dtype())
        if kind == "b":
            return torch.from_numpy(array)
    return torch.tensor(values)


def _join_torch_label(values: list[Any]) -> torch.Tensor:
    """Return the tensor of `label`: a whole number is a class (int64), anything else a target (float32)."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        dtype = torch.float32 if first.is_floating_point() else torch.int64
        return torch.stack(values).reshape(len(values)).to(dtype)
    dtype = torch.int64 if _is_whole(first) else torch.float32
    return torch.from_numpy(np.array(values)).to(dtype)


def _join_torch_label_ids(values: list[Any]) -> torch.Tensor:
    """Return the tensor of `label_ids`, one label per token.

    Tensors keep their type; for other sequences the first label decides.
    """
    if isinstance(values[0], torch.Tensor):
        return torch.stack(values)
    dtype = torch.int64 if _is_whole(_find_first(values[0])) else torch.float32
    return torch.from_numpy(np.array(values)).to(dtype)


# numpy ---------------------------------------------------------------------------------------------------------------


def _join_numpy_column(values: list[Any]) -> np.ndarray:
    if isinstance(values[0], (np.ndarray, torch.Tensor)):
        return np.stack([np.asarray(value) for value in values])
    return np.array(values)


def _join_numpy_label(values: list[Any]) -> np.ndarray:
    return np.array(values, dtype=np.int64 if _is_whole(values[0]) else np.float32)


def _join_numpy_label_ids(values: list[Any]) -> np.ndarray:
    if isinstance(values[0], np.ndarray):
        return np.stack(values)
    return np.array(values, dtype=np.int64 if _is_whole(_find_first(values[0])) else np.float32)


def _is_whole(label: Any) -> bool:
    """Return whether a label is a whole number, also inside an array without dimensions."""
    return isinstance(label[()] if isinstance(label, np.ndarray) and label.ndim == 0 else label, (int, np.integer))


def _find_first(labels: Any) -> Any:
    """Return the first of a sequence of labels; a single label is returned as it is."""
    return labels[0] if isinstance(labels, (Sequence, np.ndarray)) and len(labels) > 0 else labels


@dataclass(frozen=True)
class _Joiner:
    """The functions that join the values of a column to one tensor or array."""

    label: Callable[[list[Any]], Any]
    label_ids: Callable[[list[Any]], Any]
    column: Callable[[list[Any]], Any]


_JOINERS = {
    "pt": _Joiner(_join_torch_label, _join_torch_label_ids, _join_torch_column),
    "np": _Joiner(_join_numpy_label, _join_numpy_label_ids, _join_numpy_column),
}


# Errors --------------------------------------------------------------------------------------------------------------


def _build_not_mappings_error(features: Sequence[Any]) -> RowsError:
    return build_rows_error(lambda rows: build_not_a_row_error(features[0], 0, rows))


def _build_column_error(found: Sequence[Any], name: str, error: Exception) -> RowsError:
    """Return why the column `name` of these rows does not make one tensor."""

    def build_error(rows: RowNames) -> RowsError:
        known = find_non_row(found, rows)
        known = known or find_column_fault(found, rows, [name], collator="default_data_collator")
        return known or WrongValueError(
            what=f"column {name!r} of the {rows.source} does not make one tensor",
            why=f"its values are of type {_format_types(found, name)}: {error}",
            fix=f"leave {name!r} out (remove_unused_columns, remove_columns), or pass a data_collator that knows it",
        )

    return build_rows_error(build_error)


def _format_types(found: Sequence[Mapping[str, Any]], name: str) -> str:
    return " and ".join(dict.fromkeys(type(row[name]).__name__ for row in found))
