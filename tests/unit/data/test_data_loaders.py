"""Loaders read lazily, one batch ahead, each process its share, and refuse what has too few rows for one batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, get_worker_info

from ostinato.arguments.settings import LoaderSettings
from ostinato.core.errors import ConfigError, DataError
from ostinato.data.collators.default import default_data_collator
from ostinato.data.loader import Loader, build_loader, prefetch_batches
from ostinato.data.samplers.epoch_sampler import EpochSampler
from ostinato.data.sizes import count_examples, has_length, is_iterable, require_length
from ostinato.data.worker_streams import seed_worker

Settings = Callable[..., LoaderSettings]


def values(rows: list[Any]) -> list[Any]:
    """A collator that shows which rows came."""
    return [row["x"] for row in rows]


def table(rows: int) -> list[dict[str, int]]:
    return [{"x": number} for number in range(rows)]


class Recording(Dataset[Any]):
    """Writes down which rows are read, and which epochs it is told."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.log: list[Any] = []

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, int]:
        self.log.append(index)
        return {"x": index}

    def set_epoch(self, epoch: int) -> None:
        self.log.append(f"epoch {epoch}")


class Whole(Recording):
    """Can read the rows of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, int]]:
        self.log.append(tuple(indices))
        return [{"x": index} for index in indices]


class Stream(IterableDataset[Any]):
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[dict[str, int]]:
        return iter(table(self.rows))

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.rows


class Duck:
    """A stream that is no torch data set."""

    def __iter__(self) -> Iterator[dict[str, int]]:
        return iter(table(5))


def loader_of(dataset: Any, settings: LoaderSettings, batch_size: int = 2, **options: Any) -> Loader:
    return build_loader(
        dataset,
        **{"batch_size": batch_size, "sampler": None, "collate_fn": values, "training": True, **options},
        settings=settings,
    )


# -------------------------------------------------------------------------------------------------------- one ahead


def test_nothing_is_read_or_drawn_before_the_first_batch(loader_settings: Settings) -> None:
    rows = Recording(5)
    before = torch.get_rng_state()
    iterator = iter(loader_of(rows, loader_settings()))
    assert rows.log == []
    assert torch.equal(torch.get_rng_state(), before)
    next(iterator)
    assert rows.log == ["epoch 0", 0, 1, 2, 3]


def test_the_next_batch_is_read_before_this_one_is_used(loader_settings: Settings) -> None:
    rows = Recording(5)
    for batch in loader_of(rows, loader_settings()):
        rows.log.append(batch)
    assert rows.log == ["epoch 0", 0, 1, 2, 3, [0, 1], 4, [2, 3], [4]]


def test_a_pass_draws_one_number_as_torch_does(loader_settings: Settings) -> None:
    torch.manual_seed(0)
    list(loader_of(table(5), loader_settings()))
    ours = torch.get_rng_state()
    torch.manual_seed(0)
    list(DataLoader(table(5), batch_size=2, collate_fn=values))  # type: ignore[arg-type]
    assert torch.equal(ours, torch.get_rng_state())


def test_an_interrupted_pass_reads_no_further(loader_settings: Settings) -> None:
    rows = Recording(100)
    list(islice(loader_of(rows, loader_settings()), 3))
    assert rows.log == ["epoch 0", *range(8)]


@pytest.mark.parametrize("count", range(4))
def test_ahead_of_any_iterable(count: int) -> None:
    assert list(prefetch_batches(range(count))) == list(range(count))


# ------------------------------------------------------------------------------------------------------- data sets


def test_rows_are_read_together_where_the_data_set_can(loader_settings: Settings) -> None:
    rows = Whole(5)
    assert list(loader_of(rows, loader_settings())) == [[0, 1], [2, 3], [4]]
    assert rows.log == ["epoch 0", (0, 1), (2, 3), (4,)]


def test_tables_of_datasets(loader_settings: Settings) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0]}).with_format("torch")
    loader = loader_of(rows, loader_settings(), collate_fn=default_data_collator)
    first, second = list(loader)
    assert first["x"].tolist() == [[1, 2], [3, 4]] and first["labels"].tolist() == [0, 1]
    assert second["x"].tolist() == [[5, 6]]
    assert len(loader) == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_streams_of_datasets(loader_settings: Settings, workers: int) -> None:
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": list(range(6))}).to_iterable_dataset(num_shards=2)
    batches = list(loader_of(stream, loader_settings(num_workers=workers)))
    assert sorted(row for batch in batches for row in batch) == list(range(6))


def test_streams(loader_settings: Settings) -> None:
    assert list(loader_of(Stream(5), loader_settings())) == [[0, 1], [2, 3], [4]]
    assert list(loader_of(Stream(5), loader_settings(drop_last=True))) == [[0, 1], [2, 3]]
    assert list(loader_of(Duck(), loader_settings())) == [[0, 1], [2, 3], [4]]
    assert len(loader_of(SizedStream(5), loader_settings())) == 3


def test_a_user_may_iterate_by_hand_with_torch_s_attributes(loader_settings: Settings) -> None:
    loader = loader_of(table(5), loader_settings(drop_last=True), batch_size=2)
    assert isinstance(loader, DataLoader)
    assert (loader.batch_size, loader.drop_last, len(loader), loader.collate_fn) == (2, True, 2, values)


# ------------------------------------------------------------------------------------------------------------ epochs


def test_each_whole_pass_is_a_new_epoch(loader_settings: Settings) -> None:
    rows = table(7)
    loader = loader_of(rows, loader_settings(), 7, sampler=EpochSampler(7, seed=0))

    def order(epoch: int) -> list[int]:
        return torch.randperm(7, generator=torch.Generator().manual_seed(epoch)).tolist()

    assert list(loader) == [order(0)]
    next(iter(loader))  # broken off
    assert list(loader) == [order(1)]
    loader.set_epoch(9)
    assert list(loader) == [order(9)]
    assert list(loader) == [order(10)]


def test_epochs_reach_data_sets_of_every_kind(loader_settings: Settings) -> None:
    stream = Stream(3)
    loader = loader_of(stream, loader_settings())
    list(loader)
    list(loader)
    assert stream.epochs == [0, 1]
    shared = Stream(3)
    loader_of(shared, loader_settings(world_size=2)).set_epoch(4)
    assert shared.epochs == [4]


def test_evaluation_has_no_epochs(loader_settings: Settings) -> None:
    rows = Recording(2)
    loader = loader_of(rows, loader_settings(), training=False)
    list(loader)
    list(loader)
    assert rows.log == [0, 1, 0, 1]


def test_torch_s_random_sampler_is_made_repeatable_and_others_are_kept(
    loader_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = table(6)
    loader = loader_of(rows, loader_settings(seed=3), sampler=RandomSampler(rows))  # type: ignore[arg-type]
    assert isinstance(loader.sampler, EpochSampler) and loader.sampler.seed == 3
    assert "RandomSampler" in capsys.readouterr().err
    own = [
        RandomSampler(rows, generator=torch.Generator().manual_seed(5)),  # type: ignore[arg-type]
        RandomSampler(rows, replacement=True),  # type: ignore[arg-type]
        RandomSampler(rows, num_samples=3),  # type: ignore[arg-type]
        [3, 1, 2],
    ]
    for sampler in own:
        assert loader_of(rows, loader_settings(), sampler=sampler).sampler is sampler
    assert capsys.readouterr().err == ""


# --------------------------------------------------------------------------------------------------------- processes


def all_shares(dataset: Any, make: Settings, world_size: int, batch_size: int, **changes: Any) -> list[Loader]:
    return [
        loader_of(dataset, make(rank=rank, world_size=world_size, **changes), batch_size) for rank in range(world_size)
    ]


def counted_rows(loaders: list[Loader]) -> list[int]:
    """The rows that count, over all processes."""
    found: list[int] = []
    lengths = set()
    for loader in loaders:
        batches = list(loader)
        lengths.add(len(batches))
        for number, batch in enumerate(batches):
            real = loader.real_rows(number)
            assert real in (None, 0, len(batch))
            assert real != 0 or len(batch) == 1
            found += batch if real is None else batch[:real]
    assert len(lengths) == 1  # no process is left waiting for another
    return found


@pytest.mark.parametrize("kind", [table, Stream, SizedStream])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_every_row_counts_once(loader_settings: Settings, kind: Any, world_size: int, batch_size: int) -> None:
    for rows in range(1, 14):
        loaders = all_shares(kind(rows), loader_settings, world_size, batch_size)
        assert sorted(counted_rows(loaders)) == list(range(rows))
        if kind is not Stream:
            assert {len(loader) for loader in loaders} == {-(-rows // (batch_size * world_size))}
            assert {count_examples(loader) for loader in loaders} == {rows}


def test_streams_drop_what_does_not_fill_a_batch_of_all_processes(loader_settings: Settings) -> None:
    loaders = all_shares(SizedStream(11), loader_settings, 2, 2, drop_last=True)
    assert [list(loader) for loader in loaders] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert [len(loader) for loader in loaders] == [2, 2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_streams_with_workers_and_processes_count_every_row_once(loader_settings: Settings) -> None:
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": list(range(11))}).to_iterable_dataset(num_shards=2)
    loaders = all_shares(stream, loader_settings, 2, 2, num_workers=2)
    assert sorted(counted_rows(loaders)) == list(range(11))


def test_one_process_takes_torch_s_own_batches(loader_settings: Settings) -> None:
    assert type(loader_of(table(5), loader_settings()).batch_sampler) is torch.utils.data.BatchSampler


def test_a_sampler_that_is_split_already_is_not_split_again(loader_settings: Settings) -> None:
    rows = table(8)
    sampler = DistributedSampler(rows, num_replicas=2, rank=1, shuffle=False)  # type: ignore[arg-type]
    loader = loader_of(rows, loader_settings(rank=1, world_size=2), sampler=sampler)
    assert list(loader) == [[1, 3], [5, 7]]


# ----------------------------------------------------------------------------------------------------------- workers


class Drawing(Dataset[Any]):
    """Every row draws from every stream of random numbers."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        worker = get_worker_info()
        drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
        return {"x": (index, None if worker is None else worker.id, drawn)}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_of_different_processes_draw_different_numbers(loader_settings: Settings) -> None:
    def draw(rank: int) -> list[Any]:
        torch.manual_seed(1)
        settings = loader_settings(num_workers=2, rank=rank, world_size=2)
        sampler = DistributedSampler(Drawing(), num_replicas=2, rank=0, shuffle=False)
        return [drawn for batch in loader_of(Drawing(), settings, sampler=sampler) for *_, drawn in batch]

    first, again, other = draw(0), draw(0), draw(1)
    assert first == again
    for stream in range(3):
        assert not {numbers[stream] for numbers in first} & {numbers[stream] for numbers in other}


