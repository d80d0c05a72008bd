"""Like lengths together in a stream: a window of rows is read ahead and sorted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from ostinato.arguments.settings import LoaderSettings
from ostinato.core.errors import DataError
from ostinato.data.epoch_position import skip_batches
from ostinato.data.loader import Loader, build_loader
from ostinato.data.streams.stream_buckets import StreamWindows, build_stream_windows

Settings = Callable[..., LoaderSettings]
COUNT, BATCH = 203, 4
LENGTHS = [random.Random(number).randint(1, 60) for number in range(COUNT)]


class Stream(IterableDataset[Any]):
    read = 0

    def __iter__(self) -> Any:
        for number, length in enumerate(LENGTHS):
            self.read += 1
            yield {"number": number, "input_ids": [0] * length}


def numbers(rows: list[Any]) -> list[int]:
    return [row["number"] for row in rows]


def loader_of(settings: LoaderSettings, stream: Any = None, group: int = BATCH) -> Loader:
    return build_loader(
        Stream() if stream is None else stream,
        batch_size=BATCH,
        sampler=None,
        collate_fn=numbers,
        settings=settings,
        training=True,
        windows=build_stream_windows(settings, group=group, input_name="input_ids"),
    )


def grouped(loader_settings: Settings, **more: Any) -> LoaderSettings:
    return loader_settings(**{"sampling": "group_by_length", "by_windows": True, "seed": 0, "window": 5, **more})


def padding(batches: list[list[int]]) -> int:
    return sum(
        max(LENGTHS[row] for row in batch) * len(batch) - sum(LENGTHS[row] for row in batch) for batch in batches
    )


def test_every_row_comes_once_and_little_is_padded(loader_settings: Settings) -> None:
    loader = loader_of(grouped(loader_settings))
    first, second = list(loader), list(loader)
    plain = list(loader_of(loader_settings()))
    for epoch in (first, second):
        assert sorted(itertools.chain(*epoch)) == list(range(COUNT))
        assert padding(epoch) < padding(plain) / 3
    assert first != second, "windows are shuffled anew in every epoch"
    loader.set_epoch(0)
    assert list(loader) == first


def test_no_more_than_a_window_is_read_ahead(loader_settings: Settings) -> None:
    stream = Stream()
    batches = iter(loader_of(grouped(loader_settings), stream))
    next(batches)
    assert stream.read == 5 * BATCH
    list(itertools.islice(batches, 4))  # the sixth is read ahead of the fifth
    assert stream.read == 10 * BATCH


def test_windows_grow_to_their_full_size() -> None:
    windows, starts, row = StreamWindows(group=2, seed=0), [], 0
    while row < 4000:
        starts.append(row // 2)
        row += windows.count_window_rows(row)
    assert starts == [0, 32, *range(96, 2000, 128)]


@pytest.mark.parametrize("count", [0, 1, 5, 7, 12, 50, 51])
def test_what_was_done_is_left_out(count: int, loader_settings: Settings) -> None:
    whole = list(loader_of(grouped(loader_settings)))
    assert len(whole) == 51
    assert list(skip_batches(loader_of(grouped(loader_settings)), count)) == whole[count:]


def test_processes_share_every_batch(loader_settings: Settings) -> None:
    whole = list(loader_of(grouped(loader_settings), group=2 * BATCH))
    shares = [list(loader_of(grouped(loader_settings, rank=rank, world_size=2), group=BATCH)) for rank in range(2)]
    assert len(shares[0]) == len(shares[1]) == 26
    order = [row for pair in zip(*shares, strict=True) for share in pair for row in share]
    assert order[:COUNT] == list(itertools.chain(*whole)), "the same order; what is left is a stand-in"


def test_rows_without_a_length_are_named(loader_settings: Settings) -> None:
    class Bare(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([{"input_ids": [1]}, {"inputs_ids": [1]}])

    with pytest.raises(DataError, match="row 1 of the training set has no 'input_ids'") as raised:
        list(loader_of(grouped(loader_settings), Bare()))
    assert "rename 'inputs_ids' to 'input_ids'" in str(raised.value)


def test_a_column_of_lengths_is_taken_at_its_word(loader_settings: Settings) -> None:
    class Told(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([{"number": number, "length": number % 2} for number in range(8)])

    batches = list(loader_of(grouped(loader_settings), Told()))
    assert sorted(map(sorted, batches)) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_without_a_window_the_order_of_a_stream_stays(
    loader_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = loader_settings(sampling="group_by_length")
    assert next(iter(loader_of(settings))) == [0, 1, 2, 3]
    assert "length_window=-1 sorts it window by window" in capsys.readouterr().err
    assert build_stream_windows(loader_settings(sampling="sequential"), group=4, input_name="x") is None
    assert "train_sampling_strategy='sequential' has no effect" in capsys.readouterr().err
