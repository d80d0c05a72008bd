"""ROUGE-1, -2, -L and -Lsum: the mean F1 of shared words, pairs of words and longest common subsequences.

The numbers are those of Google's rouge-score: lower case, letters a to z and digits only, each row scored against its
best reference, then the mean over rows, between 0 and 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import MetricError
from .base import Arrays, Measured, Metric
from .inputs import check_same_length, read_reference_texts, read_texts
from .optional_libraries import import_library

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")
Words = list[str]


class Rouge(Metric):
    """ROUGE F1 scores. Keeps one number per kind and the number of rows.

    Predictions are texts, references a text or a list of texts per row; or token ids with a `tokenizer`. For
    rougeLsum the sentences of a text stand on lines of their own.

    Args:
        kinds: which ones: "rougeN" for any N, "rougeL", "rougeLsum".
        stemmer: compare stems ("cats" is "cat"), with nltk's Porter stemmer, if it is installed.
        tokenizer: turns token ids into texts: its `batch_decode` is used, or it is called with lists of ids.

    >>> Rouge(kinds=["rouge1", "rougeL"])((["the cat sat"], ["the sat cat"]))
    {'rouge1': 1.0, 'rougeL': 0.6666666666666666}
    """

    default_name = "rouge"

    def __init__(
        self,
        *,
        kinds: Sequence[str] = KINDS,
        stemmer: bool = False,
        tokenizer: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.scorers = {kind: build_scorer(kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)}
        self.stem = _load_stemmer() if stemmer else None
        self.tokenizer = tokenizer

    def _list_names(self) -> tuple[str, ...]:
        return tuple(self.scorers)

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guesses = read_texts(predictions, self.name, self.tokenizer, self.ignore_index, role="predictions")
        truths = read_reference_texts(references, self.name, self.tokenizer, self.ignore_index)
        check_same_length(guesses, truths, self.name)
        scores = {kind: np.empty(len(guesses)) for kind in self.scorers}
        for row, (guess, answers) in enumerate(zip(guesses, truths, strict=True)):
            said, golden = self._split_lines(guess), [self._split_lines(answer) for answer in answers]
            for kind, score in self.scorers.items():
                scores[kind][row] = max(score(said, answer) for answer in golden)
        return Measured(
            len(guesses), np.arange(len(guesses)), {**scores, "rows": np.ones(len(guesses), dtype=np.int8)}
        )

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {kind: float(totals[kind] / totals["rows"]) for kind in self.scorers}

    def _split_lines(self, text: str) -> list[Words]:
        return [split_words(line, self.stem) for line in text.split("\n") if line]


def build_scorer(kind: str) -> Callable[[list[Words], list[Words]], float]:
    """Return the function that scores two texts, given as lines of words.

    >>> build_scorer("rouge2")([["a", "b", "c"]], [["a", "b", "d"]])
    0.5
    """
    if kind == "rougeL":
        return _compute_subsequence_f1
    if kind == "rougeLsum":
        return _compute_summary_f1
    if re.fullmatch(r"rouge[1-9]", kind):
        size = int(kind[-1])
        return partial(_compute_ngram_f1, size=size)
    raise MetricError(
        what=f"rouge: {kind!r} is not a kind of ROUGE",
        why=f"there are {', '.join(KINDS)} and rouge3 to rouge9",
        fix=f"kinds={list(KINDS)}",
    )


def split_words(text: str, stem: Callable[[str], str] | None = None) -> Words:
    """Return lower-case words of letters and digits; stem those longer than three letters if asked.

    >>> split_words("It's 3 Cats!")
    ['it', 's', '3', 'cats']
    """
    found = _NOT_A_WORD.sub(" ", text.lower()).split()
    if stem is None:
        return found
    return [stem(word) if len(word) > 3 else word for word in found]


def _load_stemmer() -> Callable[[str], str]:
    porter = import_library(
        "nltk.stem.porter", needed_by="rouge with stemmer=True", alternative="or set stemmer=False"
    )
    return porter.PorterStemmer().stem


def _compute_ngram_f1(guess: list[Words], truth: list[Words], size: int) -> float:
    said, true = (_count_ngrams([word for line in side for word in line], size) for side in (guess, truth))
    shared = sum((said & true).values())
    return _compute_f1(shared, sum(said.values()), sum(true.values()))


def _count_ngrams(line: Words, size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(line[place : place + size]) for place in range(len(line) - size + 1))


def _compute_subsequence_f1(guess: list[Words], truth: list[Words]) -> float:
    said, true = ([word for line in side for word in line] for side in (guess, truth))
    if not said or not true:
        return 0.0
    shared = len(true) - compute_lcs_rows(said, true)[-1].bit_count()
    return _compute_f1(shared, len(said), len(true))


def _compute_summary_f1(guess: list[Words], truth: list[Words]) -> float:
    """Compare each line of the reference with all lines of the text: the union of what they share, each word once."""
    said, true = (Counter(word for line in side for word in line) for side in (guess, truth))
    if not said or not true:
        return 0.0
    left_said, left_true, shared = said.copy(), true.copy(), 0
    for line in truth:
        places = sorted({place for other in guess for place in find_lcs_positions(line, other)})
        for word in (line[place] for place in places):
            if left_said[word] > 0 and left_true[word] > 0:
                left_said[word] -= 1
                left_true[word] -= 1
                shared += 1
    return _compute_f1(shared, sum(said.values()), sum(true.values()))


def _compute_f1(shared: int, said: int, true: int) -> float:
    if not shared:
        return 0.0
    precision, recall = shared / said, shared / true
    return 2 * precision * recall / (precision + recall)


# ------------------------------------------------------------------------------------------ longest common subsequence


def compute_lcs_rows(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[int]:
    """Return the table of longest common subsequences: a row per item of `one`, a bit per item of `other`.

    Zeros among the lowest j bits of row i: the compute_length for the first i + 1 of `one` and the first j of `other`
    (Crochemore and others' bit vectors: a row in four operations).

    >>> [bin(row) for row in compute_lcs_rows("ab", "ba")]
    ['0b1', '0b10']
    """
    places: dict[Hashable, int] = {}
    for place, item in enumerate(other):
        places[item] = places.get(item, 0) | 1 << place
    mask = (1 << len(other)) - 1
    row, rows = mask, []
    for item in one:
        shared = row & places.get(item, 0)
        row = ((row + shared) | (row - shared)) & mask
        rows.append(row)
    return rows


def find_lcs_positions(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[int]:
    """Return positions in `one` of a longest common subsequence; of several, the one rouge-score takes.

    >>> find_lcs_positions("abcd", "xbd")
    [1, 3]
    """
    rows = compute_lcs_rows(one, other)

    def compute_length(first: int, second: int) -> int:
        return 0 if not first else second - (rows[first - 1] & ((1 << second) - 1)).bit_count()

    found, first, second = [], len(one), len(other)
    while first and second:
        if one[first - 1] == other[second - 1]:
            first, second = first - 1, second - 1
            found.append(first)
        elif compute_length(first, second - 1) > compute_length(first - 1, second):
            second -= 1
        else:
            first -= 1
    return found[::-1]
