"""Batches of a number of tokens."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ostinato.core.errors import ConfigError
from ostinato.data.batching.token_budget import TokenBudgetBatchSampler, divide_evenly
from ostinato.data.row_lengths import RowLengths

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

FEW = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def samplers(
    lengths: list[int], max_tokens: int, world_size: int, **options: int | None
) -> list[TokenBudgetBatchSampler]:
    return [
        TokenBudgetBatchSampler(lengths, max_tokens, rank=rank, world_size=world_size, **options)  # type: ignore[arg-type]
        for rank in range(world_size)
    ]


def log_normal(rows: int) -> list[int]:
    numbers = np.random.default_rng(0).lognormal(np.log(60) - 0.32, 0.8, rows)
    return np.clip(numbers.round(), 4, 512).astype(int).tolist()


@FEW
@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.integers(1, 60),
    st.integers(1, 5),
    st.integers(0, 2),
    st.sampled_from([None, 1, 4]),
    st.integers(1, 5) | st.none(),
)
def test_what_holds_for_all_batches(
    lengths: list[int], max_tokens: int, world_size: int, epoch: int, multiple: int | None, window: int | None
) -> None:
    shares, real = [], Counter()
    for sampler in samplers(lengths, max_tokens, world_size, seed=3, pad_to_multiple_of=multiple, window=window):
        sampler.set_epoch(epoch)
        share = list(sampler)
        assert len(share) == len(sampler) == sampler.batches_in(epoch)
        for number, batch in enumerate(share):
            longest = max(lengths[row] for row in batch)
            if multiple is not None:
                longest = -(-longest // multiple) * multiple
            assert len(batch) == 1 or len(batch) * longest <= max_tokens
            if sampler.real_rows(number) is None:
                real.update(batch)
            else:
                assert sampler.real_rows(number) == 0 and len(batch) == 1
        shares.append(share)
    assert real == Counter(range(len(lengths))), "each row counts once"
    assert len({len(share) for share in shares}) == 1, "all processes have equally many batches"


@FEW
@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 60), st.integers(1, 3), st.integers(0, 20))
def test_batches_depend_on_seed_and_epoch_alone(
    lengths: list[int], max_tokens: int, world_size: int, start: int
) -> None:
    for one, other in zip(
        samplers(lengths, max_tokens, world_size, seed=1),
        samplers(lengths, max_tokens, world_size, seed=1),
        strict=True,
    ):
        for earlier in range(2):
            list(other.iterate_batches(earlier))
        assert list(one.iterate_batches(2)) == list(other.iterate_batches(2))
        assert list(one.iterate_batches(2, start)) == list(other.iterate_batches(2))[start:]


@FEW
@given(st.lists(st.integers(1, 12), min_size=1, max_size=10), st.integers(1, 40))
def test_there_are_as_few_batches_as_there_can_be(lengths: list[int], max_tokens: int) -> None:
    lengths.sort(reverse=True)

    def fewest(start: int) -> int:
        """By trying all."""
        if start == len(lengths):
            return 0
        ends = range(start + 1, len(lengths) + 1)
        fits = [end for end in ends if end == start + 1 or (end - start) * lengths[start] <= max_tokens]
        return 1 + min(fewest(end) for end in fits)

    assert len(divide_evenly(np.array(lengths), max_tokens)) == fewest(0)


def test_batches_are_even() -> None:
    lengths = log_normal(4000)
    areas = [
        len(batch) * max(lengths[row] for row in batch)
        for batch in TokenBudgetBatchSampler(lengths, 4096, seed=0, window=1000)
    ]
    assert min(areas) > 0.8 * max(areas) and max(areas) <= 4096
    assert sum(areas) < 1.05 * sum(lengths), "hardly anything is padded"


def test_processes_have_the_same_work_at_the_same_time() -> None:
    lengths = log_normal(4000)
    shares = [list(sampler) for sampler in samplers(lengths, 4096, 4, seed=0)]
    rows = [row for share in shares for batch in share for row in batch]
    assert sorted(rows) == list(range(4000)), "no stand-ins among so many rows"
    areas = np.array([[len(batch) * max(lengths[row] for row in batch) for batch in share] for share in shares])
    waiting = areas.max(axis=0).sum() * 4 / areas.sum()
    assert waiting < 1.1


def test_batches_come_in_another_order_and_of_other_rows_in_another_epoch() -> None:
    lengths = log_normal(2000)
    sampler = TokenBudgetBatchSampler(lengths, 2048, seed=0)
    first = list(sampler)
    longest = [max(lengths[row] for row in batch) for batch in first]
    assert longest != sorted(longest) and longest != sorted(longest, reverse=True)
    sampler.set_epoch(1)
    assert len({frozenset(batch) for batch in first} & {frozenset(batch) for batch in sampler}) < 0.1 * len(first)
    assert sampler.batches_in(0) == len(first)


def test_without_a_seed_the_global_one_counts_at_the_time_of_making() -> None:
    torch.manual_seed(11)
    sampler = TokenBudgetBatchSampler(range(1, 30), 40)
    torch.manual_seed(12)
    assert list(sampler) == list(TokenBudgetBatchSampler(range(1, 30), 40, seed=11))


def test_a_row_over_the_budget_is_alone_and_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    sampler = TokenBudgetBatchSampler([5, 90, 5, 80, 5], 20, seed=0)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert [1] in list(sampler) and [3] in list(sampler)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "tokens, more than max_tokens_per_batch=20: each such row is a batch of its own" in said


def test_what_is_too_few_for_all_processes_gets_stand_ins() -> None:
    shares = samplers([7], 10, 3, seed=0)
    assert [list(share) for share in shares] == [[[0]]] * 3
    assert [share.real_rows(0) for share in shares] == [None, 0, 0]
    shares = samplers([10] * 5, 10, 4, seed=0)
    batches = [list(share) for share in shares]
    assert [len(share) for share in batches] == [2] * 4
    assert [share.real_rows(0) for share in shares] == [None] * 4
    assert [share.real_rows(1) for share in shares] == [None, 0, 0, 0]
    assert sorted([share[0][0] for share in batches] + batches[0][1]) == list(range(5))
    assert all(len(batch) == 1 for share in batches for batch in share), "every process has a row to work with"


def test_starting_reads_few_lengths_and_counting_reads_each_once() -> None:
    class Rows:
        read: list[int] = []

        def __len__(self) -> int:
            return 5000

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            self.read.append(index)
            return {"input_ids": [0] * (index % 50 + 1)}

    rows = Rows()
    sampler = TokenBudgetBatchSampler(RowLengths(rows), 100, seed=0)
    next(iter(sampler))
    assert len(rows.read) < 1000
    count = len(sampler)
    assert sorted(rows.read) == list(range(5000))
    assert len(list(sampler)) == count and len(sampler) == count and len(rows.read) == 5000


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_tokens_per_batch=0 leaves no room"):
        TokenBudgetBatchSampler([1], 0)
    with pytest.raises(ConfigError, match="window=0"):
        TokenBudgetBatchSampler([1], 1, window=0)


def test_torch_loads_by_it() -> None:
    rows = [torch.ones(length) for length in (3, 3, 9, 1, 9)]
    sampler = TokenBudgetBatchSampler([len(row) for row in rows], 18, seed=0, window=4)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=torch.nn.utils.rnn.pad_sequence)  # type: ignore[arg-type]
    assert sorted(tuple(batch.shape) for batch in loader) == [(3, 3), (9, 2)] and len(loader) == 2
