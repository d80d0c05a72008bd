"""Keep rows of similar length together, without reading the data first.

The order is the random one of `EpochSampler`, sorted in pieces: a window of some hundred batches is sorted by length
when it is reached, divided into batches, and the batches are shuffled. Before the first batch one window of lengths is
read, not the data set; and there is nearly as little padding as if all rows had been sorted.

For a million rows in batches of 32 that is 0.1 % more tokens than sorting everything would give where lengths are
uniform, 0.3 % where they are log-normal and end at 512, 3 % where they do not end, and 4 % for a Pareto tail (1.5).
Unsorted it would be 100 to 700 % more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...core.errors import ConfigError
from ..row_lengths import Numbers, RowLengths
from .base import EpochOrder

__all__ = ["WINDOW", "RowLengths", "WindowedLengthSampler"]

WINDOW = 1024  # batches
FIRST_WINDOW = 32


class WindowedLengthSampler(EpochOrder):
    """A random order in which each `batch_size` rows have similar lengths: a function of seed and epoch.

    `batch_size` is the rows of one optimizer step over all processes; in a batch the longest row comes first. `window`
    is the number of batches that are sorted at a time; by default 32, then 64, and so on up to 1024. Each row comes
    once. If the last batch is not full, its rows may be of any length, so that dropping it does not always drop the
    short ones.

    >>> sampler = WindowedLengthSampler([5, 1, 4, 2], batch_size=2, seed=0, window=2)
    >>> sorted(sampler)
    [0, 1, 2, 3]
    >>> [sorted(list(sampler)[:2]) in ([0, 2], [1, 3]) for epoch in range(3) if sampler.set_epoch(epoch) is None]
    [True, True, True]
    """

    def __init__(
        self,
        lengths: RowLengths | Sequence[int] | npt.NDArray[Any] | torch.Tensor,
        batch_size: int,
        *,
        seed: int | None = None,
        window: int | None = None,
    ) -> None:
        check_window(window)
        self.lengths = lengths if isinstance(lengths, RowLengths) else RowLengths.of(lengths)
        self.batch_size = batch_size
        self.seed = torch.initial_seed() if seed is None else seed
        self.window = window
        batches = -(-len(self.lengths) // batch_size)
        self._bounds = [bound * batch_size for bound in compute_window_bounds(batches, window)]

    def __len__(self) -> int:
        return len(self.lengths)

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """Return the rows of an epoch from position `start` on. Lengths before its window are not read.

        >>> sampler = WindowedLengthSampler([5, 1, 4, 2, 3, 6], batch_size=2, seed=0, window=1)
        >>> list(sampler.order(7, start=3)) == list(sampler.order(7))[3:]
        True
        """
        return chain.from_iterable(self._iterate_windows(epoch, start))

    @property
    def group(self) -> int | None:
        return self.batch_size

    def regroup(self, group: int) -> WindowedLengthSampler:
        other = WindowedLengthSampler(self.lengths, group, seed=self.seed, window=self.window)
        other.set_epoch(self.epoch)
        return other

    def _iterate_windows(self, epoch: int, start: int) -> Iterator[list[int]]:
        if start >= len(self):
            return
        rows = permute_rows(len(self), self.seed, epoch)
        first = bisect_right(self._bounds, start) - 1
        skip = start - self._bounds[first]
        for number in range(first, len(self._bounds) - 1):
            window = rows[self._bounds[number] : self._bounds[number + 1]]
            generator = build_window_generator(self.seed, epoch, number)
            yield group_rows(window, self.lengths.read_array(window), self.batch_size, generator)[skip:].tolist()
            skip = 0


# Parts of every order by windows -------------------------------------------------------------------------------------


def permute_rows(num_rows: int, seed: int, epoch: int) -> Numbers:
    """Return the order of `EpochSampler`."""
    generator = torch.Generator().manual_seed((seed + epoch) % 2**64)
    return torch.randperm(num_rows, generator=generator).numpy()


def build_window_generator(seed: int, epoch: int, number: int) -> torch.Generator:
    """Return the random stream of one window, which does not depend on earlier reads."""
    mixed = np.random.SeedSequence([seed % 2**64, epoch, number]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))


def compute_window_bounds(count: int, window: int | None = None) -> list[int]:
    """Return the bounds of the windows of `count` batches.

    They are about equally large, at most `window` batches, so that the last is not much smaller. By default the first
    is small, so that training starts at once, and later ones double up to the full size. There are at least two:
    sorted in one piece, the same rows would share a batch in every epoch.

    >>> compute_window_bounds(10, 4), compute_window_bounds(10), compute_window_bounds(1000)
    ([0, 3, 6, 10], [0, 5, 10], [0, 32, 96, 224, 480, 1000])
    """
    bounds = [0]
    if window is None:
        size = min(FIRST_WINDOW, count // 2)
        while size < WINDOW and 0 < 2 * size <= count - bounds[-1]:
            bounds.append(bounds[-1] + size)
            size *= 2
    start, rest = bounds[-1], count - bounds[-1]
    windows = -(-rest // (window or WINDOW))
    return bounds + [start + rest * number // windows for number in range(1, windows + 1)]


def group_rows(rows: Numbers, lengths: Numbers, group: int, generator: torch.Generator) -> Numbers:
    """Return the rows of a window, sorted from long to short, divided into groups, and the groups shuffled."""
    rows = sort_by_length(rows, lengths)
    whole, rest = divmod(len(rows), group)
    # Only the epoch's last window has a rest. It comes last, or later batches would be divided at wrong positions.
    at = group * int(torch.randint(whole + 1, (), generator=generator)) if rest else len(rows)
    last = rows[at : at + rest]
    groups = np.delete(rows, slice(at, at + rest)).reshape(whole, group)
    return np.concatenate([groups[torch.randperm(whole, generator=generator).numpy()].ravel(), last])


def sort_by_length(rows: Numbers, lengths: Numbers) -> Numbers:
    """Return the rows sorted from long to short; rows of equal length keep their order."""
    return rows[np.argsort(-lengths, kind="stable")]


def check_window(window: int | None) -> None:
    """Raise unless a window holds at least one batch."""
    if window is not None and window < 1:
        raise ConfigError(
            what=f"window={window} is not a number of batches",
            why="a window holds at least one batch, whose rows are sorted by length",
            fix=f"set window={WINDOW}, or leave it out",
        )
