"""Samplers, batch samplers and whole loaders of the user's: used as they are, and divided among processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from ..arguments.settings import LoaderSettings
from ..core.errors import ConfigError, DataError, NotSupportedError
from ..core.notices import note_once
from ..core.random import preserve_rng, set_seed
from .samplers.base import announce_epoch
from .sizes import has_length

# Samplers ------------------------------------------------------------------------------------------------------------


def share_sampler(sampler: Any, settings: LoaderSettings) -> Any:
    """Return the user's sampler; several processes each read their part of it, unless it divides rows itself."""
    if _check_sharding(sampler, settings, "sampler") or settings.world_size == 1:
        return sampler
    _check_length(sampler, "sampler")
    note_once(f"each of the {settings.world_size} processes reads its part of the rows of sampler=")
    return SharedOrder(sampler, settings.seed)


def share_batch_sampler(batch_sampler: Any, settings: LoaderSettings) -> Any:
    """Return the user's batch sampler; several processes take turns at its batches, unless it divides them itself."""
    if _check_sharding(batch_sampler, settings, "batch_sampler") or settings.world_size == 1:
        return batch_sampler
    _check_length(batch_sampler, "batch_sampler")
    note_once(f"the {settings.world_size} processes take turns at the batches of batch_sampler=")
    order = SharedOrder(batch_sampler, settings.seed)
    return RoundRobinBatchSampler(order, settings.rank, settings.world_size, drop_last=settings.drop_last)


class SharedOrder(Sampler[Any]):
    """A sampler that yields the same in all processes: its random draws depend on seed and epoch.

    >>> from torch.utils.data import RandomSampler
    >>> first, second = (SharedOrder(RandomSampler(range(9)), seed=0) for _ in range(2))
    >>> list(first) == list(second)
    True
    """

    def __init__(self, sampler: Any, seed: int | None = None) -> None:
        self.sampler = sampler
        self.seed = torch.initial_seed() if seed is None else seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        with preserve_rng():
            set_seed((self.seed + self.epoch) % 2**32)
            return iter(list(self.sampler))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        announce_epoch(self.sampler, epoch)
        announce_epoch(getattr(self.sampler, "sampler", None), epoch)


class RoundRobinBatchSampler(Sampler[list[int]]):
    """The batches of one process: of every `world_size` batches, process r takes the r-th.

    All processes have equally many. Where the last batches are not enough for all, each remaining process gets a
    padding batch, a row of one of them, for which `real_rows` is 0; so every row counts as often as intended.

    >>> batches = [[0, 1], [2], [3, 4]]
    >>> second = RoundRobinBatchSampler(batches, rank=1, world_size=2)
    >>> list(second), [second.real_rows(number) for number in range(2)]
    ([[2], [3]], [None, 0])
    """

    def __init__(
        self,
        batches: Any,
        rank: int,
        world_size: int,
        *,
        drop_last: bool = False,
        numbered_from: int = 0,
        first_batch: int = 0,
    ) -> None:
        self.batches, self.rank, self.world_size, self.drop_last = batches, rank, world_size, drop_last
        # For a start inside an epoch: the number of the first turn, and of its first batch.
        self.numbered_from, self.first_batch = numbered_from, first_batch

    def __len__(self) -> int:
        whole, left = divmod(len(self.batches), self.world_size)
        return whole + (left > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        batches = iter(self.batches)
        while turn := list(islice(batches, self.world_size)):
            if len(turn) == self.world_size or not self.drop_last:
                yield turn[self.rank] if self.rank < len(turn) else list(turn[0])[:1]

    def real_rows(self, batch_number: int) -> int | None:
        """Return 0 if batch `batch_number` (from 0) is a padding batch; None: all its rows count."""
        own = (batch_number - self.numbered_from) * self.world_size + self.rank
        return None if own < len(self.batches) else 0

    def find_batch_number(self, count: int) -> int:
        """Return the number in the epoch of this process's batch that comes after `count` others."""
        return self.first_batch + count * self.world_size + self.rank

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.batches, epoch)


