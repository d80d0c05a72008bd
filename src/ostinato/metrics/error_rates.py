"""Word and character error rates, counted by jiwer.

Edits are added up over all rows and divided once by the words (or characters) of all references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .base import Arrays, Measured, Metric, TooFewRowsError
from .inputs import check_same_length, read_texts
from .optional_libraries import import_library

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options


class ErrorRate(Metric):
    """Edits by the length of the references. Keeps two numbers.

    Predictions and references are texts, or token ids with a `tokenizer`. Needs jiwer.

    Args:
        tokenizer: turns token ids into texts: its `batch_decode` is used, or it is called with lists of ids.
        normalize: applied to both texts first, for example `str.lower`.
    """

    higher_is_better = False
    counter: ClassVar[str]  # jiwer's function that counts the edits

    def __init__(
        self,
        *,
        tokenizer: Any = None,
        normalize: Callable[[str], str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.tokenizer, self.normalize = tokenizer, normalize
        self._count_edits = getattr(import_library("jiwer", needed_by=self.name), self.counter)

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guesses = read_texts(predictions, self.name, self.tokenizer, self.ignore_index, role="predictions")
        truths = read_texts(references, self.name, self.tokenizer, self.ignore_index, role="references")
        check_same_length(guesses, truths, self.name)
        if self.normalize is not None:
            guesses, truths = [*map(self.normalize, guesses)], [*map(self.normalize, truths)]
        found = [self._count_edits(truth, guess) for guess, truth in zip(guesses, truths, strict=True)]
        edits = [one.substitutions + one.deletions + one.insertions for one in found]
        length = [one.hits + one.substitutions + one.deletions for one in found]
        values = {"edits": np.array(edits, dtype=np.int64), "length": np.array(length, dtype=np.int64)}
        return Measured(len(found), np.arange(len(found)), values)

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
    counter = "process_words"


class CharacterErrorRate(ErrorRate):
    """Edits of characters per character of the references, spaces included. May exceed 1.

    >>> CharacterErrorRate()((["kitten"], ["sitting"]))
    {'cer': 0.42857142857142855}
    """

    default_name = "cer"
    counter = "process_characters"
