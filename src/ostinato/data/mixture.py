"""Several training sets, mixed by weight: the row and the set at each position are computed by arithmetic.

    train_dataset={"code": (code, 0.7), "prose": (prose, 0.3)}

An epoch has as many rows as all sets together. Each set gets its share of them, spread evenly: at every position of an
epoch the proportions are right to a few rows. A set that is larger than its share continues in the next epoch where it
stopped; a smaller one begins again. Either way it is read in passes, each in an order of its own that has every row
once: at any time the rows of a set have been read equally often, give or take one.

No state is kept. Before epoch e a set has given e times its share, so the order of an epoch is a function of the seed
and the epoch's number, and a run can resume anywhere.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from ..core.errors import ConfigError, DataError, add_note
from ..core.notices import note_once
from .columns import has_columns, join_names, quote_names
from .dataset_errors import build_not_a_data_set_error, check_addressable, check_data_set, shorten, with_article
from .row_types import SetRow
from .samplers.base import announce_epoch
from .samplers.epoch_sampler import EpochSampler
from .sizes import is_iterable

Numbers = npt.NDArray[np.int64]

_EXAMPLE = 'train_dataset={"code": (code, 0.7), "prose": (prose, 0.3)}'
_HELD_OUT = ("test", "validation", "valid", "val", "dev", "eval", "evaluation")


class MixtureError(DataError, ConfigError):
    """Sets, or weights of sets, that make no mixture."""


class Mixture(Dataset[Any]):
    """Several data sets as one, with numbered rows: those of the first set, then those of the second, and so on.

    `sets` has a data set and its weight for each name, or only the data sets, whose weights are then their lengths.
    Weights are shares of their sum. `MixtureSampler` gives the order in which rows are read. Rows are not changed;
    `source_of` returns the set of a row, and a `tagged` mixture returns each row as a `SetRow` for `SourceCollator`.

    >>> mixture = Mixture({"a": (["a0", "a1", "a2"], 0.75), "b": (["b0"], 0.25)})
    >>> mixture[3], mixture.source_of(3), len(mixture)
    ('b0', 'b', 4)
    >>> mixture.shares
    {'a': 3, 'b': 1}
    >>> Mixture({"a": ["a0"], "b": ["b0"]}, tagged=True)[1]
    SetRow(source='b', row='b0')
    """

    def __init__(self, sets: Mapping[str, Any], *, tagged: bool = False) -> None:
        _check_names(sets)
        self.tagged = tagged
        self.sets, weights = _separate_weights(sets)
        for name, dataset in self.sets.items():
            _check_set(name, dataset)
        self.sizes = {name: len(dataset) for name, dataset in self.sets.items()}
        self._names, self._starts = list(self.sets), [0, *accumulate(self.sizes.values())]
        total = sum(weights.values()) if weights else len(self)
        self.weights = {name: weight / total for name, weight in (weights or self.sizes).items()}
        self.shares = _compute_shares(self.weights, len(self)) if weights else dict(self.sizes)  # rows per epoch
        if weights:
            note_once(self._describe(weights))

    def __len__(self) -> int:
        return self._starts[-1]

    def locate(self, index: Any) -> tuple[str, int]:
        """Return the set of a row, and the row's number in it.

        >>> Mixture({"a": ["a0", "a1"], "b": ["b0"]}).locate(2)
        ('b', 0)
        """
        number = operator.index(index)
        if not 0 <= number < len(self):
            raise IndexError(f"row {number} of a mixture of {len(self)} rows")
        place = bisect_right(self._starts, number) - 1
        return self._names[place], number - self._starts[place]

    def source_of(self, index: Any) -> str:
        """Return the name of the set that a row comes from."""
        return self.locate(index)[0]

    def __getitem__(self, index: Any) -> Any:
        name, row = self.locate(index)
        return self._tag(name, self._read(name, row))

    @property
    def __getitems__(self) -> Callable[[Sequence[Any]], list[Any]] | None:
        """`read_many`, if a set supports it; else rows are read one by one, each with random numbers of its own."""
        able = any(getattr(dataset, "__getitems__", None) is not None for dataset in self.sets.values())
        return self.read_many if able else None

    def read_many(self, indices: Sequence[Any]) -> list[Any]:
        """Return many rows; those of a set that can read many at a time are read together."""
        places: dict[str, list[tuple[int, int]]] = {}
        for place, index in enumerate(indices):
            name, row = self.locate(index)
            places.setdefault(name, []).append((place, row))
        found: list[Any] = [None] * len(indices)
        for name, wanted in places.items():
            rows = self._read_many(name, [row for _, row in wanted])
            for (place, _), row in zip(wanted, rows, strict=True):
                found[place] = self._tag(name, row)
        return found

    def set_epoch(self, epoch: int) -> None:
        """Announce the epoch to the sets that have a `set_epoch`."""
        for dataset in self.sets.values():
            announce_epoch(dataset, epoch)

    def replace_sets(self, change: Callable[[str, Any], Any], *, tagged: bool | None = None) -> Mixture:
        """Return the same mixture of changed sets, for example without unused columns; all keep their rows.

        >>> mixture = Mixture({"a": ["x", "y", "z"], "b": ["w"]})
        >>> mixture.replace_sets(lambda name, rows: [row + name for row in rows])[3]
        'wb'
        """
        changed = {name: change(name, dataset) for name, dataset in self.sets.items()}
        mixture = object.__new__(Mixture)
        mixture.__dict__.update(self.__dict__, sets=changed, tagged=self.tagged if tagged is None else tagged)
        for name, dataset in changed.items():
            if len(dataset) != self.sizes[name]:
                raise MixtureError(
                    what=f"set {name!r} of the mixture has {len(dataset)} rows instead of {self.sizes[name]}",
                    why="rows are read by number, and each number must keep its meaning",
                    fix="change the set before it is added to the mixture",
                )
        return mixture

    # ---- reading -------------------------------------------------------------------------------

    def _tag(self, name: str, row: Any) -> Any:
        return SetRow(name, row) if self.tagged else row

    def _read(self, name: str, row: int) -> Any:
        try:
            return self.sets[name][row]
        except Exception as error:
            add_note(error, f"ostinato: it is row {row} of set {name!r} of the mixture")
            raise

    def _read_many(self, name: str, rows: list[int]) -> list[Any]:
        many = getattr(self.sets[name], "__getitems__", None)
        if many is None:
            return [self._read(name, row) for row in rows]
        try:
            return many(rows)
        except Exception as error:
            add_note(error, f"ostinato: they are rows {join_names(rows)} of set {name!r} of the mixture")
            raise

    # ---- messages ------------------------------------------------------------------------------

    def note_columns(self, error: Exception) -> None:
        """Add a note to the error of rows that could not be joined, if the columns of their sets differ."""
        columns = {name: _find_columns(dataset) for name, dataset in self.sets.items()}
        if not all(columns.values()):
            return
        for name in dict.fromkeys(name for each in columns.values() for name in each):
            having = [source for source, each in columns.items() if name in each]
            lacking = [source for source in columns if source not in having]
            if lacking:
                has, have_not = "have" if len(having) > 1 else "has", "lack" if len(lacking) > 1 else "lacks"
                add_note(
                    error,
                    f"ostinato: column {name!r} differs between the sets of the mixture: {quote_names(having)} {has} "
                    f"it, {quote_names(lacking)} {have_not} it",
                )

    def _describe(self, weights: Mapping[str, float]) -> str:
        passes = {name: _format_passes(share / self.sizes[name]) for name, share in self.shares.items()}
        parts = [
            f"{name} {100 * self.weights[name]:.4g} % ({share} rows, {passes[name]} passes)"
            for name, share in self.shares.items()
        ]
        total = sum(weights.values())
        divided = "" if math.isclose(total, 1) else f"; the weights were divided by their sum, {total:.6g}"
        return f"an epoch of the mixture is {len(self)} rows: {', '.join(parts)}{divided}"


class MixtureSampler(EpochSampler):
    """The order of a mixture's rows: sets alternate evenly, each in random order. A function of seed and epoch.

    >>> mixture = Mixture({"a": (["a0", "a1", "a2", "a3"], 3), "b": (["b0", "b1", "b2", "b3"], 1)})
    >>> [mixture.source_of(row) for row in MixtureSampler(mixture, seed=0)]
    ['a', 'a', 'b', 'a', 'a', 'a', 'b', 'a']
    """

    def __init__(self, mixture: Mixture, seed: int | None = None) -> None:
        super().__init__(len(mixture), seed)
        self.mixture = mixture

    def order(self, epoch: int, start: int = 0) -> Iterator[int]:
        """Return the rows of an epoch from position `start` on.

        >>> sampler = MixtureSampler(Mixture({"a": list(range(9)), "b": list(range(4))}), seed=0)
        >>> list(sampler.order(7, start=5)) == list(sampler.order(7))[5:]
        True
        """
        starts = accumulate(self.mixture.sizes.values(), initial=0)
        rows = [
            start + self._compute_rows(number, name, epoch)
            for number, (name, start) in enumerate(zip(self.mixture.shares, starts, strict=False))
        ]
        return iter(np.concatenate(rows)[_interleave(list(self.mixture.shares.values()))[start:]].tolist())

    def _compute_rows(self, number: int, name: str, epoch: int) -> Numbers:
        """Return the rows that a set gives to an epoch: those of its current pass, then of as many more as needed."""
        size, share = self.mixture.sizes[name], self.mixture.shares[name]
        first_pass, done = divmod(epoch * share, size)
        passes = range(first_pass, first_pass + -(-(done + share) // size))
        rows = np.concatenate([_permute(size, self.seed, number, each) for each in passes])
        return rows[done : done + share]


def is_mixture(data: Any) -> bool:
    """Return whether an object passed as a data set is a mixture: names of data sets, with weights or without.

    >>> is_mixture({"a": ([{"x": 1}], 0.5), "b": ([{"x": 2}], 0.5)}), is_mixture({"x": [1, 2]}), is_mixture([{"x": 1}])
    (True, False, False)
    """
    if not isinstance(data, Mapping) or not data or not all(isinstance(name, str) for name in data):
        return False
    values = list(data.values())
    return any(map(_is_weighted, values)) or all(map(_is_data_set, values))


def convert_to_mixture(data: Any) -> Any:
    """Return a `Mixture` of names and data sets; anything else unchanged, also a data set with its splits.

    >>> len(convert_to_mixture({"a": [{"x": 1}], "b": [{"x": 2}]})), convert_to_mixture([{"x": 1}])
    (2, [{'x': 1}])
    """
    if not is_mixture(data) or (_find_held_out_splits(data) and not _has_weights(data)):
        return data
    return Mixture(data)


def _format_passes(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


# Arithmetic ----------------------------------------------------------------------------------------------------------


def _compute_shares(weights: Mapping[str, float], rows: int) -> dict[str, int]:
    """Return how many of `rows` rows each set gets: its weight, rounded to add up (the largest remainders up)."""
    exact = {name: weight * rows for name, weight in weights.items()}
    shares = {name: math.floor(amount) for name, amount in exact.items()}
    by_remainder = sorted(exact, key=lambda name: shares[name] - exact[name])
    for name in by_remainder[: rows - sum(shares.values())]:
        shares[name] += 1
    for name, share in shares.items():
        if share == 0:
            raise MixtureError(
                what=f"set {name!r} of the mixture would never be read",
                why=f"{weights[name]:.3g} of the {rows} rows of an epoch is less than one row",
                fix="give it a larger weight, or leave it out",
            )
    return shares


def _interleave(shares: Sequence[int]) -> npt.NDArray[np.intp]:
    """Return the order in which sets alternate, as positions in their concatenation.

    Row j of n is placed at (j + 1/2) / n (Sainte-Laguë's rule for seats): no set is ever further from its share than
    half a row for itself and the same for each of the others, in proportion.
    """
    way = np.concatenate([(np.arange(share) + 0.5) / share for share in shares])
    return np.argsort(way, kind="stable")


def _permute(size: int, seed: int, number: int, pass_: int) -> Numbers:
    """Return the order of one pass over one set."""
    mixed = np.random.SeedSequence([seed % 2**64, number, pass_]).generate_state(1, np.uint64)
    return torch.randperm(size, generator=torch.Generator().manual_seed(int(mixed[0]))).numpy()


# Sets and weights ----------------------------------------------------------------------------------------------------


def _separate_weights(sets: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the sets and their weights; no weights where none are given."""
    weighted = [name for name, value in sets.items() if _is_pair(value)]
    if not weighted:
        _check_splits(sets)
        return dict(sets), {}
    bare = [name for name in sets if name not in weighted]
    if bare:
        raise MixtureError(
            what=f"{quote_names(bare)} of the mixture {'have' if len(bare) > 1 else 'has'} no weight",
            why=f"{quote_names(weighted)} {'have one' if len(weighted) > 1 else 'has one'}, and weights are relative",
            fix="give every set a weight, or none: without weights each set counts by its number of rows",
        )
    return {name: pair[0] for name, pair in sets.items()}, {
        name: _read_weight(name, pair) for name, pair in sets.items()
    }


def _read_weight(name: str, pair: tuple[Any, Any]) -> float:
    dataset, weight = pair
    if _is_number(dataset) and not _is_number(weight):
        raise MixtureError(
            what=f"set {name!r} of the mixture has its weight first: ({dataset!r}, {type(weight).__name__})",
            why="the set comes first, then its weight",
            fix=f"write {name!r}: (dataset, {dataset!r})",
        )
    if not _is_number(weight):
        raise MixtureError(
            what=f"the weight of set {name!r} of the mixture is {shorten(weight)}, {with_article(weight)}",
            why="a weight is a number greater than 0",
            fix=f"write {name!r}: (dataset, 0.5)",
        )
    if not (math.isfinite(weight) and weight > 0):
        raise MixtureError(
            what=f"the weight of set {name!r} of the mixture is {float(weight):g}",
            why="a weight is a number greater than 0; a set is read in proportion to it",
            fix=f"leave {name!r} out" if weight == 0 else f"write {name!r}: (dataset, 0.5)",
        )
    return float(weight)


def _is_pair(value: Any) -> bool:
    """Return whether a value is a set and its weight, and not a tuple of two rows."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return not all(isinstance(part, (Mapping, tuple)) for part in value)


def _is_weighted(value: Any) -> bool:
    # An empty list with a weight is an empty set, which the mixture refuses by its name.
    return _is_pair(value) and (any(map(_is_data_set, value)) or (value[0] == [] and _is_number(value[1])))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_data_set(value: Any) -> bool:
    """Return whether a value is a data set rather than a column."""
    if isinstance(value, (list, tuple)):
        return bool(value) and isinstance(value[0], Mapping)
    if isinstance(value, (np.ndarray, torch.Tensor, str, bytes, Mapping, Real, type(None))):
        return False
    return has_columns(value) or callable(getattr(value, "__getitem__", None)) or is_stream(value)


def is_stream(dataset: Any) -> bool:
    """Return whether rows can only be read one after another."""
    return is_iterable(dataset) and callable(getattr(dataset, "__iter__", None))


def _check_names(sets: Any) -> None:
    if not isinstance(sets, Mapping):
        raise MixtureError(
            what=f"a mixture cannot be made of {with_article(sets)}",
            why="the loss of each set is reported under its name",
            fix=f"pass a dict, such as {_EXAMPLE}",
        )
    if not sets:
        raise MixtureError(
            what="a mixture without sets has no rows",
            why="the dict of training sets is empty",
            fix=f"pass at least one, such as {_EXAMPLE}",
        )
    for name in sets:
        if not isinstance(name, str) or not name:
            raise MixtureError(
                what=f"{name!r} is not the name of a set",
                why="the loss of each set is reported under its name",
                fix=f"use a string, such as {_EXAMPLE}",
            )


def _check_splits(sets: Mapping[str, Any]) -> None:
    """Raise for a data set with its splits: it is a dict of data sets too, but includes the test set."""
    held_out = _find_held_out_splits(sets)
    if held_out:
        raise MixtureError(
            what=f"the training set is a dict of splits: {quote_names(sets)}",
            why=f"as a mixture, {quote_names(held_out)} would be trained on as well",
            fix='pass one of them: dataset["train"]; a mixture of sets with such names needs weights: (dataset, 0.5)',
        )


def _find_held_out_splits(sets: Mapping[str, Any]) -> list[str]:
    """Return the splits that are not meant for training, in a data set with its splits."""
    has_train = any(name.lower() == "train" for name in sets)
    return [name for name in sets if name.lower() in _HELD_OUT] if has_train else []


def _has_weights(sets: Mapping[str, Any]) -> bool:
    return any(map(_is_pair, sets.values()))


def _check_set(name: str, dataset: Any) -> None:
    source = f"set {name!r} of the mixture"
    if isinstance(dataset, (Real, type(None))):
        raise MixtureError(
            what=f"{source} is {dataset!r}, not a data set",
            why="each value is a data set, or a data set and its weight",
            fix=f"for example {_EXAMPLE}",
        )
    if isinstance(dataset, list) and len(dataset) == 2 and _is_data_set(dataset[0]) and _is_number(dataset[1]):
        raise MixtureError(
            what=f"{source} is a list of a data set and {dataset[1]!r}",
            why="a list is read as a list of rows",
            fix=f"write a tuple: {name!r}: (dataset, {dataset[1]!r})",
        )
    if isinstance(dataset, tuple) and len(dataset) > 2 and _is_data_set(dataset[0]):
        raise MixtureError(
            what=f"{source} is a tuple of {len(dataset)}",
            why="each value is a data set, or a data set and its weight",
            fix=f"for example {_EXAMPLE}",
        )
    check_data_set(dataset, source)
    if is_stream(dataset):
        raise MixtureError(
            what=f"{source} is a stream ({type(dataset).__name__})",
            why="a mixture reads rows by number, and the rows of a stream have none",
            fix="load it without streaming=True, or mix streams beforehand: datasets.interleave_datasets([...], "
            "probabilities=[...])",
        )
    if is_iterable(dataset):
        raise build_not_a_data_set_error(dataset, source)
    check_addressable(dataset, source)


def _find_columns(dataset: Any) -> list[str]:
    """Return the columns of a set, by its own attribute or by its first row; none if neither has names."""
    names = getattr(dataset, "column_names", None)
    if isinstance(names, (list, tuple)):
        return list(names)
    with suppress(Exception):
        row = dataset[0]
        return list(row) if isinstance(row, Mapping) else []
    return []
