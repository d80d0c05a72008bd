"""One batch cut by length."""

from __future__ import annotations

import copy
import pickle
from collections import UserDict
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from ostinato.core.tree import tree_map
from ostinato.data.batching.split_by_length import (
    OVERHEAD,
    PaddingMeter,
    SplitBatch,
    SplitCollator,
    _find_sized_columns,
    split_into_runs,
)

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

FEW = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def area(lengths: list[tuple[int, ...]]) -> int:
    return len(lengths) * sum(max(column) for column in zip(*lengths, strict=True))


def cost(lengths: list[tuple[int, ...]], runs: list[range], overhead: float) -> float:
    return sum(area(lengths[run.start : run.stop]) + overhead for run in runs)


def least_cost(lengths: list[tuple[int, ...]], overhead: float, max_area: int | None) -> float:
    """By trying all cuts."""
    count, found = len(lengths), []
    for pieces in range(count):
        for places in combinations(range(1, count), pieces):
            bounds = [0, *places, count]
            runs = [range(start, end) for start, end in pairwise(bounds)]
            if all(len(run) == 1 or max_area is None or area([lengths[i] for i in run]) <= max_area for run in runs):
                found.append(cost(lengths, runs, overhead))
    return min(found)


def some_rows(lengths: list[int], **columns: Any) -> list[dict[str, Any]]:
    return [{"id": number, "input_ids": [1] * length, **columns} for number, length in enumerate(lengths)]


def pad(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    return {
        "id": torch.tensor([row["id"] for row in rows]),
        "attention_mask": torch.tensor(
            [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
        ),
    }


# ---------------------------------------------------------------------------------------------------------- the cut


@FEW
@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(0, 60), st.booleans())
def test_the_cut_is_the_best_there_is(lengths: list[int], overhead: int, by_length: bool) -> None:
    if by_length:
        lengths.sort(reverse=True)
    rows = [(length,) for length in lengths]
    assert cost(rows, split_into_runs(lengths, overhead=overhead), overhead) == least_cost(rows, overhead, None)


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8),
    st.integers(0, 60),
    st.integers(1, 300) | st.none(),
)
def test_so_it_is_for_several_columns_and_within_an_area(
    rows: list[tuple[int, ...]], overhead: int, max_area: int | None
) -> None:
    rows.sort(key=sum, reverse=True)
    runs = split_into_runs(rows, overhead=overhead, max_area=max_area)
    assert cost(rows, runs, overhead) == least_cost(rows, overhead, max_area)
    one_column = [row[:1] for row in rows]
    runs = split_into_runs([row[0] for row in rows], overhead=overhead, max_area=max_area)
    assert cost(one_column, runs, overhead) == least_cost(one_column, overhead, max_area)


@FEW
@given(st.lists(st.integers(0, 600), max_size=80), st.floats(0, 2000))
def test_the_quick_way_finds_what_the_long_way_finds(lengths: list[int], overhead: float) -> None:
    lengths.sort(reverse=True)
    rows = [(length,) for length in lengths]
    runs = split_into_runs(lengths, overhead=overhead)
    assert [place for run in runs for place in run] == list(range(len(lengths)))
    far = 10**9  # an area that limits nothing, but takes the other way
    assert cost(rows, runs, overhead) == pytest.approx(
        cost(rows, split_into_runs(lengths, overhead=overhead, max_area=far), overhead)
    )
    assert all(area(rows[run.start : run.stop]) <= area(rows) for run in runs)


def test_equal_lengths_are_not_cut_and_free_cuts_are_complete() -> None:
    assert split_into_runs([7] * 5) == [range(5)]
    assert split_into_runs([9, 9, 4, 4, 4], overhead=0) == [range(2), range(2, 5)]
    assert split_into_runs([], overhead=1) == []
    assert split_into_runs([100, 100, 100], overhead=1, max_area=250) in (
        [range(1), range(1, 3)],
        [range(2), range(2, 3)],
    )
    assert split_into_runs([100, 90], overhead=1000, max_area=50) == [range(1), range(1, 2)]


# ---------------------------------------------------------------------------------------------------------- lengths


def test_what_is_padded_has_a_length() -> None:
    row = {
        "list": [1, 2, 3],
        "tuple": (1, 2),
        "tensor": torch.zeros(4),
        "matrix": torch.zeros(5, 2),
        "array": np.zeros(6),
        "range": range(7),
        "empty": [],
    }
    assert _find_sized_columns(row) == list(row)
    assert _find_sized_columns(UserDict(row)) == list(row)


