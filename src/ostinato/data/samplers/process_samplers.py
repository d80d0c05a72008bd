"""Samplers that give each process its rows, for loops outside of a trainer, under transformers' names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import DistributedSampler, Sampler

from ..row_lengths import RowLengths
from .epoch_sampler import get_length_grouped_indices


class ShardSampler(Sampler[int]):
    """The rows of one process, in order: of every `num_processes * batch_size` rows, the r-th `batch_size`.

    The last rows are filled up from the beginning of the data, or dropped.

    Args:
        dataset: The data set; only its length is used.
        batch_size: The number of rows of a batch of one process.
        drop_last: Drop the last rows that do not fill a batch of every process.
        num_processes: The number of processes.
        process_index: The number of this process.

    >>> list(ShardSampler(range(5), batch_size=2, num_processes=2, process_index=1))
    [2, 3, 1, 2]
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.total_batch_size = batch_size * num_processes

    def __iter__(self) -> Iterator[int]:
        own = range(self.process_index * self.batch_size, (self.process_index + 1) * self.batch_size)
        for start in range(0, len(self) * self.num_processes, self.total_batch_size):
            yield from ((start + place) % len(self.dataset) for place in own)

    def __len__(self) -> int:
        whole, left = divmod(len(self.dataset), self.total_batch_size)
        return (whole + (left > 0 and not self.drop_last)) * self.batch_size


class DistributedLengthGroupedSampler(DistributedSampler[Any]):
    """`LengthGroupedSampler` for several processes: each takes every `num_replicas`-th row of one common order.

    Args:
        batch_size: The number of rows of a batch.
        dataset: The rows to measure, if `lengths` is None.
        num_replicas: The number of processes; by default that of the process group, as for `rank`.
        rank: The number of this process.
        seed: The seed of the order, to which the epoch is added.
        drop_last: Leave out the last rows instead of repeating the first, so that every process has as many.
        lengths: The length of every row.
        model_input_name: The column whose length is that of the row; `input_ids` by default.

    Raises:
        ValueError: Neither `dataset` nor `lengths` is given.

    >>> sorted(DistributedLengthGroupedSampler(2, lengths=[5, 1, 4, 2], num_replicas=2, rank=0))
    [0, 2]
    """

    def __init__(
        self,
        batch_size: int,
        dataset: Any = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        lengths: Sequence[int] | None = None,
        model_input_name: str | None = None,
    ) -> None:
        if dataset is None and lengths is None:
            raise ValueError("DistributedLengthGroupedSampler needs lengths, or a dataset to read them from")
        found = RowLengths(dataset, model_input_name or "input_ids").read_list() if lengths is None else lengths
        super().__init__(range(len(found)), num_replicas, rank, seed=seed, drop_last=drop_last)  # type: ignore[arg-type]
        self.batch_size = batch_size
        self.lengths = list(found)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = get_length_grouped_indices(self.lengths, self.batch_size, generator=generator)
        return islice(cycle(order), self.rank, self.total_size, self.num_replicas)
