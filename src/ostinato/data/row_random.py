"""The random numbers that reading draws: a function of the seed, the epoch and the row, of nothing else.

A row that is read at place 7 of epoch 2 finds Python's, numpy's and torch's streams as that place always finds them:
in whichever process or worker, after whatever else was read, in a run that was interrupted or not. And what reading
draws is not taken from the streams that training draws from.
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
_JOINING = 1 << 62  # the place of the collator: that of its first row, in a range of its own
_FRESH = 624  # where the generators of Python and numpy stand when they are seeded and nothing is drawn

# Batches after which reading that drew nothing is taken to never draw, and rows of each that are looked at. Setting
# streams apart costs as much as a step of a tiny model.
WATCHED_READS = 8
WATCHED_ROWS = 8


def mixed(number: int, other: int) -> int:
    """Two numbers as one of 64 bits that looks like neither.

    >>> mixed(1, 2) == mixed(1, 2) != mixed(2, 1)
    True
    """
    value = (number * 0x9E3779B97F4A7C15 + other + 0x632BE59BD9B4E019) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def seed_reading(key: int) -> None:
    """Seed the streams that rows and collators draw from."""
    random.seed(key)
    np.random.seed(key >> 32)
    torch.default_generator.manual_seed(key)


@dataclass(frozen=True)
class RowStreams:
    """The streams of all rows of a run."""

    seed: int
    rank: int = 0  # tells processes apart where places do not

    def of(self, epoch: int, *, looks: int = 0) -> Seeder:
        """Those of an epoch."""
        return Seeder(mixed(mixed(self.seed, 0), epoch), looks)


class Seeder:
    """Seeds the streams before each row of a batch; looks, so many times, whether anything was drawn since."""

    def __init__(self, key: int, looks: int = 0) -> None:
        self.key, self.looks, self.drew = key, looks, False
        self._seeded: Tensor | None = None  # torch's stream as it was left

    def row(self, place: int) -> None:
        """The row at `place` of the epoch is about to be read, or the rows from there on together."""
        self.look()
        seed_reading(mixed(self.key, place))
        if self.looks > 0:
            self._seeded = torch.default_generator.get_state()

    def join(self, place: int) -> None:
        """The rows from `place` on are about to be joined."""
        self.looks += 1  # whatever the number of rows
        self.row(place | _JOINING)

    def look(self) -> None:
        """Whether something was drawn since the last row was begun."""
        seeded, self._seeded = self._seeded, None
        if seeded is None or self.drew or self.looks <= 0:
            return
        self.looks -= 1
        self.drew = (
            random.getstate()[1][-1] != _FRESH
            or np.random.get_state(legacy=False)["state"]["pos"] != _FRESH
            or not torch.equal(seeded, torch.default_generator.get_state())
        )


class Draw(NamedTuple):
    """The rows of a batch, and where in its epoch it stands."""

    epoch: int
    place: int  # of its first row
    indices: list[int]


@dataclass
class Apart:
    """Reads without touching the streams outside, as long as reading may draw from them."""

    streams: RowStreams
    reads: int = WATCHED_READS  # still to be watched
    draws: bool = False

    def begin_epoch(self) -> Apart:
        """A data set may draw from some epoch on only: have a look at the first batch of each."""
        self.reads = max(self.reads, 1)
        return self

    @property
    def is_needed(self) -> bool:
        return self.draws or self.reads > 0

    def read(self, epoch: int, read: Callable[[Seeder], T]) -> T:
        """What `read` returns, given the streams of an epoch."""
        seeder = self.streams.of(epoch, looks=0 if self.draws else WATCHED_ROWS)
        outside = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
        try:
            return read(seeder)
        finally:
            seeder.look()
            self.reads -= 1
            self.draws = self.draws or seeder.drew
            random.setstate(outside[0])
            np.random.set_state(outside[1])
            torch.default_generator.set_state(outside[2])


class Draws:
    """The batches of a sampler with their places, for readers in other processes."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Draw]:
        epoch, place_of = self.loader.epoch, self.loader.place_of_batch()
        for number, indices in enumerate(self.loader.batch_sampler):
            yield Draw(epoch, place_of(number), indices)

    def __len__(self) -> int:
        return len(self.loader.batch_sampler)
