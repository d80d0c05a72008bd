"""Word and character error rates: how many insertions, deletions and substitutions lead from a text to its reference.

Edits are counted over all rows and divided by the words (or characters) of all references once, as jiwer does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Arrays, Measured, Metric, TooFewRowsError
from .inputs import same_length, texts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

_SPACES = re.compile(r"\s\s+")


class ErrorRate(Metric):
    """Edits by the length of the references. Keeps two numbers.

    Predictions and references are texts, or token ids with a `tokenizer`.

    Args:
        tokenizer: turns token ids into texts: its `batch_decode` is used, or it is called with lists of ids.
        normalize: applied to both texts first, for example `str.lower`.
    """

    higher_is_better = False

    def __init__(
        self,
        *,
        tokenizer: Any = None,
        normalize: Callable[[str], str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.tokenizer, self.normalize = tokenizer, normalize

    def _pieces(self, text: str) -> Sequence[Hashable]:
        raise NotImplementedError

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guesses = texts(predictions, self.name, self.tokenizer, self.ignore_index, role="predictions")
        truths = texts(references, self.name, self.tokenizer, self.ignore_index, role="references")
        same_length(guesses, truths, self.name)
        pairs = [(self._prepared(guess), self._prepared(truth)) for guess, truth in zip(guesses, truths, strict=True)]
        edits = np.array([edit_distance(guess, truth) for guess, truth in pairs], dtype=np.int64)
        length = np.array([len(truth) for _, truth in pairs], dtype=np.int64)
        return Measured(len(pairs), np.arange(len(pairs)), {"edits": edits, "length": length})

    def _prepared(self, text: str) -> Sequence[Hashable]:
        return self._pieces(text if self.normalize is None else self.normalize(text))

    def _score(self, totals: Arrays) -> dict[str, float]:
        if not totals["length"]:
            raise TooFewRowsError(
                what=f"{self.name} is not defined",
                why="all references are empty, and it divides by their length",
                fix="leave out rows without a reference",
            )
        return {self.name: float(totals["edits"] / totals["length"])}


class WordErrorRate(ErrorRate):
    """Edits of words per word of the references. May exceed 1.

    >>> WordErrorRate()((["the cat sat"], ["the cat sat down"]))
    {'wer': 0.25}
    """

    default_name = "wer"

    def _pieces(self, text: str) -> Sequence[Hashable]:
        return [word for word in _SPACES.sub(" ", text).strip().split(" ") if word]


class CharacterErrorRate(ErrorRate):
    """Edits of characters per character of the references, spaces included. May exceed 1.

    >>> CharacterErrorRate()((["kitten"], ["sitting"]))
    {'cer': 0.42857142857142855}
    """

    default_name = "cer"

    def _pieces(self, text: str) -> Sequence[Hashable]:
        return text.strip()


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The least number of insertions, deletions and substitutions (Levenshtein), a whole column in a few operations.

    Myers' bit vectors, in Hyyrö's form: bit i of `up` and `down` says that the table rises or falls by one at row i.

    >>> edit_distance("kitten", "sitting")
    3
    """
    if not one or not other:
        return len(one) or len(other)
    places: dict[Hashable, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    mask, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    up, down, distance = mask, 0, len(one)
    for item in other:
        match = places.get(item, 0)
        diagonal = (((match & up) + up) ^ up) | match | down
        rise, fall = down | ~(diagonal | up) & mask, up & diagonal
        distance += bool(rise & last) - bool(fall & last)
        rise, fall = (rise << 1 | 1) & mask, fall << 1 & mask
        up, down = (fall | ~(diagonal | rise)) & mask, rise & diagonal
    return distance
