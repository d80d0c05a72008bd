"""The share of a stream that one process reads, for loops outside of a trainer, under transformers' name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import IterableDataset

from ..samplers.base import announce_epoch


class IterableDatasetShard(IterableDataset[Any]):
    """One process's rows of a stream: of every `num_processes * batch_size` rows, the r-th `batch_size`.

    The last rows are filled up from the beginning of the stream, or dropped. A `generator` of the data set is seeded
    with `seed + epoch` before it is read, unless the data set has a `set_epoch`.

    Args:
        dataset: The stream.
        batch_size: The rows of a batch of one process.
        drop_last: Whether rows that do not fill a batch on every process are dropped.
        num_processes: The number of processes.
        process_index: The number of this process.
        seed: The seed of the data set's generator.

    >>> list(IterableDatasetShard(range(6), batch_size=2, num_processes=2, process_index=1))
    [2, 3, 0, 1]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        seed: int = 0,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.seed = seed
        self.epoch = 0
        self.num_examples = 0  # read from the stream, by all processes

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, also that of the data set if it has a `set_epoch` of its own.

        Args:
            epoch: The number of the epoch.
        """
        self.epoch = epoch
        announce_epoch(self.dataset, epoch)

    def __iter__(self) -> Iterator[Any]:
        self.num_examples = 0
        generator = getattr(self.dataset, "generator", None)
        if getattr(self.dataset, "set_epoch", None) is None and isinstance(generator, torch.Generator):
            generator.manual_seed(self.seed + self.epoch)
        rows, size = iter(self.dataset), self.batch_size * self.num_processes
        start, end = self.process_index * self.batch_size, (self.process_index + 1) * self.batch_size
        first: list[Any] = []
        while batch := list(islice(rows, size)):
            self.num_examples += len(batch)
            first = first or batch
            if len(batch) < size and self.drop_last:
                return
            yield from [*batch, *islice(cycle(first), size - len(batch))][start:end]

    def __len__(self) -> int:
        whole, left = divmod(len(self.dataset), self.batch_size * self.num_processes)
        return (whole + (left > 0 and not self.drop_last)) * self.batch_size
