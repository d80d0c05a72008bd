"""An order of rows that is computed from the epoch's number, without state and without draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Sampler


class EpochOrder(Sampler[int]):
    """An order that can be computed for any epoch, from any position in it.

    A subclass defines `order` and `__len__`.
    """

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        return self.order(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch.

        Args:
            epoch: The number of the epoch.
        """
        self.epoch = epoch

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """Return the rows of an epoch from position `start` on."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def repeats(self) -> bool:
        """Whether repeated calls give the same order."""
        return True

    @property
    def group(self) -> int | None:
        """The number of rows that an order by length keeps together; another number gives another order."""
        return None

    def regroup(self, group: int) -> EpochOrder:
        """Return the same order with another number of rows kept together."""
        return self


def announce_epoch(part: Any, epoch: int) -> None:
    """Call `set_epoch` of a sampler or data set, if it has one."""
    set_epoch: Callable[[int], Any] | None = getattr(part, "set_epoch", None)
    if callable(set_epoch):
        set_epoch(epoch)
