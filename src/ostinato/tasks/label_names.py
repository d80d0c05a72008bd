"""Labels of a data set: their names, their numbers, and whether a row may have several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from ostinato.logging import get_logger

from .rows import TRAIN, Split, shortened


@dataclass(frozen=True)
class Labels:
    """Names in the order of their numbers. `values` are the entries of rows: names or numbers."""

    values: tuple[Any, ...]
    names: tuple[str, ...]
    are_several: bool = False

    @classmethod
    def of(cls, splits: Sequence[Split], column: str) -> Labels:
        """Return the labels of the training set, which must cover the other splits; without one, those of all splits.

        A column of type ClassLabel has the names of its numbers itself.
        """
        first = splits[0]
        feature = first.rows.features[column]
        feature = getattr(feature, "feature", feature)  # of a list of labels
        are_several = any(isinstance(value, (list, tuple)) for value in first.column(column)[:100])
        if getattr(feature, "names", None):
            labels = cls(tuple(range(len(feature.names))), tuple(feature.names), are_several)
        else:
            for split in splits:
                split.check(column, _is_label, "there is no label", "add the label, or leave the row out")
            sources = splits[:1] if first.name == TRAIN else splits
            found = {
                one
                for split in sources
                for value in split.column(column)
                for one in (value if are_several else [value])
            }
            values = tuple(sorted(found, key=_order))
            labels = cls(values, tuple(map(_name, values)), are_several)
        for split in splits:
            labels.check(split, column)
        return labels

    @classmethod
    def of_model(cls, config: Any) -> Labels:
        """Return the labels of a trained model, for rows without labels."""
        names = tuple(str(name) for _, name in sorted((int(n), name) for n, name in config.id2label.items()))
        return cls(names, names)

    def check(self, split: Split, column: str) -> None:
        """Raise for the first row with an unknown label."""
        for row, value in enumerate(split.column(column)):
            for one in value if self.are_several else [value]:
                if not self.knows(one):
                    near = get_close_matches(str(one), self.names, n=1)
                    raise split.refuse(
                        row,
                        column,
                        f"there is no label {one!r}; the labels are {shortened(self.names)}",
                        f"is it {near[0]!r}?" if near else "mend the row, or train with rows that have this label",
                    )

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        return {value: number for number, value in enumerate(self.values)}

    def knows(self, value: Any) -> bool:
        """Return whether a label is known, so that its row can be learned from."""
        return value in self._numbers if not isinstance(value, list) else all(map(self.knows, value))

    def ids(self, values: Iterable[Any]) -> list[Any]:
        """Return the numbers of labels; for rows with several, a 1.0 or 0.0 for each label."""
        if not self.are_several:
            return [self._numbers[value] for value in values]
        return [[float(one in value) for one in self.values] for value in values]

    def as_in(self, config: Any) -> Labels:
        """Return the labels in the order of a model that has them all by name, and possibly others."""
        names = self.of_model(config).names if config.id2label else ()
        if not set(self.names) <= set(names):
            given_by_model = names and not all(name.startswith("LABEL_") for name in names)
            if given_by_model:
                get_logger().info(
                    f"the model has labels of its own ({shortened(names)}), which are not those of the rows: "
                    "the rows' take their place"
                )
            return self
        value_of = dict(zip(self.names, self.values, strict=True))
        return replace(self, values=tuple(value_of.get(name, name) for name in names), names=names)

    def tell(self, config: Any) -> None:
        """Write the names into a config."""
        config.num_labels = len(self.names)
        config.id2label = dict(enumerate(self.names))
        config.label2id = {name: number for number, name in enumerate(self.names)}

    def readable(self, scores: np.ndarray) -> dict[str, Any]:
        """Return the prediction of a row's logits in words, with a probability."""
        if self.are_several:
            chances = 1 / (1 + np.exp(-scores.astype(np.float64)))
            chosen = [i for i, chance in enumerate(chances) if chance > 0.5]
            return {"prediction": [self.names[i] for i in chosen], "scores": [round(chances[i], 4) for i in chosen]}
        best, chance = likeliest(scores)
        return {"prediction": self.names[best], "score": round(chance, 4)}


def likeliest(scores: np.ndarray) -> tuple[int, float]:
    """Return the number of the highest logit, and its probability.

    >>> likeliest(np.array([0.0, 0.0]))
    (0, 0.5)
    """
    chances = np.exp(scores.astype(np.float64) - scores.max())
    best = int(scores.argmax())
    return best, float(chances[best] / chances.sum())


def _is_label(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_label(one) for one in value)
    return value is not None and value == value  # NaN is how csv represents an empty field


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value  # numbers and names in one column: the numbers first


def _name(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
