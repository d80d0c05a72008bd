"""A place inside an epoch: which rows it stands for, and how to start there."""

from __future__ import annotations

import pytest

from ostinato.data.epoch_position import find_batch_rows, skip_batches
from tests.support import tiny
from tests.support.apis import Api

ROWS = [{"x": [float(i)] * 4, "labels": float(i)} for i in range(11)]

ORDERS = {
    "random": {},
    "a seed of its own": {"data_seed": 5},
    "in sequence": {"train_sampling_strategy": "sequential"},
    "last rows dropped": {"dataloader_drop_last": True},
}


def loader_of(api: Api, rows=ROWS, **arguments):
    options = dict(per_device_train_batch_size=2, max_steps=3, **arguments)
    return api.trainer(tiny.regression(), api.args(**options), train_dataset=rows).get_train_dataloader()


def numbers(batches) -> list[list[int]]:
    return [[int(label) for label in batch["labels"]] for batch in batches]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("epoch", [0, 3])
def test_rows_are_known_by_arithmetic(ours: Api, order: str, epoch: int) -> None:
    """The rows that a step was computed from, long after it was taken."""
    loader = loader_of(ours, **ORDERS[order])
    loader.set_epoch(epoch)
    seen = numbers(loader)
    for first in range(len(seen)):
        known = find_batch_rows(loader, epoch, range(first, first + 2))
        assert known is None or known == [row for batch in seen[first : first + 2] for row in batch]
    if order in ("a seed of its own", "in sequence"):
        assert find_batch_rows(loader, epoch, range(1)) == seen[0]


def test_rows_of_a_stream_are_unknown(ours: Api) -> None:
    assert find_batch_rows(loader_of(ours, tiny.StreamDataset(ROWS)), 0, range(2)) is None
    assert find_batch_rows([{"labels": 1}], 0, range(1)) is None


@pytest.mark.parametrize("count", [0, 1, 3, 6])
@pytest.mark.parametrize("order", ["a seed of its own", "in sequence"])
def test_skipped_batches_are_the_first_ones(ours: Api, order: str, count: int) -> None:
    loader = loader_of(ours, **ORDERS[order])
    loader.set_epoch(2)
    seen = numbers(loader)
    loader.set_epoch(2)
    assert numbers(skip_batches(loader, count)) == seen[count:]


def test_skipped_rows_are_not_read(ours: Api) -> None:
    read: list[int] = []

    class Rows(tiny.MapDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    loader = loader_of(ours, Rows(ROWS), train_sampling_strategy="sequential")
    assert len(numbers(skip_batches(loader, 4))) == 2
    assert sorted(read) == [8, 9, 10]


def test_batches_of_a_stream_are_read_and_dropped(ours: Api, capsys: pytest.CaptureFixture[str]) -> None:
    ours.library.core.notices.forget_notices()
    loader = loader_of(ours, tiny.StreamDataset(ROWS))
    assert numbers(skip_batches(loader, 4)) == [[8, 9], [10]]
    assert "reading and dropping 8 rows" in capsys.readouterr().err
