"""The named losses that make up the loss of an optimizer step, for the log."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..core.logged_numbers import NumberOrParts
from ..core.tree import read


class NamedLosses:
    """The named losses of an update's micro-batches, each as its share of the step."""

    def __init__(self) -> None:
        self.held: list[dict[str, NumberOrParts]] = []  # one entry for each micro-batch

    def hold(self, shares: Mapping[str, Tensor]) -> None:
        """Keep the losses of a micro-batch, without their graph, and without waiting for a device."""
        self.held.append({name: read(share) if share.is_cpu else share.detach() for name, share in shares.items()})

    def take(self) -> dict[str, NumberOrParts] | None:
        """Return the sums of the held losses by name, which count as one step, and forget them."""
        if not self.held:
            return None
        total, *rest = self.held
        for more in rest:
            for name, share in more.items():
                total[name] = _add(total[name], share) if name in total else share
        self.held.clear()
        return total


def _add(total: NumberOrParts, share: NumberOrParts) -> NumberOrParts:
    """Return a sum. Tensors are added when they are read: in float64, which not every device has."""
    if isinstance(total, (Tensor, tuple)) or isinstance(share, (Tensor, tuple)):
        return (*_list_parts(total), *_list_parts(share))
    return total + share


def _list_parts(number: NumberOrParts) -> tuple[Tensor, ...]:
    if isinstance(number, tuple):
        return number
    return (number if isinstance(number, Tensor) else torch.tensor(number, dtype=torch.float64),)
