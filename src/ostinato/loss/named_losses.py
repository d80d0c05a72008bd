"""The named losses that make up the loss of an optimizer step, for the log."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..core.logged_numbers import Number
from ..core.tree import read


class NamedLosses:
    """The named losses of an update's micro-batches, each as its share of the step."""

    def __init__(self) -> None:
        self.held: list[dict[str, Number]] = []  # one entry for each micro-batch

    def hold(self, shares: Mapping[str, Tensor]) -> None:
        """Keep the losses of a micro-batch, without their graph, and without waiting for a device."""
        self.held.append({name: read(share) if share.is_cpu else share.detach() for name, share in shares.items()})

    def take(self) -> dict[str, Number] | None:
        """Return the sums of the held losses by name, which count as one step, and forget them."""
        if not self.held:
            return None
        total, *rest = self.held
        for more in rest:
            for name, share in more.items():
                total[name] = _as_double(share) + total[name] if name in total else share
        self.held.clear()
        return total

    def reject(self) -> None:
        """Forget the held losses: the step they belong to was not taken."""
        self.held.clear()


def _as_double(number: Number) -> Number:
    return number.double() if isinstance(number, Tensor) else number
