"""Batches by number of tokens, each with as many rows as fit: `max_tokens_per_batch`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Sampler

from ...arguments.settings import LoaderSettings
from ...core.errors import ConfigError, NotSupportedError
from ...core.notices import note_once
from ..bad_rows import SkippingRows
from ..columns import restore_columns
from ..row_lengths import Numbers, RowLengths
from ..samplers.buckets import (
    build_window_generator,
    check_window,
    compute_window_bounds,
    permute_rows,
    sort_by_length,
)
from ..sizes import is_iterable
from ..step_schedule import Cut

SAMPLED_ROWS = 512  # rows whose mean length estimates the rows per batch
WHOLE_STEPS = 8


class PastSettings(NamedTuple):
    """The settings by which a run made its batches, from batch number `batch` of an epoch on."""

    epoch: int
    batch: int
    cut: Cut


class StepBatches(NamedTuple):
    """One batch for every process; the last `padding_batches` of them are padding batches with rows of others."""

    batches: list[Numbers]
    padding_batches: int = 0

    @property
    def rows(self) -> Numbers:
        """The rows that count, of all processes."""
        return np.concatenate(self.batches[: len(self.batches) - self.padding_batches])


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Batches of rows of similar length whose padded size, rows times longest row, stays within `max_tokens`.

    There are as few batches as the budget allows, of sizes as equal as possible. Their rows come from the random order
    of `EpochSampler`, which is sorted by length window by window, and the batches of a window are shuffled: a function
    of seed and epoch. A row that is longer than the budget is a batch of its own.

    With several processes each step has one batch of about the same length for each of them. Where the number of
    batches is not a multiple, some are split, so that all processes have equally many. Only if too few rows are left
    for that, at the very end, a process gets a padding batch with a row of another process, for which `real_rows` is
    0. Each row counts once.

    >>> sampler = TokenBudgetBatchSampler([2, 9, 3, 3, 10], max_tokens=20, seed=0, window=2)
    >>> sorted(sorted(batch) for batch in sampler), len(sampler)
    ([[0, 2, 3], [1, 4]], 2)
    """

    def __init__(
        self,
        lengths: RowLengths | Sequence[int] | npt.NDArray[Any] | torch.Tensor,
        max_tokens: int,
        *,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        pad_to_multiple_of: int | None = None,
        window: int | None = None,
    ) -> None:
        check_window(window)
        _check_budget(max_tokens)
        self.lengths = lengths if isinstance(lengths, RowLengths) else RowLengths.of(lengths)
        self.max_tokens = max_tokens
        self.seed = torch.initial_seed() if seed is None else seed
        self.rank, self.world_size = rank, world_size
        self.multiple = pad_to_multiple_of or 1
        self.window = window
        self.epoch = 0
        self._past: list[PastSettings] = []
        self._steps_in: dict[int, int] = {}
        self._has_padding_batch: dict[int, bool] = {}

    def __len__(self) -> int:
        return self.batches_in(self.epoch)

    def __iter__(self) -> Iterator[list[int]]:
        return self.iterate_batches(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch and not self.lengths.is_cached:  # rows may have changed
            self._steps_in.clear()
            self._has_padding_batch.clear()
        self.epoch = epoch

    @property
    def cut(self) -> Cut:
        """The settings that decide, besides seed and epoch, which rows share a batch."""
        return {
            "max_tokens": self.max_tokens,
            "world_size": self.world_size,
            "multiple": self.multiple,
            "window": self.window,
        }

    @property
    def past(self) -> list[PastSettings]:
        """The settings by which a run has made its batches; the last are the current ones.

        An epoch that is finished with another budget or number of processes than it was begun with keeps its batches
        up to that point, and has the remaining rows in new ones.
        """
        return self._past

    @past.setter
    def past(self, past: list[PastSettings]) -> None:
        self._past = past
        self._steps_in.clear()
        self._has_padding_batch.clear()

    def rows_of(self, epoch: int, batches: range) -> list[int]:
        """Return the rows, over all processes, of some batches of an epoch."""
        steps = islice(self._iterate_steps(epoch), batches.start, batches.stop)
        return [row for step in steps for row in step.rows.tolist()]

    def iterate_batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """Yield this process's batches of an epoch from number `start` on. For earlier ones only lengths are read.

        >>> sampler = TokenBudgetBatchSampler([4, 4, 4, 4], max_tokens=8, seed=0)
        >>> list(sampler.iterate_batches(3, start=1)) == list(sampler.iterate_batches(3))[1:]
        True
        """
        for step in islice(self._iterate_steps(epoch), start, None):
            yield step.batches[self.rank].tolist()

    def batches_in(self, epoch: int) -> int:
        """Return how many batches each process has in an epoch. All lengths are read for it, once.

        The number differs between epochs, because other rows share a batch. (For a data set with a `set_epoch`, whose
        rows may change, only the current epoch can be known.)
        """
        if epoch not in self._steps_in:
            if self.lengths.is_cached:
                self.lengths.read_all()  # in the order of the data set, which is fastest
            self._steps_in[epoch] = sum(1 for _ in self._iterate_steps(epoch))
        return self._steps_in[epoch]

    def real_rows(self, batch_number: int) -> int | None:
        """Return 0 if batch `batch_number` (from 0) of the current epoch is a padding batch; None: all rows count."""
        epoch = self.epoch
        if epoch not in self._has_padding_batch:
            self._has_padding_batch[epoch] = self._is_padding_batch(self._find_last_step(epoch))
        return 0 if self._has_padding_batch[epoch] and batch_number == self.batches_in(epoch) - 1 else None

    def _is_padding_batch(self, step: StepBatches | None) -> bool:
        return step is not None and self.rank >= self.world_size - step.padding_batches

    # Windows

    def _iterate_steps(self, epoch: int) -> Iterator[StepBatches]:
        rows = permute_rows(len(self.lengths), self.seed, epoch)
        for cut, count in self._iterate_parts(epoch):
            steps = self._iterate_part(rows, epoch, cut)
            if count is None:
                yield from steps
                return
            taken = list(islice(steps, count))
            yield from taken
            seen = np.concatenate([step.rows for step in taken]) if taken else rows[:0]
            rows = rows[~np.isin(rows, seen)]

    def _iterate_parts(self, epoch: int) -> Iterator[tuple[Cut, int | None]]:
        """Yield the settings that make the batches of an epoch, and how many with each; None: all that are left."""
        earlier = [each for each in self._past if (each.epoch, each.batch) <= (epoch, 0)]
        inside = [each for each in self._past if each.epoch == epoch and each.batch > 0]
        cut, done = earlier[-1].cut if earlier else self.cut, 0
        for change in inside:
            yield cut, change.batch - done
            cut, done = change.cut, change.batch
        yield cut, None

    def _iterate_part(self, rows: Numbers, epoch: int, cut: Cut) -> Iterator[StepBatches]:
        bounds = self._find_bounds(rows, cut)
        for number in range(len(bounds) - 1):
            yield from self._build_window(rows[bounds[number] : bounds[number + 1]], epoch, number, cut)

    def _find_last_step(self, epoch: int) -> StepBatches | None:
        if len(list(self._iterate_parts(epoch))) > 1:
            return next(reversed(list(self._iterate_steps(epoch))), None)
        rows = permute_rows(len(self.lengths), self.seed, epoch)
        bounds = self._find_bounds(rows, self.cut)
        return self._build_window(rows[bounds[-2] :], epoch, len(bounds) - 2, self.cut)[-1] if len(rows) else None

    def _find_bounds(self, rows: Numbers, cut: Cut) -> list[int]:
        """Return the bounds of windows. All but the last hold a multiple of `world_size` rows: one per process."""
        if len(rows) == 0:
            return [0]
        max_tokens, world_size, multiple, window = _unpack_cut(cut)
        mean = float(_pad_lengths(self.lengths.read_array(rows[:SAMPLED_ROWS]), multiple).mean())
        # Windows are counted in batches; for many processes in several, or few steps of a window would be complete.
        batches = -(-world_size // WHOLE_STEPS)
        unit = -(-max(1, int(batches * max_tokens / mean)) // world_size) * world_size
        bounds = compute_window_bounds(-(-len(rows) // unit), window)
        return [min(bound * unit, len(rows)) for bound in bounds]

    def _build_window(self, rows: Numbers, epoch: int, number: int, cut: Cut) -> list[StepBatches]:
        """Return the steps of one window in the order they are taken."""
        max_tokens, world_size, multiple, _ = _unpack_cut(cut)
        lengths = self.lengths.read_array(rows)
        rows, padded = sort_by_length(rows, lengths), _pad_lengths(-np.sort(-lengths), multiple)
        self._report_long_rows(rows, padded)
        starts = divide_evenly(padded, max_tokens, world_size)
        batches = [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]
        steps = _group_batches(batches, world_size)
        order = torch.randperm(len(steps), generator=build_window_generator(self.seed, epoch, number)).tolist()
        return sorted((steps[place] for place in order), key=_count_padding_batches)

    def _report_long_rows(self, rows: Numbers, padded: Numbers) -> None:
        if padded[0] > self.max_tokens:
            note_once(
                f"row {rows[0]} has {padded[0]} tokens, more than max_tokens_per_batch={self.max_tokens}: each such "
                "row is a batch of its own",
                key="rows longer than max_tokens_per_batch",
            )


def build_token_budget_sampler(
    dataset: Any, settings: LoaderSettings, *, input_name: str = "input_ids", pad_to_multiple_of: int | None = None
) -> TokenBudgetBatchSampler:
    """Return the training batches that `max_tokens_per_batch` selects."""
    assert settings.max_tokens is not None
    if is_iterable(dataset):
        raise NotSupportedError(
            what=f"max_tokens_per_batch={settings.max_tokens} with a training set that can only be iterated over",
            why="the number of rows in each batch, and so the position of a step in the data, is known only after all "
            "rows are read",
            fix="pass a data set with numbered rows; or keep per_device_train_batch_size, and group rows of similar "
            "length with train_sampling_strategy='group_by_length' and length_window=-1, which works for streams",
        )
    if settings.drop_last:
        note_once("dataloader_drop_last=True has no effect: with max_tokens_per_batch there are no incomplete batches")
    if settings.skips_bad_rows:
        dataset = SkippingRows(dataset)
    return TokenBudgetBatchSampler(
        RowLengths(restore_columns(dataset), input_name, settings.length_column),
        settings.max_tokens,
        seed=settings.seed,
        rank=settings.rank,
        world_size=settings.world_size,
        pad_to_multiple_of=pad_to_multiple_of,
        window=settings.window,
    )


def _unpack_cut(cut: Cut) -> tuple[int, int, int, int | None]:
    """Return the tokens, the processes, the multiple of lengths, and the batches of a window."""
    return cut["max_tokens"] or 1, cut["world_size"] or 1, cut["multiple"] or 1, cut["window"]


def _pad_lengths(lengths: Numbers, multiple: int) -> Numbers:
    # A row without tokens still takes up a row of the batch.
    return np.maximum(-(-lengths // multiple), 1) * multiple


def _count_padding_batches(step: StepBatches) -> int:
    return step.padding_batches


def _group_batches(batches: list[Numbers], world_size: int) -> list[StepBatches]:
    """Return steps of batches of similar length: processes that wait for one another should have the same work."""
    steps = []
    for start in range(0, len(batches), world_size):
        together = batches[start : start + world_size]
        lacking = world_size - len(together)
        steps.append(StepBatches(together + [together[0][:1]] * lacking, lacking))
    return steps


# Division ------------------------------------------------------------------------------------------------------------


def divide_evenly(lengths: Numbers, max_tokens: int, multiple: int = 1) -> list[int]:
    """Return where batches begin among rows sorted from long to short: few batches, and as equal as possible.

    Their number is a multiple of `multiple` if there are enough rows.

    >>> divide_evenly(np.array([10, 9, 3, 3, 2]), 20), divide_evenly(np.array([10, 9, 3, 3, 2]), 20, multiple=3)
    ([0, 2], [0, 1, 2])
    """
    fewest = len(_divide_greedily(lengths, max_tokens))
    wanted = -(-fewest // multiple) * multiple
    low, high = 0, max_tokens  # (low, high] holds the smallest budget that needs no more batches than wanted
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_divide_greedily(lengths, middle)) <= wanted else (middle, high)
    return _halve_largest(_divide_greedily(lengths, high), lengths, wanted)


def _divide_greedily(lengths: Numbers, max_tokens: int) -> list[int]:
    """Return where batches begin if each is as large as the budget allows.

    The first row of a batch is its longest, and decides how many rows fit.
    """
    starts, start, count = [], 0, len(lengths)
    rows_at = np.maximum(max_tokens // lengths, 1).tolist()
    while start < count:
        starts.append(start)
        start += rows_at[start]
    return starts


def _halve_largest(starts: list[int], lengths: Numbers, wanted: int) -> list[int]:
    """Halve the largest batches until there are `wanted` or no batch has two rows."""
    if len(starts) >= wanted:
        return starts
    ends = [*starts[1:], len(lengths)]
    largest = [(-(end - start) * int(lengths[start]), start, end) for start, end in zip(starts, ends, strict=True)]
    single = []
    heapq.heapify(largest)
    while largest and len(largest) + len(single) < wanted:
        _, start, end = heapq.heappop(largest)
        if end - start == 1:
            single.append(start)
            continue
        for begin, stop in ((start, (start + end) // 2), ((start + end) // 2, end)):
            heapq.heappush(largest, (-(stop - begin) * int(lengths[begin]), begin, stop))
    return sorted(single + [start for _, start, _ in largest])


def _check_budget(max_tokens: int) -> None:
    if max_tokens < 1:
        raise ConfigError(
            what=f"max_tokens_per_batch={max_tokens} leaves no room for a row",
            why="it is the padded size of a batch: rows times longest row",
            fix="set it to a few times the length of a long row, such as 16384",
        )
