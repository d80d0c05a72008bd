"""How much arithmetic a run has done, for the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..core.protocols import Batch


@dataclass
class FlopCounter:
    """Adds up `floating_point_ops`. Where that is a function of the input's shape alone it is asked once per shape:

    transformers' models walk over all their parameters to answer.
    """

    count: Callable[[Batch], float] | None  # None: the model does not say
    by_shape_of: str | None  # the input on whose shape alone the answer depends
    known: dict[Any, float] = field(default_factory=dict)
    total: float = 0.0  # since somebody last took it

    def add(self, batch: Batch) -> None:
        if self.count is None:
            return
        shape = getattr(_input(batch, self.by_shape_of), "shape", None) if self.by_shape_of else None
        if shape is None:
            self.total += float(self.count(batch))
            return
        if shape not in self.known:
            self.known[shape] = float(self.count(batch))
        self.total += self.known[shape]

    def per_token(self, batch: Batch, main_input: str) -> float | None:
        """The operations for one of a batch's tokens, padding counted as one; None where the model does not say."""
        tokens = _input(batch, main_input)
        if self.count is None or not isinstance(tokens, Tensor) or tokens.numel() == 0:
            return None
        operations = self.known.get(tokens.shape) or float(self.count(batch))
        return operations / tokens.numel() or None

    def take(self) -> float:
        """What has been counted since the last time."""
        total, self.total = self.total, 0.0
        return total


def tells_operations(model: Any) -> bool:
    """Whether anything can be said about the model's arithmetic."""
    return callable(getattr(model, "floating_point_ops", None)) or input_that_decides(model) is not None


def input_that_decides(model: Any) -> str | None:
    """The input whose shape alone decides the operations: transformers' models name it. None: each batch is asked."""
    if callable(getattr(model, "floating_point_ops", None)) or not callable(getattr(model, "num_parameters", None)):
        return None
    return getattr(model, "main_input_name", None)


def operations(model: Any, inputs: Batch) -> int:
    """Six per parameter and token, forward and backward together (Kaplan et al., 2020), or what the model says."""
    stated = getattr(model, "floating_point_ops", None)
    if callable(stated):
        return int(stated(inputs))  # type: ignore[call-overload]
    main_input = _input(inputs, input_that_decides(model) or "")
    if main_input is None:
        return 0
    return 6 * main_input.numel() * model.num_parameters(exclude_embeddings=True)


def _input(batch: Any, name: str) -> Any:
    """One input of a batch; None if there is none, as in batches that a subclass makes into inputs itself."""
    return batch.get(name) if isinstance(batch, Mapping) else None
