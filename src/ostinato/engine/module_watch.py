"""`debug="underflow_overflow"`: find the module in which numbers stop being finite."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import NonFiniteError

_SHOWN = 20  # lines of the table


class NonFiniteModuleError(NonFiniteError, ValueError):
    """A module with weights, inputs or outputs that are not finite (transformers raises ValueError here)."""


@contextmanager
def watch_modules(model: nn.Module, describe_position: Callable[[], str]) -> Iterator[None]:
    """Raise inside the block as soon as a module has seen or computed a number that is not finite.

    Args:
        model: The model.
        describe_position: Returns the step and the batch, for the message.
    """
    watch = _Watch(describe_position)
    hooks = [
        module.register_forward_hook(partial(watch.inspect, name or "the model"))
        for name, module in model.named_modules()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class _Watch:
    describe_position: Callable[[], str]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_SHOWN))

    def inspect(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        """Record the range of everything floating in one call of a module; raise if a number is not finite."""
        title = f"{name} ({type(module).__name__})"
        for what, tensor in _list_tensors(module, inputs, output):
            low, high = _measure(tensor)
            self.lines.append(f"{low:>10.2e} {high:>10.2e}  {title}: {what}")
            if not torch.isfinite(tensor).all():
                raise NonFiniteModuleError(
                    what=f"{self.describe_position()}: {what} of {title} is not finite",
                    why="it is the first in the order of computation; smallest and largest absolute values of the "
                    "last calls:\n" + "\n".join(self.lines),
                    fix="look at the lines above the last one for numbers that grow; lower the learning rate, or "
                    "compute this module in float32",
                )


def _list_tensors(module: nn.Module, inputs: Any, output: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield what a call of a module computed with, in this order: its own weights, its inputs, its outputs."""
    found = [*module.named_parameters(recurse=False), *_flatten("input", inputs), *_flatten("output", output)]
    yield from ((name, one.detach()) for name, one in found if one.is_floating_point() and one.numel())


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _flatten(f"{name}[{key!r}]", one)
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _flatten(f"{name}[{number}]", one)


def _measure(tensor: Tensor) -> tuple[float, float]:
    sizes = tensor.abs()
    return float(sizes.min()), float(sizes.max())
