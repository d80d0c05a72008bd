"""Mixtures: proportions, passes, an order that is arithmetic, and losses of sets that add up."""

from __future__ import annotations

import copy
import math
import pickle
import random
from collections import Counter
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset

from ostinato.core.errors import ConfigError, DataError
from ostinato.data.batching.split_by_length import SplitBatch, SplitCollator
from ostinato.data.collate_errors import raise_collator_error
from ostinato.data.collators.default import default_data_collator
from ostinato.data.dataset_errors import RowNames
from ostinato.data.epoch_position import find_batch_rows, skip_batches
from ostinato.data.loader import build_loader
from ostinato.data.mixture import Mixture, MixtureError, MixtureSampler, SetRow, is_mixture
from ostinato.data.mixture_loss import SourceBatch, SourceCollator, SourceLosses


def rows(name: str, count: int) -> list[dict[str, Any]]:
    return [{"name": name, "x": number} for number in range(count)]


def mixture_of(sizes: dict[str, int], weights: dict[str, float] | None = None, **options: Any) -> Mixture:
    sets = {name: rows(name, size) for name, size in sizes.items()}
    return Mixture(sets if weights is None else {name: (sets[name], weights[name]) for name in sets}, **options)


CASES = [
    ({"a": 900, "b": 1300}, {"a": 0.7, "b": 0.3}),
    ({"a": 3000, "b": 100}, {"a": 0.5, "b": 0.5}),
    ({"a": 10, "b": 4990}, {"a": 0.99, "b": 0.01}),
    ({"a": 1000, "b": 777, "c": 2223, "d": 5}, {"a": 5, "b": 3, "c": 1.5, "d": 0.25}),
    ({name: 100 + 37 * number for number, name in enumerate("abcdefghijkl")}, None),
    ({"a": 2500, "b": 1}, None),
]


# The order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "weights"), CASES)
def test_proportions_are_right_at_every_place(sizes: dict[str, int], weights: dict[str, float] | None) -> None:
    mixture = mixture_of(sizes, weights)
    wanted = weights or sizes
    total = sum(wanted.values())
    sampler = MixtureSampler(mixture, seed=3)
    for epoch in (0, 4):
        sources = np.array([mixture.source_of(row) for row in sampler.order(epoch)])
        places = np.arange(1, len(sources) + 1)
        for name, weight in wanted.items():
            counts = np.cumsum(sources == name)
            off = np.abs(counts / places - weight / total)
            assert off[999:].max() <= 0.01
            assert np.abs(counts - places * weight / total).max() <= 1 + len(sizes) / 2  # rows, from the first on


