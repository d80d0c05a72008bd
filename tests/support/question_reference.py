"""Answers chosen the long way: every pair of tokens of every window is looked at. And SQuAD's metric in plain."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


def _rank(logits: Any, token: int) -> int:
    """How many tokens are likelier, or as likely and earlier."""
    return sum(1 for other, one in enumerate(logits) if (-one, other) < (-logits[token], token))


def best_by_hand(
    context: str,
    windows: Sequence[tuple[Any, Any, Sequence[Any]]],  # start logits, end logits, place of each token or None
    n_best: int,
    longest: int,
) -> list[tuple[str, float]]:
    """The best answers with their scores."""
    found = []
    for number, (starts, ends, places) in enumerate(windows):
        for start in range(len(places)):
            for end in range(start, len(places)):
                ranks = _rank(starts, start), _rank(ends, end)
                if places[start] is None or places[end] is None or end - start >= longest or max(ranks) >= n_best:
                    continue
                text = context[places[start][0] : places[end][1]]
                found.append((-float(starts[start] + ends[end]), number, *ranks, text))
    return [(text, -score) for score, *_, text in sorted(found)[:n_best]]


def silence_by_hand(windows: Sequence[tuple[Any, Any, Any]], rest: Sequence[int]) -> float:
    """What speaks for no answer: the least that any window says."""
    return min(float(starts[place] + ends[place]) for (starts, ends, _), place in zip(windows, rest, strict=True))


def _words(text: str) -> list[str]:
    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def squad_by_hand(answers: Sequence[str], truths: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1 over words, in percent."""

    def f1(answer: str, truth: str) -> float:
        said, true = _words(answer), _words(truth)
        common = sum((Counter(said) & Counter(true)).values())
        if not said or not true:
            return float(said == true)
        return 2 * common / (len(said) + len(true))

    exact = [
        max(float(_words(answer) == _words(one)) for one in truth or [""])
        for answer, truth in zip(answers, truths, strict=True)
    ]
    similar = [max(f1(answer, one) for one in truth or [""]) for answer, truth in zip(answers, truths, strict=True)]
    return {"exact_match": 100 * float(np.mean(exact)), "f1": 100 * float(np.mean(similar))}
