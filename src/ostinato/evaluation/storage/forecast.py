"""The forecast of what an evaluation will keep, made after its first batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .scratch_file import format_bytes

_NAMES = {"logits": "predictions"}  # the names that users know


@dataclass(frozen=True)
class KeptArray:
    """One array that will be kept."""

    name: str  # predictions, labels, inputs
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    def __str__(self) -> str:
        return f"{self.dtype} {' x '.join(map(str, self.shape))}"


@dataclass(frozen=True)
class Forecast:
    """The arrays that will be kept if all batches are like the first, and the memory that they may take."""

    arrays: tuple[KeptArray, ...]  # the largest first
    memory: int | None

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)

    @property
    def spills(self) -> bool:
        return self.memory is not None and self.bytes > self.memory

    def __str__(self) -> str:
        """
        >>> str(Forecast((KeptArray("predictions", "float32", (2000, 32, 8000), 2_048_000_000),), memory=2**26))
        'evaluation keeps 2.0 GB of predictions (float32 2000 x 32 x 8000)'
        """
        if not self.arrays:
            return "evaluation keeps nothing"
        names = " and ".join(dict.fromkeys(array.name for array in self.arrays if 4 * array.bytes >= self.bytes))
        return f"evaluation keeps {format_bytes(self.bytes)} of {names} ({self.arrays[0]})"


def forecast(parts: Mapping[str, Any], rows: int, total: int, memory: int | None) -> Forecast:
    """Return the forecast for `total` rows, given the parts of `rows` of them (arrays or tensors in containers)."""
    arrays = []
    for name, tree in parts.items():
        for leaf in leaves(tree):
            shape = (total, *leaf.shape[1:]) if leaf.ndim else (-(-total // max(rows, 1)),)
            size = int(np.prod(shape, dtype=np.int64)) * _measure_element(leaf)
            arrays.append(KeptArray(_NAMES.get(name, name), str(leaf.dtype).removeprefix("torch."), shape, size))
    return Forecast(tuple(sorted(arrays, key=lambda array: -array.bytes)), memory)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the arrays and tensors of nested containers."""
    if isinstance(tree, (np.ndarray, torch.Tensor)):
        yield tree
    elif isinstance(tree, (Mapping, list, tuple)):
        for child in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(child)


def _measure_element(leaf: Any) -> int:
    """Return the bytes of an element on the host, where bfloat16 becomes float32."""
    if isinstance(leaf, torch.Tensor):
        return 4 if leaf.dtype == torch.bfloat16 else leaf.element_size()
    return leaf.itemsize