@pytest.mark.parametrize("seed", range(5))
def test_proportions_of_random_mixtures(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcdefgh"[: rng.randint(2, 8)]
    sizes = {name: rng.randint(50, 900) for name in names}
    weights = {name: rng.uniform(0.05, 1) for name in names}
    mixture = mixture_of(sizes, weights)
    sources = np.array([mixture.source_of(row) for row in MixtureSampler(mixture, seed=seed)])
    places = np.arange(1, len(sources) + 1)
    for name in names:
        share = weights[name] / sum(weights.values())
        assert np.abs(np.cumsum(sources == name) - places * share).max() <= 1 + len(names) / 2


@pytest.mark.parametrize(("sizes", "weights"), CASES)
def test_every_row_of_a_set_comes_once_per_pass(sizes: dict[str, int], weights: dict[str, float] | None) -> None:
    mixture = mixture_of(sizes, weights)
    sampler = MixtureSampler(mixture, seed=0)
    read: dict[str, list[int]] = {name: [] for name in sizes}
    for epoch in range(4):  # passes go on over the limits of epochs
        for row in sampler.order(epoch):
            name, number = mixture.locate(row)
            read[name].append(number)
    for name, numbers in read.items():
        size = sizes[name]
        passes = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        for one in passes:
            assert len(set(one)) == len(one)
        whole = [one for one in passes if len(one) == size]
        assert all(sorted(one) == list(range(size)) for one in whole)
        if size > 20:
            assert all(one != other for one, other in pairwise(whole))  # each pass has an order of its own


def test_without_weights_an_epoch_is_every_row_once() -> None:
    mixture = mixture_of({"a": 30, "b": 12, "c": 1})
    sampler = MixtureSampler(mixture, seed=0)
    for epoch in range(3):
        assert sorted(sampler.order(epoch)) == list(range(43))
    assert mixture.weights == {"a": 30 / 43, "b": 12 / 43, "c": 1 / 43}


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    sizes, weights = CASES[0]
    sampler, other = (MixtureSampler(mixture_of(sizes, weights), seed=7) for _ in range(2))
    orders = []
    for epoch in (2, 0, 1):
        sampler.set_epoch(epoch)
        torch.rand(3)
        orders.append(list(sampler))
        assert orders[-1] == list(sampler) == list(other.order(epoch))
    assert orders[0] != orders[1] != orders[2]
    assert list(MixtureSampler(mixture_of(sizes, weights), seed=8).order(2)) != orders[0]
    assert len(sampler) == len(orders[0]) == 2200


def test_two_sets_of_one_size_have_orders_of_their_own() -> None:
    mixture = mixture_of({"a": 50, "b": 50})
    order = list(MixtureSampler(mixture, seed=0))
    assert [row for row in order if row < 50] != [row - 50 for row in order if row >= 50]


def test_an_order_can_be_entered_anywhere() -> None:
    sizes, weights = CASES[3]
    sampler = MixtureSampler(mixture_of(sizes, weights), seed=1)
    whole = list(sampler.order(5))
    for start in (0, 1, 999, len(whole) - 1, len(whole)):
        assert list(sampler.order(5, start)) == whole[start:]
    sampler.set_epoch(5)
    assert list(sampler) == whole


def test_shares_add_up_to_the_epoch() -> None:
    mixture = mixture_of({"a": 10, "b": 10, "c": 11}, {"a": 1, "b": 1, "c": 1})
    assert sum(mixture.shares.values()) == 31 and sorted(mixture.shares.values()) == [10, 10, 11]
    assert mixture_of({"a": 50, "b": 50}, {"a": 0.29, "b": 0.71}).shares == {"a": 29, "b": 71}


# Resuming with a loader ----------------------------------------------------------------------------------------------


def test_a_loader_resumes_at_any_batch(loader_settings: Any) -> None:
    mixture = mixture_of({"a": 20, "b": 9}, {"a": 1, "b": 2})

    def loader() -> Any:
        return build_loader(
            mixture,
            batch_size=4,
            sampler=MixtureSampler(mixture, seed=0),
            collate_fn=lambda found: [(row["name"], row["x"]) for row in found],
            settings=loader_settings(),
            training=True,
        )

    every = [list(loader_pass) for loader_pass in _passes(loader(), 3)]
    for epoch in range(3):
        for skip in range(len(every[epoch])):
            again = loader()
            again.set_epoch(epoch)
            assert list(skip_batches(again, skip)) == every[epoch][skip:]
    numbers = find_batch_rows(loader(), 1, range(2, 4))
    assert numbers is not None
    assert [(mixture[row]["name"], mixture[row]["x"]) for row in numbers] == [*every[1][2], *every[1][3]]


def _passes(loader: Any, count: int) -> Any:
    for epoch in range(count):
        loader.set_epoch(epoch)
        yield iter(loader)


# Rows ----------------------------------------------------------------------------------------------------------------


class Table(Dataset[Any]):
    """Reads many rows at a time, and notes down how often."""

    def __init__(self, size: int) -> None:
        self.size, self.reads, self.epoch = size, [], -1

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: int) -> Any:
        return {"row": row}

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        self.reads.append(numbers)
        return [self[number] for number in numbers]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_rows_are_those_of_the_sets_in_the_order_asked_for() -> None:
    table = Table(4)
    mixture = Mixture({"list": rows("list", 3), "table": table, "subset": Subset(Table(9), [8, 2])})
    assert len(mixture) == 9
    wanted = [8, 3, 0, 6, 2, 7]
    assert mixture.__getitems__ is not None
    found = mixture.__getitems__(wanted)
    assert found == [mixture[index] for index in wanted]
    assert found[:4] == [{"row": 2}, {"row": 0}, {"name": "list", "x": 0}, {"row": 3}]
    assert table.reads == [[0, 3]]
    assert [mixture.source_of(index) for index in wanted] == ["subset", "table", "list", "table", "list", "subset"]
    assert mixture.locate(torch.tensor(4)) == ("table", 1) and mixture.locate(np.int64(4)) == ("table", 1)
    for outside in (9, -1):
        with pytest.raises(IndexError):
            mixture[outside]