def test_what_is_not_padded_has_none() -> None:
    row = {
        "label": 1,
        "score": 0.5,
        "text": "words",
        "bytes": b"words",
        "words": ["a", "b"],
        "scalar": torch.tensor(3),
        "number": np.float32(2),
        "point": np.array(2),
        "names": np.array(["a", "b"]),
        "nothing": None,
        "more": {"input_ids": [1]},
    }
    assert _find_sized_columns(row) == []
    assert _find_sized_columns([1, 2, 3]) == _find_sized_columns("text") == _find_sized_columns(None) == []


# -------------------------------------------------------------------------------------------------------- collating


@FEW
@given(st.lists(st.integers(0, 400), min_size=1, max_size=40))
def test_each_row_is_in_one_micro_batch_and_long_ones_come_first(lengths: list[int]) -> None:
    rows = some_rows(lengths)
    parts = SplitCollator(list)(rows)
    assert isinstance(parts, SplitBatch)
    assert sorted(row["id"] for part in parts for row in part) == list(range(len(rows)))
    spans = [
        (max(len(row["input_ids"]) for row in part), min(len(row["input_ids"]) for row in part)) for part in parts
    ]
    assert all(before[1] > after[0] for before, after in pairwise(spans))
    tokens = sum(longest * len(part) for (longest, _), part in zip(spans, parts, strict=True))
    assert tokens + OVERHEAD * (len(parts) - 1) <= len(rows) * max(lengths)


@pytest.mark.parametrize(
    "rows",
    [
        some_rows([5, 5, 5]),
        some_rows([5, 6, 5]),  # not worth a cut
        [{"x": 1.0}, {"x": 2.0}],
        [(torch.zeros(3), 1), (torch.zeros(900), 2)],
        [torch.zeros(3), torch.zeros(900)],
        [{"input_ids": [1] * 900}, {"ids": [1]}],
        [{"input_ids": [1] * 900}, {"input_ids": None}],
        [{"input_ids": torch.zeros(900)}, {"input_ids": torch.tensor(1)}],
    ],
)
def test_what_cannot_or_need_not_be_cut_stays_as_it_is(rows: list[Any]) -> None:
    seen = []
    assert SplitCollator(seen.append)(rows) == [None]
    assert len(seen) == 1 and seen[0] is rows


def test_a_second_column_has_a_say() -> None:
    def parts(*lengths: tuple[int, int]) -> list[list[int]]:
        rows = [
            {"id": n, "input_ids": [1] * a, "mask": [1] * a, "labels": [1] * b} for n, (a, b) in enumerate(lengths)
        ]
        return SplitCollator(lambda rows: [row["id"] for row in rows])(rows)

    assert parts((100, 10), (100, 500), (100, 12)) == [[1], [2, 0]]
    assert parts((100, 10), (300, 500), (100, 12)) == [[1], [2, 0]]
    assert parts((100, 100), (100, 100)) == [[0, 1]]


def test_a_mask_does_not_count_twice() -> None:
    lengths = [100, 75, 75]  # 50 tokens more uncut than cut, 64 for the cut
    alone = [{"input_ids": [1] * length} for length in lengths]
    masked = [{**row, "attention_mask": list(row["input_ids"]), "token_type_ids": row["input_ids"]} for row in alone]
    assert len(SplitCollator(len)(alone)) == len(SplitCollator(len)(masked)) == 1
    assert len(SplitCollator(len, overhead=49)(masked)) == 2


def test_lengths_count_as_they_are_padded() -> None:
    class Padding:
        pad_to_multiple_of = 128

        def __call__(self, rows: list[Any]) -> int:
            return len(rows)

    class Around:
        data_collator = Padding()
        __call__ = data_collator.__call__

    rows = some_rows([120, 120, 40, 40, 40])
    assert SplitCollator(len)(rows) == [2, 3]
    assert SplitCollator(Padding())(rows) == SplitCollator(Around())(rows) == [5]
    assert SplitCollator(len, pad_to_multiple_of=128)(rows) == [5]
    assert SplitCollator(Padding())(some_rows([130, 40, 120])) == [1, 2]


def test_an_error_tells_of_the_rows_of_the_whole_batch() -> None:
    def collate(rows: list[Any]) -> None:
        for place, row in enumerate(rows):
            if row["id"] == 2:
                raise KeyError(f"row {place} of the batch")

    with pytest.raises(KeyError, match="row 2 of the batch") as caught:
        SplitCollator(collate)(some_rows([10, 300, 300, 10]))
    assert caught.value.__context__ is None


def test_an_error_of_a_part_alone_is_raised_too() -> None:
    def collate(rows: list[Any]) -> None:
        if len(rows) == 1:
            raise ValueError("too few")

    with pytest.raises(ValueError, match="too few"):
        SplitCollator(collate)(some_rows([10, 300, 11]))


