"""The random numbers that reading draws: a function of the seed, the epoch and the row, and of nothing else.

A row that is read at position 7 of epoch 2 always finds the same streams of Python, numpy and torch: in any process or
worker, after any other reads, in a run that was interrupted or not. And what reading draws is not taken from the
streams that training draws from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")

_MASK = 2**64 - 1
_COLLATOR_OFFSET = 1 << 62  # the collator's position: that of its first row, in a separate range
_FRESH_POSITION = 624  # the position of Python's and numpy's generators after seeding, before any draw

# Batches after which reading that drew nothing is assumed never to draw, and rows of each that are checked. Separate
# streams cost as much as a step of a tiny model.
WATCHED_READS = 8
WATCHED_ROWS = 8


def mix(number: int, other: int) -> int:
    """Return one 64-bit number mixed from two.

    >>> mix(1, 2) == mix(1, 2) != mix(2, 1)
    True
    """
    value = (number * 0x9E3779B97F4A7C15 + other + 0x632BE59BD9B4E019) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def seed_streams(key: int) -> None:
    """Seed the streams that rows and collators draw from."""
    random.seed(key)
    np.random.seed(key >> 32)
    torch.default_generator.manual_seed(key)


@dataclass(frozen=True)
class RowStreams:
    """The random streams of all rows of a run."""

    seed: int
    rank: int = 0  # distinguishes processes where positions do not

    def build_seeder(self, epoch: int, *, checks: int = 0) -> Seeder:
        """Return the seeder of an epoch."""
        return Seeder(mix(mix(self.seed, 0), epoch), checks)


class Seeder:
    """Seed the streams before each row of a batch; check, `checks` times, whether anything was drawn since."""

    def __init__(self, key: int, checks: int = 0) -> None:
        self.key, self.checks, self.drew = key, checks, False
        self._seeded: Tensor | None = None  # torch's stream right after seeding

    def seed_row(self, place: int) -> None:
        """Seed before the row at position `place` of the epoch is read, or the rows from there on together."""
        self.check_draws()
        seed_streams(mix(self.key, place))
        if self.checks > 0:
            self._seeded = torch.default_generator.get_state()

    def seed_collator(self, place: int) -> None:
        """Seed before the rows from position `place` on are joined."""
        self.checks += 1  # regardless of the number of rows
        self.seed_row(place | _COLLATOR_OFFSET)

    def check_draws(self) -> None:
        """Record whether something was drawn since the streams were last seeded."""
        seeded, self._seeded = self._seeded, None
        if seeded is None or self.drew or self.checks <= 0:
            return
        self.checks -= 1
        self.drew = (
            random.getstate()[1][-1] != _FRESH_POSITION
            or np.random.get_state(legacy=False)["state"]["pos"] != _FRESH_POSITION
            or not torch.equal(seeded, torch.default_generator.get_state())
        )


class BatchRequest(NamedTuple):
    """The rows of a batch, and its position in the epoch."""

    epoch: int
    place: int  # position of its first row
    indices: list[int]


@dataclass
class ReadIsolation:
    """Read without a change to the streams outside, as long as reading may draw from them."""

    streams: RowStreams
    reads: int = WATCHED_READS  # reads that are still watched
    draws: bool = False

    def begin_epoch(self) -> ReadIsolation:
        """Watch the first batch of each epoch, because a data set may start to draw in a later epoch."""
        self.reads = max(self.reads, 1)
        return self

    @property
    def is_needed(self) -> bool:
        return self.draws or self.reads > 0

    def read(self, epoch: int, read: Callable[[Seeder], T]) -> T:
        """Return the result of `read`, called with the streams of an epoch."""
        seeder = self.streams.build_seeder(epoch, checks=0 if self.draws else WATCHED_ROWS)
        outside = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
        try:
            return read(seeder)
        finally:
            seeder.check_draws()
            self.reads -= 1
            self.draws = self.draws or seeder.drew
            random.setstate(outside[0])
            np.random.set_state(outside[1])
            torch.default_generator.set_state(outside[2])


class BatchRequests:
    """The batches of a sampler with their positions, for readers in other processes."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[BatchRequest]:
        epoch, find_position = self.loader.epoch, self.loader.build_position_finder()
        for number, indices in enumerate(self.loader.batch_sampler):
            yield BatchRequest(epoch, find_position(number), indices)

    def __len__(self) -> int:
        return len(self.loader.batch_sampler)