def test_sets_are_told_the_epoch() -> None:
    table = Table(4)
    Mixture({"a": rows("a", 2), "b": table}).set_epoch(3)
    assert table.epoch == 3


def test_a_tagged_mixture_names_the_set_of_each_row() -> None:
    mixture = mixture_of({"a": 2, "b": 1}, tagged=True)
    assert mixture[2] == SetRow("b", {"name": "b", "x": 0})
    assert [row.source for row in mixture.read_many([2, 0])] == ["b", "a"]


def test_sets_can_be_changed_but_keep_their_rows() -> None:
    mixture = mixture_of({"a": 3, "b": 1}, {"a": 1, "b": 1})
    changed = mixture.replace_sets(lambda name, found: [{"x": row["x"]} for row in found], tagged=True)
    assert changed[3] == SetRow("b", {"x": 0}) and mixture[3] == {"name": "b", "x": 0}
    assert changed.shares == mixture.shares
    assert list(MixtureSampler(changed, 0)) == list(MixtureSampler(mixture, 0))
    with pytest.raises(MixtureError, match="set 'a' of the mixture has 2 rows instead of 3"):
        mixture.replace_sets(lambda name, found: found[:2])


def test_a_row_that_cannot_be_read_is_named_by_its_set() -> None:
    class Broken(Table):
        def __getitem__(self, row: int) -> Any:
            raise OSError("no such file")

    class Slow(Broken):
        __getitems__ = None  # type: ignore[assignment]

    for broken, said in ((Slow(5), "it is row 1 of set 'b'"), (Broken(5), "they are rows 1, 4 of set 'b'")):
        mixture = Mixture({"a": rows("a", 3), "b": broken})
        with pytest.raises(OSError, match="no such file") as caught:
            mixture.read_many([0, 4, 7])
        assert any(said in note for note in caught.value.__notes__)


def test_columns_that_differ_are_named() -> None:
    mixture = Mixture({"a": [{"x": 1, "y": 2}], "b": [{"x": 1}], "c": [{"x": 1}]})
    error = KeyError("y")
    mixture.note_columns(error)
    assert error.__notes__ == [
        "ostinato: column 'y' differs between the sets of the mixture: 'a' has it, 'b' and 'c' lack it"
    ]
    same = KeyError("y")
    Mixture({"a": [{"x": 1}], "b": [{"x": 1}]}).note_columns(same)
    assert not getattr(same, "__notes__", [])


def test_data_sets_of_the_datasets_library_are_mixed() -> None:
    datasets = pytest.importorskip("datasets")
    one, two = (datasets.Dataset.from_dict({"x": list(range(start, start + 3))}) for start in (0, 10))
    mixture = Mixture({"one": (one, 2), "two": (two, 1)})
    assert mixture.read_many([4, 0]) == [{"x": 11}, {"x": 0}]
    assert is_mixture({"one": one, "two": (two, 1)}) and is_mixture(datasets.DatasetDict(one=one, two=two))
    with pytest.raises(MixtureError, match="set 'one' of the mixture is a stream") as caught:
        Mixture({"one": one.to_iterable_dataset()})
    assert "datasets.interleave_datasets" in caught.value.fix


# Mistakes ------------------------------------------------------------------------------------------------------------

