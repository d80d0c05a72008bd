"""Generated text against references: BLEU, chrF and exact match.

Predictions are texts, references a text or a list of texts per row; or token ids (generated, and labels with -100)
with a `tokenizer`. BLEU and chrF are counted per row and added up, so the corpus is never held.
"""

from __future__ import annotations

import string
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Arrays, Measured, Metric
from .inputs import check_same_length, read_reference_texts, read_texts
from .optional_libraries import import_library

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

_PUNCTUATION = str.maketrans("", "", string.punctuation)


class TextMetric(Metric):
    """Texts with one or several references each.

    Args:
        tokenizer: turns token ids into texts: its `batch_decode` is used, or it is called with lists of ids.
    """

    def __init__(self, *, tokenizer: Any = None, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.tokenizer = tokenizer

    def _pair_texts(self, predictions: Any, references: Any) -> list[tuple[str, list[str]]]:
        guesses = read_texts(predictions, self.name, self.tokenizer, self.ignore_index, role="predictions")
        truths = read_reference_texts(references, self.name, self.tokenizer, self.ignore_index)
        check_same_length(guesses, truths, self.name)
        return list(zip(guesses, truths, strict=True))


class ExactMatch(TextMetric):
    """The share of texts equal to one of their references, spaces at the ends aside. Keeps two numbers.

    >>> ExactMatch(ignore_case=True)((["Yes", "no"], ["yes", "maybe"]))
    {'exact_match': 0.5}
    """

    default_name = "exact_match"

    def __init__(
        self,
        *,
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        tokenizer: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(tokenizer=tokenizer, **options)
        self.ignore_case, self.ignore_punctuation = ignore_case, ignore_punctuation

    def _measure(self, predictions: Any, references: Any) -> Measured:
        pairs = self._pair_texts(predictions, references)
        correct = [self._normalize(guess) in {self._normalize(text) for text in answers} for guess, answers in pairs]
        rows = np.arange(len(pairs))
        return Measured(
            len(pairs), rows, {"correct": np.array(correct, dtype=bool), "rows": np.ones(len(pairs), np.int8)}
        )

    def _normalize(self, text: str) -> str:
        text = text.translate(_PUNCTUATION) if self.ignore_punctuation else text
        return (text.lower() if self.ignore_case else text).strip()

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: float(totals["correct"] / totals["rows"])}


class Bleu(TextMetric):
    """Corpus BLEU from 0 to 100, by sacrebleu, which has to be installed. Keeps ten numbers.

    Args:
        tokenize: sacrebleu's tokenizer: "13a" (its default), "intl", "char", "zh", "ja-mecab", "none", …
        lowercase: compare in lower case.

    >>> bleu = Bleu()  # doctest: +SKIP
    >>> bleu((["the cat sat on the mat"], ["the cat sat on the mat"]))  # doctest: +SKIP
    {'bleu': 100.0}
    """

    default_name = "bleu"

    def __init__(
        self, *, tokenize: str = "13a", lowercase: bool = False, tokenizer: Any = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(tokenizer=tokenizer, **options)
        library = import_library("sacrebleu", needed_by="bleu", alternative="or use 'chrf', which needs no library")
        # effective_order concerns the score of one sentence, which is not used; without it sacrebleu warns each time
        self._bleu = library.metrics.BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)

    def _measure(self, predictions: Any, references: Any) -> Measured:
        pairs = self._pair_texts(predictions, references)
        found = [self._bleu.sentence_score(guess, answers) for guess, answers in pairs]
        counts = [[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in found]
        table = np.array(counts, dtype=np.int64).reshape(len(pairs), 10)
        return Measured(len(pairs), np.arange(len(pairs)), {"counts": table})

    def _score(self, totals: Arrays) -> dict[str, float]:
        *counts, said, true = (int(count) for count in totals["counts"])
        score = self._bleu.compute_bleu(counts[:4], counts[4:], said, true, smooth_method="exp")
        return {self.name: float(score.score)}


class Chrf(TextMetric):
    """Corpus chrF from 0 to 100: the F score of shared runs of 1 to 6 characters. Needs no library.

    The numbers are sacrebleu's; of several references the one that fits best is taken. Keeps 18 numbers.

    Args:
        word_order: 2 counts single words and pairs too, which is chrF++.
        beta: how much more recall counts than precision.
        lowercase: compare in lower case.

    >>> Chrf()((["the cat"], ["the cat"]))
    {'chrf': 100.0}
    """

    default_name = "chrf"

    def __init__(
        self,
        *,
        word_order: int = 0,
        beta: float = 2.0,
        lowercase: bool = False,
        tokenizer: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(tokenizer=tokenizer, **options)
        self.word_order, self.beta, self.lowercase = word_order, beta, lowercase

    def _measure(self, predictions: Any, references: Any) -> Measured:
        pairs = self._pair_texts(predictions, references)
        counts = [self._count_best_overlap(guess, answers) for guess, answers in pairs]
        table = np.array(counts, dtype=np.int64).reshape(len(pairs), 6 + self.word_order, 3)
        return Measured(len(pairs), np.arange(len(pairs)), {"counts": table})

    def _count_best_overlap(self, guess: str, answers: list[str]) -> np.ndarray:
        """Return the n-grams in the text, the reference and both, per length, for the reference that fits best."""
        said = self._count_all_runs(guess)
        candidates = []
        for answer in answers:
            true = self._count_all_runs(answer)
            sides = zip(said, true, strict=True)
            candidates.append(np.array([_count_overlap(one, other) for one, other in sides]))
        return max(candidates, key=lambda counts: compute_character_f(counts, self.beta))

    def _count_all_runs(self, text: str) -> list[Counter[Any]]:
        text = text.lower() if self.lowercase else text
        letters = "".join(text.split())
        runs: list[Counter[Any]] = [_count_runs(letters, size) for size in range(1, 7)]
        if self.word_order:
            parts = tuple(part for word in text.split() for part in _split_punctuation(word))
            runs += [_count_runs(parts, size) for size in range(1, self.word_order + 1)]
        return runs

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: 100 * compute_character_f(totals["counts"], self.beta)}


def compute_character_f(counts: np.ndarray, beta: float) -> float:
    """Return the F score of mean precision and mean recall over the lengths that both sides have.

    >>> compute_character_f(np.array([[4, 4, 4], [3, 3, 0]]), 2.0)
    0.5
    """
    counts = counts[(counts[:, 0] > 0) & (counts[:, 1] > 0)]
    if not len(counts):
        return 0.0
    precision, recall = (counts[:, 2] / counts[:, 0]).mean(), (counts[:, 2] / counts[:, 1]).mean()
    if not precision + recall:
        return 0.0
    return float((1 + beta**2) * precision * recall / (beta**2 * precision + recall))


def _count_overlap(said: Counter[Any], true: Counter[Any]) -> tuple[int, int, int]:
    # a reference too short to have such runs says nothing about those of the text
    return sum(said.values()) if true else 0, sum(true.values()), sum((said & true).values())


def _count_runs(pieces: Any, size: int) -> Counter[Any]:
    return Counter(pieces[place : place + size] for place in range(len(pieces) - size + 1))


def _split_punctuation(word: str) -> list[str]:
    """Split a word from the punctuation mark at its end, or else at its start."""
    if len(word) == 1:
        return [word]
    if word[-1] in string.punctuation:
        return [word[:-1], word[-1]]
    if word[0] in string.punctuation:
        return [word[0], word[1:]]
    return [word]
