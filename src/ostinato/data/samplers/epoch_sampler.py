"""The order in which rows are read, and the rows that this process reads.

The order of an epoch is a function of a seed and the epoch's number, so it can be computed again at any time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import Sampler, SequentialSampler

from ...arguments.settings import LoaderSettings
from ...core.errors import DataError, NotSupportedError
from ...core.notices import note_once
from ..bad_rows import SkippingRows
from ..columns import has_columns, restore_columns
from ..dataset_errors import check_data_set
from ..row_lengths import RowLengths
from ..sizes import has_length, is_iterable
from .base import EpochOrder, announce_epoch
from .buckets import WindowedLengthSampler


class EpochSampler(EpochOrder):
    """A new random order in every epoch: `torch.randperm` seeded with `seed + epoch`.

    Without a seed it takes the global torch seed at construction; seeding again later changes nothing.

    >>> sampler = EpochSampler(5, seed=0)
    >>> list(sampler) == list(sampler)
    True
    >>> sampler.set_epoch(1)
    """

    def __init__(self, num_rows: int, seed: int | None = None) -> None:
        self.num_rows = num_rows
        self.seed = torch.initial_seed() if seed is None else seed

    def __len__(self) -> int:
        return self.num_rows

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """Return the rows of an epoch from position `start` on.

        >>> sampler = EpochSampler(9, seed=0)
        >>> list(sampler.order(7, start=5)) == list(sampler.order(7))[5:]
        True
        """
        return iter(torch.randperm(self.num_rows, generator=_build_generator(self.seed, epoch))[start:].tolist())


class DrawnSampler(EpochOrder):
    """A random order that is drawn from torch's global generator, as torch's own `RandomSampler` draws it.

    Several processes draw one seed when the sampler is made, and take all their orders from it.

    >>> sorted(DrawnSampler(5, shared=False))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, num_rows: int, *, shared: bool) -> None:
        self.num_rows = num_rows
        # Not from the global generator, which may differ between processes.
        first = torch.Generator().manual_seed(torch.initial_seed())
        self.seed = _draw_seed(first) if shared else None

    def __len__(self) -> int:
        return self.num_rows

    @property
    def repeats(self) -> bool:
        return self.seed is not None

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """Return the rows of an epoch from position `start` on; of a single process, a new draw."""
        generator = torch.Generator().manual_seed(_draw_seed() if self.seed is None else self.seed)
        for _ in range(epoch if self.repeats else 0):
            torch.randperm(self.num_rows, generator=generator)
        return iter(torch.randperm(self.num_rows, generator=generator)[start:].tolist())


def _draw_seed(generator: torch.Generator | None = None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class LengthGroupedSampler(EpochOrder):
    """Random batches of rows of similar length, with little padding.

    Draws from `generator`, or from the global torch generator as transformers does; with a `seed` the order is a
    function of seed and epoch instead, the same in every process.

    Args:
        batch_size: The number of rows of a batch.
        dataset: The rows to measure, if `lengths` is None.
        lengths: The length of every row.
        model_input_name: The column whose length is that of the row; `input_ids` by default.
        generator: The generator to draw from.
        seed: The seed of an order that depends on nothing else but the epoch.

    Raises:
        DataError: Neither `dataset` nor `lengths` is given.

    >>> sorted(LengthGroupedSampler(2, lengths=[5, 1, 4, 2], seed=0))
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        batch_size: int,
        dataset: Any = None,
        lengths: Sequence[int] | None = None,
        model_input_name: str | None = None,
        generator: torch.Generator | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        if dataset is None and lengths is None:
            raise DataError(
                what="LengthGroupedSampler has nothing to group",
                why="neither dataset nor lengths was given",
                fix="pass lengths=[...], one number per row, or the data set to read them from",
            )
        self.batch_size = batch_size
        self.lengths = (
            RowLengths(dataset, model_input_name or "input_ids").read_list()
            if lengths is None
            else _to_integers(lengths)
        )
        self.generator = generator
        self.seed = seed

    def __len__(self) -> int:
        return len(self.lengths)

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """Return the rows of an epoch from position `start` on; without a seed, a new draw of the generator."""
        generator = self.generator if self.seed is None else _build_generator(self.seed, epoch)
        return iter(get_length_grouped_indices(self.lengths, self.batch_size, generator=generator)[start:])

    @property
    def repeats(self) -> bool:
        return self.seed is not None

    @property
    def group(self) -> int | None:
        return self.batch_size

    def regroup(self, group: int) -> LengthGroupedSampler:
        other = copy.copy(self)
        other.batch_size = group
        return other


def get_length_grouped_indices(
    lengths: Sequence[int],
    batch_size: int,
    mega_batch_mult: int | None = None,
    generator: torch.Generator | None = None,
) -> list[int]:
    """Return a random order in which neighbours have similar lengths, and the longest row of all comes first.

    Rows are shuffled and divided into groups of `mega_batch_mult` batches (50, or fewer so that there are at least
    four groups); each group is sorted from long to short. With the longest row in front, running out of memory happens
    at once or never.

    Args:
        lengths: The length of every row.
        batch_size: The number of rows of a batch.
        mega_batch_mult: The number of batches of a group.
        generator: The generator to draw from; by default the global one.

    Returns:
        The numbers of the rows, in this order.

    >>> get_length_grouped_indices([1, 9, 5], batch_size=3)
    [1, 2, 0]
    """
    if mega_batch_mult is None:
        mega_batch_mult = max(1, min(len(lengths) // (batch_size * 4), 50))
    order = torch.randperm(len(lengths), generator=generator).tolist()
    size = mega_batch_mult * batch_size
    groups = [
        sorted(order[start : start + size], key=lengths.__getitem__, reverse=True)
        for start in range(0, len(order), size)
    ]
    if groups:
        longest = max(range(len(groups)), key=lambda number: lengths[groups[number][0]])
        groups[0][0], groups[longest][0] = groups[longest][0], groups[0][0]
    return [row for group in groups for row in group]


class ShardedBatchSampler(Sampler[list[int]]):
    """The batches of one process: of every `world_size * batch_size` rows, process r takes the r-th `batch_size`.

    All processes yield equally many batches. A process that has no rows left at the end of the data yields a padding
    batch, one row of the last global batch, for which `real_rows` is 0; so every row counts once.

    >>> list(ShardedBatchSampler(range(5), batch_size=2, rank=1, world_size=2))
    [[2, 3], [4]]
    >>> [ShardedBatchSampler(range(5), batch_size=2, rank=1, world_size=2).real_rows(number) for number in (0, 1)]
    [2, 0]
    """

    def __init__(
        self,
        sampler: Any,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        *,
        drop_last: bool = False,
        numbered_from: int = 0,
        first_row: int = 0,
    ) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last
        # For a start inside an epoch: the number of the first batch, the position of the first row.
        self.numbered_from, self.first_row = numbered_from, first_row

    @property
    def global_batch_size(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        whole, left = divmod(len(self.sampler), self.global_batch_size)
        return whole + (left > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        rows, size = iter(self.sampler), self.global_batch_size
        start, end = self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        while batch := list(islice(rows, size)):
            if len(batch) < size and self.drop_last:
                return
            yield batch[start:end] or batch[:1]

    def real_rows(self, batch_number: int) -> int:
        """Return how many rows of batch `batch_number` (from 0) are this process's own."""
        own_start = (batch_number - self.numbered_from) * self.global_batch_size + self.rank * self.batch_size
        return max(0, min(self.batch_size, len(self.sampler) - own_start))

    def find_position(self, count: int) -> int:
        """Return the position in the epoch of this process's first row in the batch after `count` others."""
        return self.first_row + count * self.global_batch_size + self.rank * self.batch_size

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.sampler, epoch)