SET = rows("a", 4)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(SET)


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        ({"a": (SET, 0)}, "the weight of set 'a' of the mixture is 0"),
        ({"a": (SET, -0.5), "b": (SET, 1)}, "the weight of set 'a' of the mixture is -0.5"),
        ({"a": (SET, math.nan)}, "the weight of set 'a' of the mixture is nan"),
        ({"a": (SET, math.inf)}, "the weight of set 'a' of the mixture is inf"),
        ({"a": (SET, True)}, "the weight of set 'a' of the mixture is True, a bool"),
        ({"a": (SET, "0.7")}, "the weight of set 'a' of the mixture is '0.7', a str"),
        ({"a": (SET, None)}, "the weight of set 'a' of the mixture is None"),
        ({"a": (0.7, SET)}, "set 'a' of the mixture has its weight first"),
        ({"a": (SET, 0.7), "b": SET}, "'b' of the mixture has no weight"),
        ({"a": [SET, 0.7]}, "is a list of a data set and 0.7"),
        ({"a": (SET, 0.7, "x")}, "set 'a' of the mixture is a tuple of 3"),
        ({"a": 0.7}, "set 'a' of the mixture is 0.7, not a data set"),
        ({"a": None}, "set 'a' of the mixture is None, not a data set"),
        ({"a": "train.csv"}, "the set 'a' of the mixture is a str ('train.csv'), not a data set"),
        ({"a": []}, "the set 'a' of the mixture is empty"),
        ({"a": ([], 1)}, "the set 'a' of the mixture is empty"),
        ({"a": SET, "b": Stream()}, "set 'b' of the mixture is a stream (Stream)"),
        ({"a": SET, "b": (row for row in SET)}, "set 'b' of the mixture is a stream (generator)"),
        ({"a": len}, "the set 'a' of the mixture is the function len"),
        ({"a": (SET, 1), "b": (SET, 1e-9)}, "set 'b' of the mixture would never be read"),
        ({"train": SET, "test": SET}, "the training set is a dict of splits: 'train' and 'test'"),
        ({}, "a mixture without sets"),
        ({3: SET}, "3 is not the name of a set"),
        ({"": SET}, "'' is not the name of a set"),
        ([SET, SET], "a mixture cannot be made of a list"),
    ],
)
def test_what_is_no_mixture_is_refused_in_three_parts(sets: Any, what: str) -> None:
    with pytest.raises(DataError) as caught:
        Mixture(sets)
    assert what in caught.value.what
    assert caught.value.why and caught.value.fix


def test_a_refused_weight_is_a_config_error_too() -> None:
    with pytest.raises(ConfigError):
        Mixture({"a": (SET, 0)})


def test_what_is_meant_as_a_mixture() -> None:
    assert is_mixture({"a": SET, "b": Table(3)})
    assert is_mixture({"a": (SET, "0.7")}) and is_mixture({"a": (0.7, SET)}) and is_mixture({"a": Stream()})
    assert is_mixture({"a": tuple(SET[:2])})
    assert not is_mixture({"input_ids": [[1, 2], [3]], "labels": [0, 1]})
    assert not is_mixture({0: {"x": 1}, 1: {"x": 2}}) and not is_mixture({}) and not is_mixture(SET)
    assert not is_mixture({"row": {"x": 1}}) and not is_mixture({"x": torch.ones(2), "y": np.ones(2)})


def test_a_tuple_of_two_rows_is_a_set() -> None:
    assert len(Mixture({"a": tuple(SET[:2]), "b": SET})) == 6


def test_splits_may_be_mixed_if_they_are_given_weights() -> None:
    assert len(Mixture({"train": (SET, 1), "test": (SET, 1)})) == 8


def test_weights_are_rescaled_aloud_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        mixture_of({"a": 60, "b": 40}, {"a": 3, "b": 1})
    assert capsys.readouterr().err == (
        "ostinato: an epoch of the mixture is 100 rows: a 75 % (75 rows, 1.25 passes), b 25 % (25 rows, 0.625 passes)"
        "; the weights were divided by their sum, 4\n"
    )
    mixture_of({"a": 60, "b": 40}, {"a": 0.7, "b": 0.3})
    assert "divided" not in capsys.readouterr().err
    mixture_of({"a": 60, "b": 40})
    assert capsys.readouterr().err == ""


# The loss of each set ------------------------------------------------------------------------------------------------


def test_without_a_set_that_reads_many_rows_each_is_read_by_itself() -> None:
    assert mixture_of({"a": 3, "b": 3}).__getitems__ is None


def test_batches_are_cut_by_set() -> None:
    mixture = mixture_of({"a": 3, "b": 3}, tagged=True)
    collate = SourceCollator(lambda found: [row["x"] for row in found])
    batch = collate(mixture.read_many([4, 0, 3, 2]))
    assert isinstance(batch, SplitBatch)
    assert list(batch) == [[1, 0], [0, 2]] and batch.sources == ["b", "a"]
    for other in (pickle.loads(pickle.dumps(batch)), copy.copy(batch)):
        assert type(other) is SourceBatch and other == batch and other.sources == batch.sources


