"""The number of rows of a data set or a loader, where it is known."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from ..core.errors import DataError
from ..core.tree import has_length

__all__ = ["count_examples", "has_length", "is_iterable", "require_length"]


def is_iterable(dataset: Any) -> bool:
    """Return whether rows can only be read one after another: there is no `dataset[i]`."""
    return isinstance(dataset, IterableDataset) or not callable(getattr(dataset, "__getitem__", None))


def require_length(dataset: Any, *, description: str = "data set", needed_for: str) -> int:
    """Return the number of rows, or raise an error that names what needs it.

    >>> require_length([1, 2, 3], needed_for="num_train_epochs")
    3
    """
    if not has_length(dataset):
        raise DataError(
            what=f"the {description} ({type(dataset).__name__}) has no length",
            why=f"{needed_for} needs the number of rows, and the rows of an iterable are not counted before they are "
            "read",
            fix="set max_steps, or give the data set a __len__, or use a map-style data set (__getitem__ and __len__)",
        )
    return len(dataset)


def count_examples(loader: Any, *, batch_size: int | None = None) -> int:
    """Return the number of rows that one pass over `loader` reads, over all processes.

    `batch_size` is for loaders that know their number of batches but not their number of rows.
    """
    dataset = getattr(loader, "dataset", None)
    dataset = getattr(dataset, "all_rows", dataset)  # a stream's share of one process: count the rows of all
    if dataset is not None and has_length(dataset):
        return len(dataset)
    if dataset is None and batch_size is not None and has_length(loader):
        return len(loader) * batch_size
    return require_length(dataset, needed_for="counting examples")