def is_sharded(part: Any) -> bool:
    """Return whether a sampler yields this process's rows only, as torch's DistributedSampler does."""
    return _count_processes(part) > 1


def _count_processes(sampler: Any) -> int:
    """Return the number of processes among which a sampler, or the one inside it, divides rows."""
    own = getattr(sampler, "num_replicas", 1)
    return own if own > 1 else getattr(getattr(sampler, "sampler", None), "num_replicas", 1)


def _check_sharding(sampler: Any, settings: LoaderSettings, name: str) -> bool:
    replicas = _count_processes(sampler)
    if replicas == 1:
        return False
    if replicas == settings.world_size:
        return True
    if settings.world_size == 1:
        note_once(
            f"{name}= divides rows among {replicas} processes, but there is only this one: the parts of the others "
            "are not read"
        )
        return True
    raise ConfigError(
        what=f"{name}= divides rows among {replicas} processes",
        why=f"there are {settings.world_size}, so some rows would be read twice or not at all",
        fix="create it with num_replicas=args.world_size and rank=args.process_index",
    )


def _check_length(sampler: Any, name: str) -> None:
    if not has_length(sampler):
        raise NotSupportedError(
            what=f"{name}= has no length",
            why="several processes share it, and need to know where it ends",
            fix="give it a __len__, or let it divide rows itself and set its attribute num_replicas",
        )


# Loaders -------------------------------------------------------------------------------------------------------------


_PARAMETERS = {"Training": "train_dataset", "Evaluation": "eval_dataset", "test": "test_dataset"}


def check_loader(loader: DataLoader[Any], settings: LoaderSettings, description: str, *, training: bool) -> None:
    """Raise unless a DataLoader is used by one process, or by several that each read rows of their own."""
    name = _PARAMETERS.get(description, description)
    if settings.world_size > 1 and not _is_loader_sharded(loader, settings, name):
        raise NotSupportedError(
            what=f"{name} is a DataLoader, and there are {settings.world_size} processes",
            why="each process would read all of its rows",
            fix="give it a sampler that divides rows among processes (DistributedSampler), or pass its data set: "
            f"{name}=loader.dataset",
        )
    note_once(
        f"{name} is a DataLoader: its batches reach the model unchanged, with all columns; batch size, order, "
        "collator and workers are those of the loader"
    )
    if settings.world_size > 1 and not training:
        note_once(
            f"{name} is a DataLoader whose sampler divides rows among processes: predictions are in the order in "
            "which processes read them, and rows that two processes read count twice"
        )


def _is_loader_sharded(loader: DataLoader[Any], settings: LoaderSettings, name: str) -> bool:
    return any(
        _check_sharding(part, settings, f"the sampler of {name}") for part in (loader.sampler, loader.batch_sampler)
    )


def check_equal_batches(batches: int, of_all: Any, world_size: int) -> None:
    """Raise unless all processes take equally many steps. `of_all` sums a tensor over the processes."""
    own = torch.tensor([batches, batches**2], dtype=torch.float64)
    total, squares = of_all(own).tolist()
    if squares * world_size != total**2:
        raise DataError(
            what=f"this process has {batches} batches in an epoch; the mean over all processes is "
            f"{(total / world_size):g}",
            why="processes take their steps together, and would wait for one another forever",
            fix="let the sampler give every process the same number of rows, as DistributedSampler does",
        )


def find_generators(loader: Any) -> list[torch.Generator]:
    """Return the generators that belong to a loader and its samplers.

    >>> from torch.utils.data import RandomSampler
    >>> own = torch.Generator()
    >>> find_generators(DataLoader([1, 2], sampler=RandomSampler([1, 2], generator=own))) == [own]
    True
    """
    found: dict[int, torch.Generator] = {}
    parts = [loader, getattr(loader, "batch_sampler", None)]
    for part in parts:
        generator = getattr(part, "generator", None)
        if isinstance(generator, torch.Generator):
            found[id(generator)] = generator
        inside = [getattr(part, name, None) for name in ("sampler", "batches")]  # samplers around other samplers
        parts += [each for each in inside if each is not None and not any(each is known for known in parts)]
    return list(found.values())