# ------------------------------------------------------------------------------------------------- the way it travels


def test_it_stays_what_it_is_wherever_it_is_copied() -> None:
    parts = SplitBatch([{"x": torch.ones(2)}, {"x": torch.zeros(1)}])
    for copied in (
        pickle.loads(pickle.dumps(parts)),
        copy.copy(parts),
        copy.deepcopy(parts),
        tree_map(lambda leaf: leaf.clone(), parts),
    ):
        assert type(copied) is SplitBatch and [part["x"].tolist() for part in copied] == [[1, 1], [0]]


def test_it_comes_back_from_pinned_memory() -> None:
    class Value:
        """Pinning tensors takes an accelerator."""

        def pin_memory(self) -> str:
            return "pinned"

    pinned = pin_memory(SplitBatch([{"x": Value()}, {"x": Value()}]))
    assert type(pinned) is SplitBatch and pinned == [{"x": "pinned"}, {"x": "pinned"}]


@pytest.mark.parametrize("workers", [0, 1])
def test_it_comes_back_from_workers(workers: int) -> None:
    rows = some_rows([10, 300, 12, 290, 7, 8, 9, 5])
    loader = DataLoader(rows, batch_size=4, collate_fn=SplitCollator(pad), num_workers=workers)  # type: ignore[arg-type]
    first, second = list(loader)
    assert type(first) is SplitBatch and type(second) is SplitBatch
    assert [part["id"].tolist() for part in first] == [[1, 3], [2, 0]]
    assert [tuple(part["attention_mask"].shape) for part in first] == [(2, 300), (2, 12)]
    assert [part["id"].tolist() for part in second] == [[4, 5, 6, 7]]


def test_the_gradient_is_that_of_the_whole_batch() -> None:
    torch.manual_seed(0)
    weights = torch.randn(4, requires_grad=True)
    rows = some_rows([10, 300, 12, 290, 40])

    def gradient(batches: list[dict[str, torch.Tensor]]) -> torch.Tensor:
        weights.grad = None
        for batch in batches:
            rows_of_batch = batch["attention_mask"].sum(dim=1, dtype=torch.float32)
            ((rows_of_batch[:, None] * weights).sin().mean(dim=1).sum() / len(rows)).backward()
        assert weights.grad is not None
        return weights.grad.clone()

    parts = SplitCollator(pad)(rows)
    assert len(parts) > 1
    torch.testing.assert_close(gradient(parts), gradient([pad(rows)]))


# ------------------------------------------------------------------------------------------------ what could be saved


def test_a_meter_counts_rows_and_batches_alike() -> None:
    rows = some_rows([10, 300, 11, 290])
    by_rows, by_batch = PaddingMeter(), PaddingMeter()
    by_rows.add(rows)
    by_batch.add_batch(pad(rows))
    for meter in (by_rows, by_batch):
        assert (meter.real, meter.padded, meter.split) == (611, 1200, 622)
        assert meter.share_of_padding == pytest.approx(589 / 1200) and meter.saved == pytest.approx(578 / 1200)
    assert by_rows.advise() == "49 % of the tokens are padding: split_by_length=True would save 48 % of the tokens"
    assert by_rows.advise(least=0.5) is None


def test_a_meter_counts_what_is_written_as_well_as_what_is_read() -> None:
    meter = PaddingMeter(overhead=0)
    mask, other = torch.ones(2, 4), torch.tensor([[1, 0, 0], [1, 1, 1]])
    meter.add_batch({"attention_mask": mask, "decoder_attention_mask": other})
    assert (meter.real, meter.padded, meter.split) == (12, 14, 12)


def test_a_meter_looks_at_the_first_batches_only() -> None:
    meter = PaddingMeter(batches=2)
    for length in (100, 200, 5000):
        meter.add(some_rows([1, length]))
    assert meter.padded == 600
    meter.add_batch(pad(some_rows([1, 10])))
    assert meter.padded == 600


def test_a_meter_that_has_seen_nothing_says_nothing() -> None:
    meter = PaddingMeter()
    meter.add([{"x": 1.0}, {"x": 2.0}])
    meter.add([])
    meter.add_batch({"x": torch.zeros(2)})
    meter.add_batch([torch.zeros(2)])
    meter.add_batch({"attention_mask": torch.ones(2, 1, 3, 3)})
    assert meter.saved == meter.share_of_padding == 0 and meter.advise() is None and meter.batches_left == 32
    meter.add(some_rows([7, 7]))
    assert meter.saved == 0 and meter.padded == 14 and meter.advise() is None
