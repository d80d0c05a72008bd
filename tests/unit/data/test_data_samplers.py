"""The order of rows, and the share of each process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, SequentialSampler

from ostinato.arguments.settings import LoaderSettings
from ostinato.core.errors import DataError, NotSupportedError
from ostinato.data.samplers.epoch_sampler import (
    EpochSampler,
    LengthGroupedSampler,
    ShardedBatchSampler,
    build_eval_sampler,
    build_train_sampler,
    get_length_grouped_indices,
)

Settings = Callable[..., LoaderSettings]


def permutation(rows: int, seed: int) -> list[int]:
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).tolist()


# ---------------------------------------------------------------------------------------------------------- random


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    sampler = EpochSampler(9, seed=3)
    assert len(sampler) == 9
    assert list(sampler) == list(sampler) == permutation(9, 3)
    sampler.set_epoch(4)
    assert list(sampler) == permutation(9, 7)
    sampler.set_epoch(0)
    assert list(sampler) == permutation(9, 3)


def test_seed_zero_is_a_seed() -> None:
    torch.manual_seed(5)
    assert list(EpochSampler(9, seed=0)) == permutation(9, 0)


def test_without_a_seed_the_global_one_counts_at_the_time_of_making() -> None:
    torch.manual_seed(11)
    torch.rand(3)  # numbers drawn do not matter, the seed does
    sampler = EpochSampler(9)
    torch.manual_seed(12)
    assert list(sampler) == permutation(9, 11)


def test_reading_the_order_draws_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    list(EpochSampler(9))
    assert torch.equal(before, torch.get_rng_state())


def test_the_largest_seeds_do_not_overflow() -> None:
    sampler = EpochSampler(9, seed=2**64 - 1)
    sampler.set_epoch(1)
    assert sorted(sampler) == list(range(9))


# ------------------------------------------------------------------------------------------------- grouped by length


@pytest.mark.parametrize("seed", range(40))
def test_grouping_equals_that_of_transformers(seed: int) -> None:
    pytest.importorskip("transformers")
    from transformers.trainer_pt_utils import get_length_grouped_indices as theirs

    rng = random.Random(seed)
    lengths = [rng.randint(1, rng.choice((3, 50))) for _ in range(rng.randint(1, 300))]  # few lengths: many ties
    batch_size, multiple = rng.randint(1, 9), rng.choice((None, None, 1, 3))
    ours = get_length_grouped_indices(lengths, batch_size, multiple, torch.Generator().manual_seed(seed))
    assert ours == theirs(lengths, batch_size, multiple, torch.Generator().manual_seed(seed))


def test_grouping_keeps_every_row_and_starts_with_the_longest() -> None:
    lengths = [random.Random(1).randint(1, 99) for _ in range(200)]
    order = get_length_grouped_indices(lengths, 4)
    assert sorted(order) == list(range(200))
    assert lengths[order[0]] == max(lengths)


def test_grouping_pads_less_than_chance() -> None:
    lengths = [random.Random(n).randint(1, 99) for n in range(400)]

    def padding(order: list[int]) -> int:
        batches = [[lengths[row] for row in order[start : start + 4]] for start in range(0, 400, 4)]
        return sum(max(batch) * len(batch) - sum(batch) for batch in batches)

    assert padding(get_length_grouped_indices(lengths, 4)) < padding(permutation(400, 0)) / 4


def test_grouping_nothing_gives_nothing() -> None:
    assert get_length_grouped_indices([], 4) == []


@pytest.mark.parametrize("lengths", [[3, 1, 2, 5, 4], torch.tensor([3, 1, 2, 5, 4])])
def test_sampler_draws_from_the_global_generator_like_transformers(lengths: Any) -> None:
    pytest.importorskip("transformers")
    from transformers.trainer_pt_utils import LengthGroupedSampler as Theirs

    orders = []
    for sampler_class in (LengthGroupedSampler, Theirs):
        torch.manual_seed(0)
        sampler = sampler_class(2, lengths=lengths)
        orders.append((list(sampler), list(sampler), len(sampler)))
    assert orders[0] == orders[1]


def test_sampler_with_a_seed_is_a_function_of_seed_and_epoch() -> None:
    sampler = LengthGroupedSampler(2, lengths=list(range(30)), seed=4)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_sampler_needs_something_to_group() -> None:
    with pytest.raises(DataError, match="nothing to group"):
        LengthGroupedSampler(2)


def test_lengths_are_read_from_rows() -> None:
    rows = [{"input_ids": [1] * n, "pixels": torch.zeros(2 * n)} for n in (3, 1, 2)]
    assert LengthGroupedSampler(2, rows).lengths == [3, 1, 2]
    assert LengthGroupedSampler(2, rows, model_input_name="pixels").lengths == [6, 2, 4]


def test_rows_that_state_their_length_are_measured_as_in_transformers(loader_settings: Settings) -> None:
    rows = [{"input_ids": [1] * n, "length": 9 - n} for n in (3, 1, 2)]
    settings = loader_settings(sampling="group_by_length")
    sampler = build_train_sampler(rows, settings, batch_size=2)
    assert isinstance(sampler, LengthGroupedSampler) and sampler.lengths == [3, 1, 2]


class Endless(torch.utils.data.Dataset[Any]):
    """A data set that knows its length but answers to every index."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": [0] * (index + 1)}


