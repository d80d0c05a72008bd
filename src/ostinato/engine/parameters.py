"""The parameters of the model that is trained, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_not
from typing import Any

from torch import Tensor, nn


class ModelParameters:
    """A list of a model's parameters. Walking over the modules twice per step would cost more than clipping does."""

    def __init__(self) -> None:
        self.all: list[nn.Parameter] = []
        self._seen: list[Any] = []  # what the model held when they were listed

    def refresh(self, model: nn.Module) -> None:
        """List the model's parameters again if any of them was replaced.

        This happens at the start of an epoch and after every report, so that a module added by a callback is soon
        included.
        """
        present = _list_slots(model)
        if len(present) != len(self._seen) or any(map(is_not, present, self._seen)):
            self.all, self._seen = list(model.parameters()), present

    def list_with_gradients(self) -> list[nn.Parameter]:
        """Return the parameters whose gradients are present."""
        return [parameter for parameter in self.all if parameter.grad is not None]

    def list_gradients(self) -> list[Tensor]:
        """Return the gradients that are present."""
        return [parameter.grad for parameter in self.all if parameter.grad is not None]

    def clear_gradients(self) -> None:
        """Drop all gradients."""
        for parameter in self.all:
            parameter.grad = None


class SteppedParameters:
    """The parameters for which an optimizer has taken a step: it keeps its averages of them."""

    def __init__(self) -> None:
        self._optimizer: Any = None
        self._known: dict[int, nn.Parameter] = {}

    def add(self, optimizer: Any, parameters: Iterable[nn.Parameter]) -> None:
        """Note a step of an optimizer."""
        if optimizer is not self._optimizer:
            self._optimizer, self._known = optimizer, {}
        self._known.update((id(parameter), parameter) for parameter in parameters)

    def has_all(self, optimizer: Any, parameters: Iterable[nn.Parameter]) -> bool:
        """Return whether the optimizer has taken a step for each of these."""
        return optimizer is self._optimizer and self._known.keys() >= set(map(id, parameters))


def _list_slots(model: nn.Module) -> list[Any]:
    """Return the entries of all modules' parameter slots. `parameters()` takes many times as long."""
    found: list[Any] = []
    seen = {model}  # modules may be shared
    waiting = [model]
    while waiting:
        module = waiting.pop()
        found += module._parameters.values()
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)
    return found
