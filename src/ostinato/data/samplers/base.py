"""An order of rows that is computed, not drawn: from the epoch's number and nothing that is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Sampler


class EpochOrder(Sampler[int]):
    """An order that can be computed for any epoch, from any place of it on.

    A subclass has `order` and `__len__`.
    """

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        return self.order(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """The rows of an epoch from place `start` on."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def repeats(self) -> bool:
        """Whether asking again gives the same."""
        return True

    @property
    def group(self) -> int | None:
        """How many rows it keeps together, where it goes by length: with another number it is another order."""
        return None

    def regrouped(self, group: int) -> EpochOrder:
        """The same with another number of rows kept together."""
        return self


def announce_epoch(part: Any, epoch: int) -> None:
    """Tell a sampler or data set which epoch it is in, if it wants to know."""
    set_epoch: Callable[[int], Any] | None = getattr(part, "set_epoch", None)
    if callable(set_epoch):
        set_epoch(epoch)
