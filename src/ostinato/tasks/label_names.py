"""Labels of a dataset: their names, their numbers, and whether a row may have several."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import ConfigError
from ostinato.logging import get_logger

from .rows import TRAIN, Split, format_names


@dataclass(frozen=True)
class Labels:
    """Names in the order of their numbers. `values` are the entries of rows: names or numbers."""

    values: tuple[Any, ...]
    names: tuple[str, ...]
    is_multilabel: bool = False

    @classmethod
    def from_splits(cls, splits: Sequence[Split], column: str) -> Labels:
        """Return the labels of the training set, which must cover the other splits; without one, those of all splits.

        A column of type ClassLabel has the names of its numbers itself.
        """
        first = splits[0]
        feature = first.rows.features[column]
        feature = getattr(feature, "feature", feature)  # of a list of labels
        is_multilabel = any(isinstance(value, (list, tuple)) for value in first.read_column(column)[:100])
        if getattr(feature, "names", None):
            labels = cls(tuple(range(len(feature.names))), tuple(feature.names), is_multilabel)
        else:
            for split in splits:
                split.check_column(column, is_label, "there is no label", "add the label, or remove the row")
            sources = splits[:1] if first.name == TRAIN else splits
            found = {
                one
                for split in sources
                for value in split.read_column(column)
                for one in (value if is_multilabel else [value])
            }
            values = tuple(sorted(found, key=_build_sort_key))
            labels = cls(values, tuple(map(_format_name, values)), is_multilabel)
        for split in splits:
            labels.check(split, column)
        return labels

    @classmethod
    def from_config(cls, config: Any) -> Labels:
        """Return the labels of a trained model, for rows without labels."""
        names = tuple(str(name) for _, name in sorted((int(n), name) for n, name in config.id2label.items()))
        return cls(names, names)

    def check(self, split: Split, column: str) -> None:
        """Raise for the first row with an unknown label."""
        for row, value in enumerate(split.read_column(column)):
            for one in value if self.is_multilabel else [value]:
                if not self.is_known(one):
                    near = get_close_matches(str(one), self.names, n=1)
                    raise split.build_error(
                        row,
                        column,
                        f"there is no label {one!r}; the labels are {format_names(self.names)}",
                        f"did you mean {near[0]!r}?"
                        if near
                        else "correct the row, or train with rows that have this label",
                    )

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        return {value: number for number, value in enumerate(self.values)}

    def is_known(self, value: Any) -> bool:
        """Return whether a label is known, so that its row can be learned from."""
        return value in self._numbers if not isinstance(value, list) else all(map(self.is_known, value))

    def get_number(self, value: Any) -> int:
        """Return the number of a label."""
        return self._numbers[value]

    def encode(self, values: Iterable[Any]) -> list[Any]:
        """Return the numbers of labels; for rows with several, a 1.0 or 0.0 for each label."""
        if not self.is_multilabel:
            return [self._numbers[value] for value in values]
        return [[float(one in value) for one in self.values] for value in values]

    def match_model(self, config: Any) -> Labels:
        """Return the labels in the order of a model that has them all by name, and possibly others."""
        names = self.from_config(config).names if config.id2label else ()
        if not set(self.names) <= set(names):
            given_by_model = names and not all(name.startswith("LABEL_") for name in names)
            if given_by_model:
                get_logger().info(
                    f"the model has labels of its own ({format_names(names)}), which differ from those of the rows "
                    "and are replaced"
                )
            return self
        value_of = dict(zip(self.names, self.values, strict=True))
        return replace(self, values=tuple(value_of.get(name, name) for name in names), names=names)

    def write_config(self, config: Any) -> None:
        """Write the names into a config."""
        config.num_labels = len(self.names)
        config.id2label = dict(enumerate(self.names))
        config.label2id = {name: number for number, name in enumerate(self.names)}

    def format_prediction(self, scores: np.ndarray) -> dict[str, Any]:
        """Return the prediction for a row's logits as label names, with probabilities."""
        if self.is_multilabel:
            probabilities = 1 / (1 + np.exp(-scores.astype(np.float64)))
            chosen = [i for i, probability in enumerate(probabilities) if probability > 0.5]
            return {
                "prediction": [self.names[i] for i in chosen],
                "scores": [round(probabilities[i], 4) for i in chosen],
            }
        best, probability = find_likeliest(scores)
        return {"prediction": self.names[best], "score": round(probability, 4)}


def find_likeliest(scores: np.ndarray) -> tuple[int, float]:
    """Return the number of the highest logit, and its probability.

    >>> find_likeliest(np.array([0.0, 0.0]))
    (0, 0.5)
    """
    probabilities = np.exp(scores.astype(np.float64) - scores.max())
    best = int(scores.argmax())
    return best, float(probabilities[best] / probabilities.sum())


def read_label_names(path: Path) -> list[str]:
    """Return the names that a JSON file gives to the labels of an image's pixels, by their numbers."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--id2label {path} cannot be read", str(error), "name a JSON file with the labels"
        ) from None
    if isinstance(content, dict) and all(str(key).isdigit() for key in content):
        names = [str(content[key]) for key in sorted(content, key=int)]
        numbers = sorted(map(int, content))
    elif isinstance(content, list):
        names, numbers = list(map(str, content)), list(range(len(content)))
    else:
        names, numbers = [], []
    if len(names) < 2 or numbers != list(range(len(names))):
        raise ConfigError(
            what=f"--id2label {path} does not name the labels",
            why="it holds a list of at least two names, or an object from the numbers 0, 1, 2, … to names",
            fix='write ["sky", "tree"] or {"0": "sky", "1": "tree"}',
        )
    return names


def is_label(value: Any) -> bool:
    """Return whether a value of a row is a label, or a list of labels."""
    if isinstance(value, list):
        return all(is_label(one) for one in value)
    return value is not None and value == value  # NaN is how csv represents an empty field


def _build_sort_key(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value  # numbers and names in one column: the numbers first


def _format_name(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