@pytest.mark.parametrize(("worker", "workers", "rank"), [(0, 2, 0), (1, 2, 0), (1, 2, 3)])
@pytest.mark.parametrize("seed", [5, 2**40 + 7])
def test_seed_worker_like_transformers(worker: int, workers: int, rank: int, seed: int) -> None:
    pytest.importorskip("transformers")
    from transformers.trainer_utils import seed_worker as theirs

    drawn = []
    for function in (seed_worker, theirs):
        torch.manual_seed(seed)
        function(worker, num_workers=workers, rank=rank)
        drawn.append((torch.initial_seed(), random.random(), float(np.random.rand()), float(torch.rand(()))))
    assert drawn[0] == drawn[1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_persistent_workers_serve_several_epochs(loader_settings: Settings) -> None:
    settings = loader_settings(num_workers=1, persistent_workers=True, prefetch_factor=4)
    loader = loader_of(Drawing(), settings, 2)
    assert [[row[0] for row in batch] for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert [[row[0] for row in batch] for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    del loader


def test_options_reach_torch(loader_settings: Settings) -> None:
    settings = loader_settings(
        num_workers=2, persistent_workers=True, prefetch_factor=3, multiprocessing_context="spawn", in_order=False
    )
    loader = loader_of(table(4), settings)
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (2, True, 3)
    assert loader.multiprocessing_context.get_start_method() == "spawn"  # type: ignore[union-attr]
    assert loader.in_order is False


def test_memory_is_pinned_only_for_a_gpu(loader_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    for kind, is_pinned in ((None, False), ("mps", False), ("cuda", True), ("xpu", True)):
        monkeypatch.setattr("ostinato.core.accelerator.find_kind", lambda kind=kind: kind)
        assert loader_of(table(4), loader_settings(pin_memory=True)).pin_memory is is_pinned
    assert loader_of(table(4), loader_settings(pin_memory=False)).pin_memory is False


@pytest.mark.parametrize(
    ("option", "value"),
    [("persistent_workers", True), ("prefetch_factor", 2), ("multiprocessing_context", "spawn")],
)
def test_options_of_workers_need_workers(loader_settings: Settings, option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"dataloader_{option}"):
        loader_of(table(4), loader_settings(**{option: value}))


# ------------------------------------------------------------------------------------------------------------ errors


def test_an_empty_data_set(loader_settings: Settings) -> None:
    with pytest.raises(DataError, match="the training set is empty"):
        loader_of([], loader_settings(), training=True)
    assert list(loader_of([], loader_settings(), training=False)) == []  # an evaluation of nothing


def test_fewer_rows_than_a_batch_with_drop_last(loader_settings: Settings) -> None:
    with pytest.raises(DataError) as caught:
        loader_of(table(5), loader_settings(drop_last=True, world_size=2), 4)
    text = str(caught.value)
    assert "5 rows" in text and "takes 8" in text and "dataloader_drop_last=False" in text and "at most 2" in text
    assert len(loader_of(table(5), loader_settings(world_size=2), 4)) == 1


def test_evaluation_sees_every_row(loader_settings: Settings) -> None:
    """`drop_last` is for training; transformers also evaluates without the last rows, and does not say so."""
    loader = loader_of(table(5), loader_settings(drop_last=True), batch_size=2, training=False)
    assert [len(batch) for batch in loader] == [2, 2, 1]
    assert len(list(loader_of(table(3), loader_settings(drop_last=True), batch_size=4, training=False))) == 1


def test_a_dict_of_data_sets(loader_settings: Settings) -> None:
    with pytest.raises(DataError, match="'train' and 'test'"):
        loader_of({"train": table(3), "test": table(3)}, loader_settings())


def test_something_that_is_no_data_set(loader_settings: Settings) -> None:
    with pytest.raises(DataError, match="is an int, which is not a data set"):
        loader_of(3, loader_settings())


# ------------------------------------------------------------------------------------------------------------- sizes


class Lying:
    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __len__(self) -> int:
        raise self.error


def test_has_length() -> None:
    assert has_length([]) and has_length(SizedStream(3)) and has_length(np.zeros(2))
    for without in (iter([]), Stream(3), Lying(TypeError), Lying(NotImplementedError)):
        assert not has_length(without)


def test_is_iterable() -> None:
    assert is_iterable(Stream(1)) and is_iterable(SizedStream(1)) and is_iterable(Duck())
    assert not is_iterable(table(1)) and not is_iterable(Recording(1))


def test_a_length_that_is_needed_and_not_there() -> None:
    assert require_length(table(3), needed_for="num_train_epochs") == 3
    with pytest.raises(DataError) as caught:
        require_length(Stream(3), description="training set", needed_for="num_train_epochs")
    text = str(caught.value)
    assert "training set (Stream) has no length" in text and "num_train_epochs" in text and "max_steps" in text


def test_num_examples(loader_settings: Settings) -> None:
    assert count_examples(loader_of(table(5), loader_settings(drop_last=True))) == 5
    assert count_examples(DataLoader(table(5), batch_size=2)) == 5  # type: ignore[arg-type]
    assert count_examples([1, 2, 3], batch_size=8) == 24
    with pytest.raises(DataError, match="no length"):
        count_examples(loader_of(Stream(3), loader_settings()), batch_size=8)