def build_train_sampler(
    dataset: Any, settings: LoaderSettings, *, batch_size: int, input_name: str = "input_ids"
) -> Sampler[int] | None:
    """Return the order of training rows that `train_sampling_strategy` selects; None where the data set has its own.

    `batch_size` is the rows of one optimizer step in one process: rows of similar length should fill all its
    micro-batches.
    """
    if is_iterable(dataset) or not has_length(dataset):
        if settings.sampling != "random":
            note_once(
                f"train_sampling_strategy={settings.sampling!r} has no effect: the training set is an iterable, which "
                "has its own order"
            )
        return None
    if settings.sampling == "random" and settings.draws_order:
        if settings.seed is not None:
            note_once(
                f"data_seed={settings.seed} has no effect on the order: use_seedable_sampler=False draws it from the "
                "global generator (see seed)"
            )
        return DrawnSampler(len(dataset), shared=settings.world_size > 1)
    if settings.sampling == "random":
        return EpochSampler(len(dataset), settings.seed)
    if settings.sampling == "sequential":
        return SequentialSampler(dataset)
    if settings.sampling == "group_by_length":
        check_data_set(dataset, "training set")  # its rows are read next
        return _build_length_sampler(dataset, settings, batch_size, input_name)
    raise NotSupportedError(
        what=f"train_sampling_strategy={settings.sampling!r} is not available",
        why="the order of rows can be random, sequential or grouped by length",
        fix="use train_sampling_strategy='group_by_length', which also balances the work of a step",
    )


def build_eval_sampler(dataset: Any) -> Sampler[int] | None:
    """Return the sampler of evaluation: rows in order, so that predictions are in the order of the data set."""
    return None if is_iterable(dataset) else SequentialSampler(dataset)


def _build_length_sampler(dataset: Any, settings: LoaderSettings, batch_size: int, input_name: str) -> Sampler[int]:
    if settings.skips_bad_rows:
        dataset = SkippingRows(dataset)
    if settings.by_windows:
        return WindowedLengthSampler(
            RowLengths(restore_columns(dataset), input_name, settings.length_column),
            batch_size * settings.world_size,
            seed=settings.seed,
            window=settings.window,
        )
    # As in transformers, rows that are dicts are measured, even if they state a length.
    column = settings.length_column if has_columns(dataset) else None
    lengths = RowLengths(dataset, input_name, column).read_list()
    if settings.world_size == 1:
        if settings.seed is not None:
            note_once(
                f"data_seed={settings.seed} has no effect on the order with train_sampling_strategy="
                "'group_by_length': as in transformers, the order is drawn from the global generator (see seed)"
            )
        return LengthGroupedSampler(batch_size, lengths=lengths)
    # Global generators may drift apart between processes, and then rows would be read twice or never.
    seed = torch.initial_seed() if settings.seed is None else settings.seed
    return LengthGroupedSampler(batch_size * settings.world_size, lengths=lengths, seed=seed)


def _build_generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed + epoch) % 2**64)


def _to_integers(lengths: Any) -> list[int]:
    """Return plain integers: tensors and arrays are slow to compare one by one."""
    if isinstance(lengths, torch.Tensor):
        return lengths.tolist()
    return [int(length) for length in lengths]
