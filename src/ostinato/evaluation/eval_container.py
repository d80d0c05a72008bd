"""The rows of an evaluation loop outside of a trainer, under transformers' name."""

from __future__ import annotations

from typing import Any

from ..core.nested_data import nested_concat, nested_numpify


class EvalLoopContainer:
    """Collect the tensors of batches, and give them back as arrays.

    Args:
        do_nested_concat: Whether batches are joined; if not, they stay a list.
        padding_index: The value that fills up a ragged second dimension.

    >>> import torch
    >>> container = EvalLoopContainer()
    >>> container.add(torch.tensor([1, 2]))
    >>> container.add(torch.tensor([3]))
    >>> container.get_arrays()
    array([1, 2, 3])
    """

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100) -> None:
        self.do_nested_concat = do_nested_concat
        self.padding_index = padding_index
        self.tensors: Any = None
        self.arrays: Any = None

    def add(self, tensors: Any) -> None:
        """Add the tensors of a batch.

        Args:
            tensors: A tree of tensors, of the same structure for every batch.
        """
        self.tensors = self._join(self.tensors, tensors if self.do_nested_concat else [tensors])

    def to_cpu_and_numpy(self) -> None:
        """Convert the tensors of all batches since the last call to arrays."""
        if self.tensors is not None:
            self.arrays = self._join(self.arrays, nested_numpify(self.tensors))
            self.tensors = None

    def get_arrays(self) -> Any:
        """Return all batches as arrays; None if there were none."""
        self.to_cpu_and_numpy()
        return self.arrays

    def _join(self, before: Any, after: Any) -> Any:
        if before is None:
            return after
        if not self.do_nested_concat:
            return [*before, *after]
        return nested_concat(before, after, padding_index=self.padding_index)