def test_batches_may_be_cut_by_length_as_well() -> None:
    collate = SourceCollator(SplitCollator(lambda found: [len(row["ids"]) for row in found]))
    found = [SetRow(source, {"ids": [0] * length}) for source, length in zip("abab", (10, 5, 300, 5), strict=True)]
    batch = collate(found)
    assert list(batch) == [[300], [10], [5, 5]] and batch.sources == ["a", "a", "b"]


def test_the_set_of_a_row_may_be_asked_of_a_function() -> None:
    collate = SourceCollator(len, source_of=lambda row: row["name"])
    assert collate(rows("b", 2) + rows("a", 1)).sources == ["b", "a"]
    with pytest.raises(DataError, match="does not say which set it comes from"):
        SourceCollator(len)(rows("a", 1))


def test_a_row_that_cannot_be_joined_keeps_its_number() -> None:
    found = [SetRow("a", {"x": 1}), SetRow("b", {"x": 1}), SetRow("a", {"x": 2}), SetRow("b", {"y": 1})]
    collate = SourceCollator(default_data_collator)
    with pytest.raises(DataError) as caught:
        collate(found)
    with pytest.raises(DataError, match="row 90 of the training set has no 'x'"):
        raise_collator_error(caught.value, collate, found, RowNames("training set", [60, 70, 80, 90]))
    with pytest.raises(DataError, match="row 3 of the batch has no 'x'"):
        raise_collator_error(caught.value, collate, found, RowNames())

    def fails(_: Any) -> Any:
        raise RuntimeError("own")

    with pytest.raises(RuntimeError, match="own") as other:
        SourceCollator(fails)(found)
    assert other.value.__notes__ == ["ostinato: while rows of set 'a' of the mixture were collated"]


def test_losses_of_sets_add_up_to_the_loss_and_the_gradient_stays() -> None:
    """Micro-batches of one set each, weighted by their targets, are the uncut step."""
    torch.manual_seed(0)
    mixture = Mixture(
        {
            name: [{"x": torch.randn(4), "labels": torch.tensor(number % 3)} for number in range(size)]
            for name, size in {"a": 9, "b": 5, "c": 2}.items()
        },
        tagged=True,
    )
    model = torch.nn.Linear(4, 3)
    losses = SourceLosses(mixture.sets)
    collate = SourceCollator(default_data_collator)
    order = iter(MixtureSampler(mixture, seed=0))
    reported, per_set = [], Counter()
    while batch := list(islice(order, 6)):
        found = mixture.read_many(batch)
        whole = default_data_collator(collate.prepare_rows(found))
        loss = torch.nn.functional.cross_entropy(model(whole["x"]), whole["labels"])
        (gradient,) = torch.autograd.grad(loss, model.weight)
        parts = collate(found)
        shares = []
        for part, source in zip(parts, parts.sources, strict=True):
            weight = len(part["labels"]) / len(batch)
            shares.append(torch.nn.functional.cross_entropy(model(part["x"]), part["labels"]) * weight)
            losses.hold(source, shares[-1], weight)
            per_set[source] += len(part["labels"])
        torch.testing.assert_close(torch.autograd.grad(sum(shares), model.weight)[0], gradient)  # type: ignore[arg-type]
        losses.commit()
        reported.append(loss.item())
    drained = losses.drain()
    assert drained.keys() == {"a", "b", "c"} == per_set.keys()
    assert sum(each.weight for each in drained.values()) == pytest.approx(len(reported))
    assert sum(each.loss * each.weight for each in drained.values()) == pytest.approx(sum(reported), rel=1e-5)
    assert losses.drain() == {}


def test_the_loss_of_a_set_is_its_own() -> None:
    losses = SourceLosses(["a", "b"])
    losses.hold("b", torch.tensor(2.0, requires_grad=True) * 1, 0.5)
    losses.commit()
    losses.hold("a", torch.tensor(math.nan), 1.0)
    losses.reject()
    assert losses.drain(lambda table: table) == {"b": (4.0, 0.5)}


def test_losses_of_sets_survive_a_checkpoint() -> None:
    losses = SourceLosses(["a", "b"])
    losses.hold("a", torch.tensor(1.0), 0.5)
    losses.commit()
    later = SourceLosses(["c", "a"])
    later.restore(losses.progress())
    assert later.drain() == {"a": (2.0, 0.5)}
