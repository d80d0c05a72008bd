"""The number of floating-point operations of a run, for the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..core.protocols import Batch


@dataclass
class FlopCounter:
    """Add up `floating_point_ops`.

    Where the number depends on the input's shape alone, it is computed once per shape: transformers' models walk over
    all their parameters to compute it.
    """

    count: Callable[[Batch], float] | None  # None: the model does not state it
    by_shape_of: str | None  # the input whose shape alone decides the number
    known: dict[Any, float] = field(default_factory=dict)
    total: float = 0.0  # since the last `take()`

    def add(self, batch: Batch) -> None:
        if self.count is None:
            return
        shape = getattr(_get_input(batch, self.by_shape_of), "shape", None) if self.by_shape_of else None
        if shape is None:
            self.total += float(self.count(batch))
            return
        if shape not in self.known:
            self.known[shape] = float(self.count(batch))
        self.total += self.known[shape]

    def count_per_token(self, batch: Batch, main_input: str) -> float | None:
        """Return the operations per token of a batch, padding included; None if the model does not state them."""
        tokens = _get_input(batch, main_input)
        if self.count is None or not isinstance(tokens, Tensor) or tokens.numel() == 0:
            return None
        operations = self.known.get(tokens.shape) or float(self.count(batch))
        return operations / tokens.numel() or None

    def take(self) -> float:
        """Return the count since the last call, and reset it."""
        total, self.total = self.total, 0.0
        return total


def can_count_operations(model: Any) -> bool:
    """Return whether the operations of the model can be counted."""
    return callable(getattr(model, "floating_point_ops", None)) or find_deciding_input(model) is not None


def find_deciding_input(model: Any) -> str | None:
    """Return the input whose shape alone decides the operations; transformers' models name it.

    None means that the operations are computed for each batch.
    """
    if callable(getattr(model, "floating_point_ops", None)) or not callable(getattr(model, "num_parameters", None)):
        return None
    return getattr(model, "main_input_name", None)


def count_operations(model: Any, inputs: Batch) -> int:
    """Return the operations that the model states, or else six per parameter and token.

    Six covers forward and backward together (Kaplan et al., 2020).
    """
    stated = getattr(model, "floating_point_ops", None)
    if callable(stated):
        return int(stated(inputs))  # type: ignore[call-overload]
    main_input = _get_input(inputs, find_deciding_input(model) or "")
    if main_input is None:
        return 0
    return 6 * main_input.numel() * model.num_parameters(exclude_embeddings=True)


def _get_input(batch: Any, name: str) -> Any:
    """Return one input of a batch; None if there is none, as in batches that a subclass turns into inputs itself."""
    return batch.get(name) if isinstance(batch, Mapping) else None
