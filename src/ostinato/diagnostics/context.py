"""The context of a failure: the batch, where it came from, and the frames of the traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.phrases import MAX_LISTED, format_items
from ..core.tracebacks import list_frames
from ..data.columns import unwrap_model


@dataclass(frozen=True)
class FailureContext:
    """A batch as the loader returned it, on the host, and what is known about its origin."""

    model: nn.Module
    batch: Any
    data: str = "training set"
    label_names: tuple[str, ...] = ()
    rows: Callable[[], list[int] | None] = lambda: None  # the data-set indices of the batch, if they are known
    left_out: Callable[[], list[str]] = list  # columns of the data that do not reach the model
    own_loss: bool = True  # the model computes its loss itself
    loss_func: Callable[..., Any] | None = None
    drops_columns: bool = True  # remove_unused_columns
    gradient_checkpointing: bool = False
    dataset: Any = None
    collator: Any = None

    @property
    def inner(self) -> Any:
        """The model without wrappers."""
        return unwrap_model(self.model)

    @property
    def name(self) -> str:
        return type(self.inner).__name__

    @property
    def config(self) -> Any:
        return getattr(self.inner, "config", None)

    @property
    def columns(self) -> dict[str, Any]:
        return dict(self.batch) if isinstance(self.batch, Mapping) else {}

    @property
    def wanted_labels(self) -> list[str]:
        """The names under which the model looks for labels."""
        return list(self.label_names) or ["labels"]

    def list_parameters(self) -> list[str]:
        """Return the names of forward's parameters."""
        return [one.name for one in _list_parameters(self.inner) if one.kind is not one.VAR_KEYWORD]

    def takes(self, name: str) -> bool:
        return any(one.name == name or one.kind is one.VAR_KEYWORD for one in _list_parameters(self.inner))

    def describe_row(self, index: int) -> str:
        """Return where the row at `index` of the batch came from, as in `row 17 of the training set`."""
        return self.describe_rows([index])

    def describe_rows(self, indices: Iterable[int]) -> str:
        """Return where rows of the batch came from, as in `rows 17, 4 of the training set`."""
        chosen = list(indices)
        known = self.rows()
        if known is not None and chosen and max(chosen) < len(known):
            return f"{format_items('row', [known[index] for index in chosen])} of the {self.data}"
        return f"{format_items('row', chosen)} of the batch"


def _list_parameters(model: Any) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one for one in found if one.kind is not one.VAR_POSITIONAL]


def describe_tree(tree: Any) -> str:
    """Return the shapes and types in a batch or a prediction as text.

    >>> describe_tree({"x": torch.ones(4, 2), "n": 3, "names": ["a", "b"]})
    'x (4, 2) float32, n int, names list'
    >>> describe_tree((np.ones(3), None))
    'a tuple of (3,) float64, None'
    """
    if isinstance(tree, Mapping):
        return ", ".join(f"{name} {describe_tree(value)}" for name, value in tree.items())
    if isinstance(tree, (Tensor, np.ndarray)):
        return f"{tuple(tree.shape)} {format_dtype(tree)}"
    if isinstance(tree, (list, tuple)) and any(isinstance(one, (Tensor, np.ndarray, tuple)) for one in tree):
        parts = [describe_tree(one) for one in tree[:MAX_LISTED]]
        return f"a {type(tree).__name__} of {', '.join(parts)}{', …' if len(tree) > MAX_LISTED else ''}"
    return "None" if tree is None else type(tree).__name__


def format_dtype(array: Any) -> str:
    """Return the dtype of a tensor or an array, as in `float32`."""
    return str(array.dtype).removeprefix("torch.")


def is_integer(column: Any) -> bool:
    return isinstance(column, Tensor) and not column.is_floating_point() and column.dtype != torch.bool


def format_first_value(context: FailureContext, name: str) -> str:
    """Return what the first row of the batch has in a column."""
    value = context.columns[name][0]
    return str(value.tolist()) if value.numel() <= 8 else f"{format_dtype(value)} values"


def find_column(values: Any, columns: Mapping[str, Any]) -> str | None:
    """Return the name of the column with these numbers, reshaped or converted."""
    if not isinstance(values, Tensor):
        return None
    for name, column in columns.items():
        if column is values:
            return name
    for name, column in columns.items():
        if isinstance(column, Tensor) and column.numel() == values.numel() > 0 and _has_same_numbers(column, values):
            return name
    return None


def _has_same_numbers(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.detach().flatten().double().cpu(), other.detach().flatten().double().cpu())


def _find_locals(error: Exception, file: str, function: str) -> dict[str, Any]:
    """Return the variables of the innermost frame of a function; empty if it is not among the frames."""
    for entry in reversed(list_frames(error)):
        code = entry.tb_frame.f_code
        if code.co_name == function and code.co_filename.replace("\\", "/").endswith(file):
            return entry.tb_frame.f_locals
    return {}


def find_functional_variables(error: Exception, function: str) -> dict[str, Any]:
    return _find_locals(error, "torch/nn/functional.py", function)


def find_failing_layer(error: Exception, context: FailureContext) -> tuple[str, nn.Module, Any] | None:
    """Return the name of the torch layer that failed, the layer, and its input."""
    for entry in reversed(list_frames(error)):
        values = entry.tb_frame.f_locals
        owner, given = values.get("self"), values.get("input")
        if entry.tb_frame.f_code.co_name == "forward" and isinstance(owner, nn.Module) and isinstance(given, Tensor):
            name = next((name for name, module in context.model.named_modules() if module is owner), None)
            return (name, owner, given) if name else None
    return None


def was_entered(error: BaseException, function: Callable[..., Any]) -> bool:
    """Return whether the function was running when the error was raised; False if its call itself failed."""
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__  # a callable object
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is None or any(entry.tb_frame.f_code is code for entry in list_frames(error))