def test_lengths_of_a_data_set_that_never_raises_index_error() -> None:
    assert LengthGroupedSampler(2, Endless()).lengths == [1, 2, 3]


@pytest.mark.parametrize("format_type", [None, "torch", "numpy"])
def test_lengths_come_from_the_column_where_there_is_one(format_type: str | None, loader_settings: Settings) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"input_ids": [[1], [1, 2]], "length": [9, 8]}).with_format(format_type)
    for column, lengths in (("length", [9, 8]), ("other", [1, 2])):
        settings = loader_settings(sampling="group_by_length", length_column=column)
        sampler = build_train_sampler(table, settings, batch_size=2)
        assert isinstance(sampler, LengthGroupedSampler) and sampler.lengths == lengths


def test_lengths_of_rows_that_are_computed_on_reading() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"input_ids": [0, 0], "times": [3, 1]})
    table.set_transform(lambda rows: {"input_ids": [[0] * times for times in rows["times"]]})
    assert LengthGroupedSampler(2, table).lengths == [3, 1]


@pytest.mark.parametrize("rows", [[{"x": [1]}], [(1, 2)], [{"input_ids": 3}]])
def test_rows_without_lengths_are_explained(rows: list[Any]) -> None:
    with pytest.raises(DataError, match="length_column_name"):
        LengthGroupedSampler(2, rows)


# ------------------------------------------------------------------------------------------------------ processes


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 4])
def test_every_row_counts_once_over_all_processes(batch_size: int, world_size: int, drop_last: bool) -> None:
    for rows in range(1, 18):
        order = permutation(rows, rows)
        shares = [
            ShardedBatchSampler(order, batch_size, rank, world_size, drop_last=drop_last) for rank in range(world_size)
        ]
        batches = [list(share) for share in shares]
        assert {len(share) for share in shares} == {len(own) for own in batches} == {len(batches[0])}
        counted: list[int] = []
        for number in range(len(shares[0])):
            start = number * batch_size * world_size
            for share, own in zip(shares, batches, strict=True):
                real = share.real_rows(number)
                if real == 0:
                    assert own[number] == [order[start]]  # a stand-in: the first row of this global batch
                else:
                    assert len(own[number]) == real
                counted += own[number][:real]
        kept = rows // (batch_size * world_size) * batch_size * world_size if drop_last else rows
        assert counted == order[:kept]  # each once, in the order of the sampler


def test_one_process_of_a_sharded_sampler_is_the_plain_batch_sampler() -> None:
    plain = torch.utils.data.BatchSampler(range(11), 3, False)
    assert list(ShardedBatchSampler(range(11), 3)) == list(plain)


def test_the_epoch_reaches_the_order_inside() -> None:
    share = ShardedBatchSampler(EpochSampler(8, seed=0), 2, rank=1, world_size=2)
    share.set_epoch(5)
    assert list(share) == [permutation(8, 5)[2:4], permutation(8, 5)[6:8]]


# ---------------------------------------------------------------------------------------------------------- choice


class Stream(IterableDataset[Any]):
    def __iter__(self):
        return iter([{"x": 1}])


ROWS = [{"input_ids": [0] * (n % 7 + 1)} for n in range(40)]


def test_random_is_the_default(loader_settings: Settings) -> None:
    sampler = build_train_sampler(ROWS, loader_settings(seed=6), batch_size=2)
    assert isinstance(sampler, EpochSampler) and list(sampler) == permutation(40, 6)


def test_sequential(loader_settings: Settings) -> None:
    sampler = build_train_sampler(ROWS, loader_settings(sampling="sequential"), batch_size=2)
    assert isinstance(sampler, SequentialSampler) and list(sampler) == list(range(40))


def test_group_by_length_in_one_process_says_that_data_seed_is_not_used(
    loader_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler = build_train_sampler(ROWS, loader_settings(sampling="group_by_length", seed=6), batch_size=2)
    assert isinstance(sampler, LengthGroupedSampler) and sampler.seed is None
    assert "data_seed=6 has no effect" in capsys.readouterr().err


def test_group_by_length_is_the_same_in_every_process(loader_settings: Settings) -> None:
    orders = []
    for rank in range(2):
        settings = loader_settings(sampling="group_by_length", rank=rank, world_size=2)
        torch.manual_seed(3)
        torch.rand(rank)  # generators that have drifted apart
        sampler = build_train_sampler(ROWS, settings, batch_size=2)
        assert sampler is not None
        orders.append(list(sampler))
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(40))


def test_what_is_not_there_is_refused(loader_settings: Settings) -> None:
    with pytest.raises(NotSupportedError, match="batch_rebalance"):
        build_train_sampler(ROWS, loader_settings(sampling="batch_rebalance"), batch_size=2)


def test_a_stream_has_its_own_order(loader_settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert build_train_sampler(Stream(), loader_settings(), batch_size=2) is None
    assert capsys.readouterr().err == ""
    assert build_train_sampler(Stream(), loader_settings(sampling="group_by_length"), batch_size=2) is None
    assert "has no effect" in capsys.readouterr().err


def test_evaluation_reads_rows_as_they_come() -> None:
    sampler = build_eval_sampler(ROWS)
    assert sampler is not None and list(sampler) == list(range(40))
    assert build_eval_sampler(Stream()) is None
