"""Operations on nested tuples, lists and dicts of tensors, and on the lengths of data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `function` to every leaf; containers keep their type (named tuples and `ModelOutput`s too)."""
    if isinstance(tree, Mapping):
        return type(tree)({key: tree_map(function, value) for key, value in tree.items()})  # type: ignore[call-arg]
    if _is_named_tuple(tree):
        return type(tree)(*(tree_map(function, value) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(tree_map(function, value) for value in tree)
    return function(tree)


def _is_named_tuple(tree: Any) -> bool:
    return isinstance(tree, tuple) and getattr(tree, "_fields", None) is not None


def detach(tree: Any) -> Any:
    """Return the same tree, detached from the graph."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, tree)


def numpify(tree: Any) -> Any:
    """Convert tensors to arrays; bfloat16, which numpy does not have, becomes float32."""

    def to_array(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        leaf = leaf.detach().cpu()
        return (leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy()

    return tree_map(to_array, tree)


# The number in a tensor with one element. On the CPU it takes half the time of `item`, which is an operation of torch.
read: Callable[[torch.Tensor], Any] = torch.Tensor.tolist


def make_plain(numbers: dict[str, Any]) -> None:
    """Convert tensors with one number, and numbers of numpy, to plain ones.

    >>> logs = {"loss": torch.tensor(0.5), "rows": np.int64(3), "words": "many"}
    >>> make_plain(logs)
    >>> logs
    {'loss': 0.5, 'rows': 3, 'words': 'many'}
    """
    for name, value in numbers.items():
        if type(value) is float or type(value) is int:  # nearly always
            continue
        is_one = isinstance(value, (torch.Tensor, np.ndarray)) and all(size == 1 for size in value.shape)
        if is_one or isinstance(value, np.generic):
            numbers[name] = value.item()


def first_dimension(tree: Any) -> int | None:
    """Return how many rows a batch has: the length of its first tensor or array. None if there is none."""
    if isinstance(tree, (torch.Tensor, np.ndarray)):
        return tree.shape[0] if len(tree.shape) > 0 else None
    children = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ()
    for child in children:
        rows = first_dimension(child)
        if rows is not None:
            return rows
    return None


def has_no_rows(batch: Any) -> bool:
    """Return whether a batch is an empty dict, or nothing in it has rows.

    >>> has_no_rows({}), has_no_rows({"x": torch.empty(0, 3)}), has_no_rows({"x": torch.empty(0), "y": torch.ones(2)})
    (True, True, False)
    """
    if not isinstance(batch, Mapping):
        return first_dimension(batch) == 0
    for column in batch.values():
        if isinstance(column, torch.Tensor) and column.shape[:1] > (0,):  # nearly always
            return False
    rows = list(map(first_dimension, batch.values()))
    return not any(rows) and (not batch or 0 in rows)


def concatenate(parts: list[Any], *, padding_index: float = -100) -> Any:
    """Join trees of the same structure row by row; a ragged second dimension is padded to the widest part."""
    first = parts[0]
    if isinstance(first, Mapping):
        kind: Any = type(first)
        return kind({key: concatenate([part[key] for part in parts], padding_index=padding_index) for key in first})
    if isinstance(first, (list, tuple)):
        columns = (concatenate(list(column), padding_index=padding_index) for column in zip(*parts, strict=True))
        return type(first)(*columns) if _is_named_tuple(first) else type(first)(columns)
    if isinstance(first, torch.Tensor):
        return _concatenate_tensors(parts, padding_index)
    if isinstance(first, np.ndarray):
        return _concatenate_arrays(parts, padding_index)
    raise TypeError(f"cannot concatenate {type(first).__name__}: only tensors, arrays and containers of them")


def _concatenate_tensors(parts: list[torch.Tensor], padding_index: float) -> torch.Tensor:
    parts = [torch.atleast_1d(part) for part in parts]
    if parts[0].ndim == 1 or all(part.shape[1] == parts[0].shape[1] for part in parts):
        return torch.cat(parts)
    shape = (sum(len(part) for part in parts), max(part.shape[1] for part in parts), *parts[0].shape[2:])
    joined = parts[0].new_full(shape, padding_index)
    row = 0
    for part in parts:
        joined[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    return joined


def _concatenate_arrays(parts: list[np.ndarray], padding_index: float) -> np.ndarray:
    parts = [np.atleast_1d(part) for part in parts]
    if parts[0].ndim == 1 or all(part.shape[1] == parts[0].shape[1] for part in parts):
        return np.concatenate(parts)
    shape = (sum(len(part) for part in parts), max(part.shape[1] for part in parts), *parts[0].shape[2:])
    joined = np.full(shape, padding_index, dtype=parts[0].dtype)
    row = 0
    for part in parts:
        joined[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    return joined


def truncate(tree: Any, rows: int) -> Any:
    """Return the first `rows` rows of every leaf that has rows; single numbers and other values stay as they are."""
    return tree_map(lambda leaf: leaf if first_dimension(leaf) is None else leaf[:rows], tree)


def truncate_rows(tree: Any, rows: int) -> Any:
    """Return the first `rows` rows of a tree in which a list has one entry for each row.

    >>> truncate_rows({"boxes": [torch.ones(3, 4), torch.ones(1, 4)], "sizes": torch.ones(2, 2)}, 1)["boxes"][0].shape
    torch.Size([3, 4])
    """
    if isinstance(tree, list):
        return tree[:rows]
    return _map_parts(lambda parts: truncate_rows(parts[0], rows), [tree]) or truncate(tree, rows)


def join_rows(parts: list[Any], *, padding_index: float = -100) -> Any:
    """Join trees of the same structure row by row, where a list has one entry for each row, which may be anything.

    >>> join_rows([(torch.ones(2), ["a", "b"]), (torch.ones(1), ["c"])])
    (tensor([1., 1., 1.]), ['a', 'b', 'c'])
    """
    first = parts[0]
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if isinstance(first, (torch.Tensor, np.ndarray)):
        return concatenate(parts, padding_index=padding_index)
    return _map_parts(partial(join_rows, padding_index=padding_index), parts) or first


def move_to_host(tree: Any) -> Any:
    """Return the same tree with its tensors in the host's memory."""
    return tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf, tree)


def _map_parts(function: Callable[[list[Any]], Any], trees: list[Any]) -> Any:
    """Apply a function to the parts that trees have in the same place; None where they are no dicts or tuples."""
    first: Any = trees[0]
    if isinstance(first, Mapping):
        kind: Any = type(first)
        return kind({key: function([tree[key] for tree in trees]) for key in first})
    if isinstance(first, tuple):
        columns = (function(list(column)) for column in zip(*trees, strict=True))
        return type(first)(*columns) if _is_named_tuple(first) else type(first)(columns)
    return None


def has_length(dataset: Any) -> bool:
    """Return whether `len(dataset)` is a number.

    Args:
        dataset: Any object.

    Returns:
        True if it has a length.

    >>> has_length([1, 2]), has_length(iter([1, 2]))
    (True, False)
    """
    try:
        len(dataset)
    except (TypeError, AttributeError, NotImplementedError):
        return False
    return True
