"""Rows of like length together: the order, what is read for it, and where lengths come from."""

from __future__ import annotations

import random
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import ConfigError, DataError
from ostinato.core.random import set_seed
from ostinato.data import row_lengths as lengths_module
from ostinato.data.row_lengths import RowLengths
from ostinato.data.samplers.buckets import (
    FIRST_WINDOW,
    WINDOW,
    WindowedLengthSampler,
    compute_window_bounds,
    permute_rows,
)
from ostinato.data.samplers.epoch_sampler import EpochSampler, ShardedBatchSampler

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

FEW = settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def log_normal(rows: int, *, longest: int = 512, seed: int = 0) -> np.ndarray:
    numbers = np.random.default_rng(seed).lognormal(np.log(60) - 0.32, 0.8, rows)
    return np.clip(numbers.round(), 4, longest).astype(np.int64)


def padded(lengths: np.ndarray, batch_size: int) -> int:
    return sum(
        len(part) * int(part.max())
        for part in (lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size))
    )


class Rows:
    """A data set that remembers which rows were read."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths, self.read = lengths, []

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return {"input_ids": [0] * self.lengths[index], "length": 1000 - self.lengths[index]}


# ------------------------------------------------------------------------------------------------------- the order

small = st.lists(st.integers(0, 20), max_size=60)


@FEW
@given(small, st.integers(1, 9), st.integers(1, 6) | st.none(), st.integers(0, 2**64 - 1), st.integers(0, 3))
def test_each_row_comes_once_and_whatever_was_read_before(
    lengths: list[int], batch_size: int, window: int | None, seed: int, epoch: int
) -> None:
    sampler = WindowedLengthSampler(lengths, batch_size, seed=seed, window=window)
    order = list(sampler.order(epoch))
    assert sorted(order) == list(range(len(lengths)))
    fresh = WindowedLengthSampler(lengths, batch_size, seed=seed, window=window)
    for earlier in range(epoch):
        fresh.set_epoch(earlier)
        list(islice(fresh, 5))
    fresh.set_epoch(epoch)
    assert list(fresh) == order


@FEW
@given(small, st.integers(1, 9), st.integers(1, 6) | st.none(), st.integers(0, 70))
def test_it_starts_anywhere(lengths: list[int], batch_size: int, window: int | None, start: int) -> None:
    sampler = WindowedLengthSampler(lengths, batch_size, seed=1, window=window)
    assert list(sampler.order(2, start)) == list(sampler.order(2))[start:]


@FEW
@given(small, st.integers(1, 9), st.integers(1, 6))
def test_a_window_holds_the_rows_of_the_random_order_in_batches_of_neighbours(
    lengths: list[int], batch_size: int, window: int
) -> None:
    sampler = WindowedLengthSampler(lengths, batch_size, seed=5, window=window)
    drawn, order = list(EpochSampler(len(lengths), seed=5)), list(sampler)
    bounds = [bound * batch_size for bound in compute_window_bounds(-(-len(lengths) // batch_size), window)]
    for start, end in pairwise(bounds):
        rows = order[start:end]
        assert sorted(rows) == sorted(drawn[start:end])
        spans = sorted(
            (min(lengths[row] for row in batch), max(lengths[row] for row in batch))
            for batch in (rows[place : place + batch_size] for place in range(0, len(rows), batch_size))
        )
        assert all(one[1] <= other[0] for one, other in pairwise(spans)), "batches overlap"


def test_the_order_is_that_of_every_version() -> None:
    """A run that was begun with an older version must go on in the order it began with."""
    sampler = WindowedLengthSampler([7, 3, 9, 1, 5, 8, 2, 6, 4], batch_size=2, seed=42, window=2)
    assert list(sampler) == [4, 6, 7, 8, 5, 0, 2, 1, 3]
    sampler.set_epoch(1)
    assert list(sampler) == [4, 1, 7, 3, 2, 0, 5, 8, 6]


def test_the_permutation_is_that_of_the_random_sampler() -> None:
    for seed, epoch in ((0, 0), (3, 4), (2**64 - 1, 2)):
        sampler = EpochSampler(50, seed)
        sampler.set_epoch(epoch)
        assert permute_rows(50, seed, epoch).tolist() == list(sampler)


def test_without_a_seed_the_global_one_counts_at_the_time_of_making() -> None:
    torch.manual_seed(11)
    sampler = WindowedLengthSampler(range(30), 2)
    torch.manual_seed(12)
    assert list(sampler) == list(WindowedLengthSampler(range(30), 2, seed=11))


def test_a_batch_that_is_not_full_comes_last_and_is_of_any_length() -> None:
    lengths = list(range(41))
    last = set()
    for epoch in range(40):
        order = list(WindowedLengthSampler(lengths, 4, seed=epoch, window=100))
        assert all(max(batch) - min(batch) <= 4 for batch in (order[at : at + 4] for at in range(0, 40, 4)))
        last.add(order[-1])
    assert len(last) > 5, "always the same rows would be dropped"


def test_batches_are_shuffled_and_rows_meet_others_in_another_epoch() -> None:
    lengths = log_normal(640).tolist()
    epochs = []
    for epoch in range(2):
        order = list(WindowedLengthSampler(lengths, 16, seed=epoch))
        batches = [order[at : at + 16] for at in range(0, 640, 16)]
        longest = [lengths[batch[0]] for batch in batches]
        assert longest != sorted(longest) and longest != sorted(longest, reverse=True)
        assert all(lengths[batch[0]] == max(lengths[row] for row in batch) for batch in batches)
        epochs.append({frozenset(batch) for batch in batches})
    assert not epochs[0] & epochs[1]


@pytest.mark.parametrize(("longest", "batch_size"), [(512, 8), (512, 32), (10**6, 32)])
def test_padding_is_within_five_percent_of_sorting_everything(longest: int, batch_size: int) -> None:
    lengths = log_normal(50_000, longest=longest)
    order = np.fromiter(WindowedLengthSampler(lengths, batch_size, seed=0), dtype=np.int64)
    assert padded(lengths[order], batch_size) <= 1.05 * padded(-np.sort(-lengths), batch_size)
    assert padded(lengths, batch_size) > 2 * padded(lengths[order], batch_size), "unsorted, for comparison"


DISTRIBUTIONS = {
    "uniform": lambda chance, rows: chance.integers(1, 513, rows),
    "geometric": lambda chance, rows: chance.geometric(0.01, rows),
    "short and long": lambda chance, rows: np.where(chance.random(rows) < 0.9, 20, 500),
    "a long tail": lambda chance, rows: np.clip(20 * (1 + chance.pareto(1.5, rows)), 1, 4096).astype(np.int64),
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_of_a_million_rows_too(distribution: str) -> None:
    lengths = DISTRIBUTIONS[distribution](np.random.default_rng(0), 1_000_000)
    sampler = WindowedLengthSampler(lengths, 32, seed=0)
    order = np.fromiter(sampler, dtype=np.int64)
    assert np.array_equal(np.sort(order), np.arange(1_000_000))
    assert padded(lengths[order], 32) <= 1.05 * padded(-np.sort(-lengths), 32)


def test_windows_begin_small_and_leave_no_scrap() -> None:
    assert (
        compute_window_bounds(0) == [0]
        and compute_window_bounds(1) == [0, 1]
        and compute_window_bounds(2) == [0, 1, 2]
    )
    for count in range(3, 2000):
        bounds = compute_window_bounds(count)
        sizes = [end - start for start, end in pairwise(bounds)]
        assert sum(sizes) == count and min(sizes) >= min(FIRST_WINDOW, count // 2) and len(sizes) > 1
        assert sizes[0] <= FIRST_WINDOW and max(sizes) <= WINDOW
    assert compute_window_bounds(9, 4) == [0, 3, 6, 9]


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="window=0 is not a number of batches"):
        WindowedLengthSampler([1, 2], 1, window=0)


def test_it_feeds_the_batches_of_several_processes() -> None:
    lengths = log_normal(100).tolist()
    shares = [
        list(ShardedBatchSampler(WindowedLengthSampler(lengths, 8, seed=0), 4, rank, 2, drop_last=True))
        for rank in range(2)
    ]
    assert len(shares[0]) == len(shares[1]) == 12
    rows = [row for share in shares for batch in share for row in batch]
    assert len(set(rows)) == 96


# ------------------------------------------------------------------------------------------------- what is read for it


def test_the_first_batch_takes_one_small_window_of_lengths() -> None:
    rows = Rows(log_normal(20_000).tolist())
    sampler = WindowedLengthSampler(RowLengths(rows), batch_size=4, seed=0)
    assert rows.read == []
    order = iter(sampler)
    next(order)
    assert sorted(rows.read) == sorted(list(EpochSampler(20_000, seed=0))[: FIRST_WINDOW * 4])
    list(islice(order, FIRST_WINDOW * 4))
    assert len(rows.read) == FIRST_WINDOW * 4 * 3, "the second window is twice as large"


def test_starting_inside_an_epoch_reads_no_window_before() -> None:
    rows = Rows(log_normal(2000).tolist())
    drawn = list(EpochSampler(2000, seed=0))
    next(WindowedLengthSampler(RowLengths(rows), batch_size=4, seed=0, window=10).order(0, start=1234))
    assert sorted(rows.read) == sorted(drawn[1200:1240])


def test_lengths_are_read_once_over_all_epochs() -> None:
    rows = Rows(list(range(50)))
    sampler = WindowedLengthSampler(RowLengths(rows), batch_size=4, seed=0)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        list(sampler)
    assert sorted(rows.read) == list(range(50))


def test_rows_that_change_with_the_epoch_are_read_anew() -> None:
    class Changing(Rows):
        def set_epoch(self, epoch: int) -> None:
            self.lengths = [length + epoch for length in self.lengths]

    rows = Changing([5, 6])
    lengths = RowLengths(rows)
    assert not lengths.is_cached and lengths([1, 0, 1]) == [6, 5, 6]
    rows.set_epoch(10)
    assert lengths([1, 0]) == [16, 15]
    assert lengths.read_all().tolist() == [15, 16]


def test_more_rows_than_can_be_kept_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths_module, "MAX_CACHED_ROWS", 2)
    lengths = RowLengths(Rows([4, 5, 6]))
    assert not lengths.is_cached and lengths([2, 0]) == [6, 4]


# -------------------------------------------------------------------------------------------- where lengths come from


def test_given_lengths_may_be_of_any_kind() -> None:
    for given_lengths in ([3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), torch.tensor([3, 1, 2]), range(3, 0, -1)):
        lengths = RowLengths.of(given_lengths)
        assert len(lengths) == 3 and lengths([0, 0]) == [3, 3]
    assert len(RowLengths.of([])) == 0 and list(WindowedLengthSampler([], 4)) == []
    with pytest.raises(DataError, match="row 1 of the data set") as caught:
        RowLengths.of([3, -2])
    assert "-2, not a number of tokens" in str(caught.value)


def test_rows_have_a_column_of_lengths_or_a_length() -> None:
    rows = Rows([4, 5, 6])
    assert RowLengths(rows)([2, 0]) == [6, 4]
    assert RowLengths(rows, length_column="length")([2, 0]) == [994, 996]
    assert RowLengths(rows, length_column="num_tokens")([2, 0]) == [6, 4]
    assert RowLengths([{"ids": torch.zeros(4)}, {"ids": np.zeros(2)}], "ids")([1, 0]) == [2, 4]


def test_rows_that_can_be_read_together_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    class Together(Rows):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
            calls.append(len(indices))
            return [self[index] for index in indices]

    calls: list[int] = []
    monkeypatch.setattr(lengths_module, "ROWS_AT_ONCE", 4)
    assert RowLengths(Together(list(range(10)))).read_all().tolist() == list(range(10))
    assert calls == [4, 4, 2], "and not all of them held in memory at once"


def test_reading_rows_leaves_the_random_streams_alone() -> None:
    class Noisy(Rows):
        def __getitem__(self, index: int) -> dict[str, Any]:
            _ = torch.rand(1), random.random(), np.random.random()
            return super().__getitem__(index)

    set_seed(0)
    wanted = torch.rand(1).item(), random.random(), np.random.random()
    set_seed(0)
    list(WindowedLengthSampler(RowLengths(Noisy([3, 4, 5])), 2))
    assert (torch.rand(1).item(), random.random(), np.random.random()) == wanted


def test_reading_rows_twice_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    RowLengths([{"input_ids": [1]}])([0])
    assert capsys.readouterr().err == "", "a list costs nothing to read"
    for _ in range(2):
        RowLengths(Rows([3, 4]), length_column="len")([0])
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'input_ids'; a column 'len' would make this unnecessary" in said


def test_mistakes_name_the_row() -> None:
    cases: list[tuple[list[Any], str]] = [
        ([{"input_ids": [1]}, {"input_id": [1]}], "row 1 of the training set has no 'input_ids'.*'input_id' to 'inp"),
        ([{"input_ids": [1]}, 5], "it is a int, not a dict"),
        ([{"input_ids": [1]}, {"input_ids": 5}], "row 1 .*its 'input_ids' is 5, not a sequence"),
        ([{"input_ids": [1]}, {"n": None}], "row 1 .*its 'n' is None, not a number of tokens"),
        ([{"input_ids": [1]}, {"n": "seven"}], "row 1 .*its 'n' is 'seven', not a number"),
    ]
    for rows, text in cases:
        with pytest.raises(DataError, match=f"(?s){text}"):
            RowLengths(rows, length_column="n")([0, 1])


def test_an_error_of_the_data_set_stays_and_names_the_row() -> None:
    class Broken(Rows):
        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 3:
                raise OSError("disk")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="disk") as caught:
        RowLengths(Broken(list(range(5)))).read_all()
    assert "row 3 of the training set" in caught.value.__dict__["__notes__"][0]


def test_a_stream_has_no_lengths() -> None:
    with pytest.raises(DataError, match="sorting rows by length needs the number of rows"):
        RowLengths(iter([{"input_ids": [1]}]))


# ------------------------------------------------------------------------------------------------------------- tables


@pytest.fixture
def table() -> Any:
    datasets = pytest.importorskip("datasets")
    lengths = [5, 0, 7, 2, 9, 1]
    return datasets.Dataset.from_dict(
        {
            "input_ids": [[1] * length for length in lengths],
            "n": [length * 10 for length in lengths],
            "text": ["x"] * 6,
        }
    )


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_a_table_is_asked_for_one_column(table: Any, form: str | None) -> None:
    table = table.with_format(form)
    assert RowLengths(table)([4, 1, 4]) == [9, 0, 9]
    assert RowLengths(table, length_column="n")([4, 1, 4]) == [90, 0, 90]
    assert RowLengths(table, "text").read_all().tolist() == [1] * 6
    assert RowLengths(table, length_column="nothing")([4, 1]) == [9, 0]


@pytest.mark.parametrize("slice_size", [65_536, 4])
def test_a_table_that_was_shuffled_or_joined_is_read_right(
    table: Any, slice_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(lengths_module, "ROWS_PER_SLICE", slice_size)
    monkeypatch.setattr(lengths_module, "PROBED_ROWS", 32)
    for changed in (
        table.select([4, 4, 1, 0, 2, 5]),
        table.shuffle(seed=1),
        datasets.concatenate_datasets([table, table.select([3, 1]), table]),
        datasets.concatenate_datasets([table] * 12),
    ):
        wanted = [len(ids) for ids in changed["input_ids"]]
        assert RowLengths(changed).read_all().tolist() == wanted
        assert RowLengths(changed)([5, 0, 3]) == [wanted[5], wanted[0], wanted[3]]


def test_a_table_whose_rows_are_computed_is_read_row_by_row(table: Any) -> None:
    doubled = table.with_transform(lambda rows: {"input_ids": [ids * 2 for ids in rows["input_ids"]]})
    assert RowLengths(doubled)([4, 0]) == [18, 10]
    assert RowLengths(doubled, length_column="n")([4, 0]) == [90, 50]


def test_an_empty_place_in_a_table_is_named() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"input_ids": [[1], None, [2]], "n": [1, 2, None]})
    with pytest.raises(DataError, match="row 1 of the training set has no length"):
        RowLengths(table).read_all()
    with pytest.raises(DataError, match="row 2 of the training set has no length"):
        RowLengths(table, length_column="n").read_all()
    assert RowLengths(table.select([0, 2, 0, 2])).read_all().tolist() == [1, 1, 1, 1]


def test_columns_of_every_make_have_lengths() -> None:
    datasets = pytest.importorskip("datasets")
    kinds = {
        "fixed": datasets.List(datasets.Value("int64"), length=2),
        "large": datasets.LargeList(datasets.Value("int64")),
        "nested": datasets.List(datasets.List(datasets.Value("int64"))),
        "matrix": datasets.Array2D((2, 3), "float32"),
    }
    rows = {
        "fixed": [[1, 2]] * 3,
        "large": [[1, 2], [1], [1, 2, 3]],
        "nested": [[[1, 2], [1]], [[1]], []],
        "matrix": [[[1.0] * 3] * 2] * 3,
    }
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    for name, values in rows.items():
        assert RowLengths(table, name)([2, 0, 1]) == [len(values[row]) for row in (2, 0, 1)], name
        assert RowLengths(table.select([1, 2, 2]), name)([2, 0]) == [len(values[2]), len(values[1])], name


def test_other_columns_of_a_table_are_not_touched(table: Any) -> None:
    broken = table.add_column("image", [None] * 6)
    assert WindowedLengthSampler(RowLengths(broken), 2, seed=0).lengths([2]) == [7]


def test_a_table_without_rows_has_no_lengths() -> None:
    datasets = pytest.importorskip("datasets")
    lengths = RowLengths(datasets.Dataset.from_dict({"input_ids": [], "n": []}))
    assert len(lengths) == 0 and lengths([]) == [] and lengths.read_all().tolist() == []
