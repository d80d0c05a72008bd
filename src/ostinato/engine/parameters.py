"""The parameters of the model that is trained, and their gradients."""

from __future__ import annotations

from operator import is_not
from typing import Any

from torch import Tensor, nn


class ModelParameters:
    """Remembers a model's parameters. Walking over its modules twice a step would cost more than clipping does."""

    def __init__(self) -> None:
        self.all: list[nn.Parameter] = []
        self._seen: list[Any] = []  # what was found in the model when they were noted

    def refresh(self, model: nn.Module) -> None:
        """Note the model's parameters, where any of them is another than before.

        Done at the start of an epoch and after every report, so that a module added by a callback is soon known.
        """
        present = _list_slots(model)
        if len(present) != len(self._seen) or any(map(is_not, present, self._seen)):
            self.all, self._seen = list(model.parameters()), present

    def gradients(self) -> list[Tensor]:
        """Return the gradients there are."""
        return [parameter.grad for parameter in self.all if parameter.grad is not None]

    def clear_gradients(self) -> None:
        """Drop all gradients."""
        for parameter in self.all:
            parameter.grad = None


def _list_slots(model: nn.Module) -> list[Any]:
    """Return what its modules have in the places of parameters. `parameters()` takes many times as long."""
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
