"""The functions on nested tensors and arrays that transformers offers, under its names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .tree import concatenate, detach, first_dimension, numpify, tree_map


def nested_detach(tensors: Any) -> Any:
    """Return the same tree, detached from the graph.

    Args:
        tensors: A tree of tensors.

    Returns:
        A tree of the same structure.

    >>> nested_detach([torch.ones(1, requires_grad=True)])
    [tensor([1.])]
    """
    return detach(tensors)


def nested_numpify(tensors: Any) -> Any:
    """Convert tensors to arrays; bfloat16, which numpy does not have, becomes float32.

    Args:
        tensors: A tree of tensors.

    Returns:
        A tree of the same structure.

    >>> nested_numpify({"logits": torch.tensor([1, 2])})
    {'logits': array([1, 2])}
    """
    return numpify(tensors)


def find_batch_size(tensors: Any) -> int | None:
    """Return the number of rows of the first tensor or array; None if there is none.

    Args:
        tensors: A tree of dicts, lists and tuples.

    Returns:
        The number of rows, or None.

    >>> find_batch_size({"input_ids": torch.zeros(4, 2)})
    4
    """
    return first_dimension(tensors)


def nested_concat(tensors: Any, new_tensors: Any, padding_index: float = -100) -> Any:
    """Join two trees of the same structure row by row; a ragged second dimension is padded.

    Args:
        tensors: The first tree of tensors or arrays.
        new_tensors: The tree whose rows follow.
        padding_index: The value that fills up shorter rows.

    Returns:
        A tree of the same structure.

    Raises:
        TypeError: One of them has a container, a tensor or an array where the other has something else.

    >>> nested_concat({"a": torch.tensor([[1, 2]])}, {"a": torch.tensor([[3]])})
    {'a': tensor([[   1,    2],
            [   3, -100]])}
    """
    if type(tensors) is not type(new_tensors):
        found = f"{type(tensors).__name__} and {type(new_tensors).__name__}"
        raise TypeError(f"only trees of the same structure can be joined, and these are of type {found}")
    return concatenate([tensors, new_tensors], padding_index=padding_index)


def nested_truncate(tensors: Any, limit: int) -> Any:
    """Return the first `limit` rows of every leaf.

    Args:
        tensors: A tree of tensors or arrays.
        limit: The number of rows to keep.

    Returns:
        A tree of the same structure.

    >>> nested_truncate([np.arange(4)], 2)
    [array([0, 1])]
    """
    return tree_map(lambda leaf: leaf[:limit], tensors)


def nested_new_like(arrays: Any, num_samples: int, padding_index: float = -100) -> Any:
    """Return arrays for `num_samples` rows, of the shapes and types of these, filled with `padding_index`.

    Args:
        arrays: A tree of arrays.
        num_samples: The number of rows.
        padding_index: The value of every element.

    Returns:
        A tree of the same structure.

    >>> nested_new_like([np.zeros((1, 2), dtype=np.int64)], 2)
    [array([[-100, -100],
           [-100, -100]])]
    """
    return tree_map(lambda leaf: np.full_like(leaf, padding_index, shape=(num_samples, *leaf.shape[1:])), arrays)


def denumpify_detensorize(metrics: Any) -> Any:
    """Return the same metrics with plain numbers in place of numpy's, and of tensors with one element.

    Args:
        metrics: A tree of dicts, lists and tuples.

    Returns:
        A tree of the same structure.

    >>> denumpify_detensorize({"f1": np.float32(0.5), "counts": [torch.tensor(3)]})
    {'f1': 0.5, 'counts': [3]}
    """
    return tree_map(_to_plain, metrics)


def _to_plain(value: Any) -> Any:
    is_number = isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1)
    return value.item() if is_number else value
