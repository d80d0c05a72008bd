"""The best answers to a question, from the scores of every token of every window over the context.

A span of tokens is a candidate if it begins at one of the n most likely starts of its window, ends at one of the n
most likely ends, lies in the context, and is not too long. Candidates of all windows are ranked together. Equal
candidates are ordered by the earlier window, then by the more likely start, then by the earlier token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Spans(NamedTuple):
    """Candidates of one window: positions in the context, and the scores of their starts and their ends."""

    begins: np.ndarray
    ends: np.ndarray
    start_scores: np.ndarray
    end_scores: np.ndarray


class Window(NamedTuple):
    """One window: its number among all features, the positions of its tokens, and the token that means "not here"."""

    number: int
    offsets: Sequence[Sequence[int] | None]
    cls_index: int

    def select_spans(self, starts: np.ndarray, ends: np.ndarray, *scores: np.ndarray, longest: int) -> Spans:
        """Return the spans of those pairs of tokens that can be answers."""
        known = np.array([offset is not None for offset in self.offsets])
        here = np.zeros(max(len(known), int(max(starts.max(), ends.max())) + 1), dtype=bool)
        here[: len(known)] = known  # a row that was padded later has tokens without a position
        fits = here[starts] & here[ends] & (starts <= ends) & (ends - starts < longest)
        begins = np.array([self.offsets[token][0] for token in starts[fits]], dtype=np.int64)  # type: ignore[index]
        finals = np.array([self.offsets[token][1] for token in ends[fits]], dtype=np.int64)  # type: ignore[index]
        return Spans(begins, finals, *(one[fits] for one in scores))


def find_likely_spans(window: Window, starts: np.ndarray, ends: np.ndarray, n_best: int, longest: int) -> Spans:
    """Return the candidates of a window, from the logits of its tokens."""
    first, last = _find_highest(starts, n_best), _find_highest(ends, n_best)
    begin, end = (grid.ravel() for grid in np.meshgrid(first, last, indexing="ij"))
    return window.select_spans(begin, end, starts[begin], ends[end], longest=longest)


def _find_highest(values: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-values, kind="stable")[:count]


def rank_candidates(
    context: str, windows: Sequence[Spans], n_best: int, names: tuple[str, str] = ("start_logit", "end_logit")
) -> list[dict[str, Any]]:
    """Return the best candidates of all windows as texts, the best first. `names` are the names of the scores."""
    begins, ends, starts, finals = (np.concatenate(parts) for parts in zip(*windows, strict=True))
    return [
        {
            "text": context[begins[one] : ends[one]].strip(),  # some tokenizers include the space before a word
            names[0]: float(starts[one]),
            names[1]: float(finals[one]),
            "score": float(starts[one] + finals[one]),
        }
        for one in _find_highest(starts + finals, n_best)
    ]


def add_probabilities(candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the candidates with a probability each, which add up to 1, in place of their scores.

    >>> add_probabilities([{"text": "Ulm", "score": 0.0}, {"text": "Oslo", "score": 0.0}])
    [{'text': 'Ulm', 'probability': 0.5}, {'text': 'Oslo', 'probability': 0.5}]
    """
    scores = np.array([one["score"] for one in candidates], dtype=np.float64)
    shares = np.exp(scores - scores.max(initial=-np.inf))
    return [
        {**{name: value for name, value in one.items() if name != "score"}, "probability": float(share)}
        for one, share in zip(candidates, shares / shares.sum(), strict=True)
    ]


def group_windows(examples: Any, features: Any) -> Iterator[tuple[Mapping[str, Any], list[Window]]]:
    """Yield every example with its windows, in order."""
    numbers: dict[Any, list[int]] = {}
    for number, name in enumerate(features["example_id"]):
        numbers.setdefault(name, []).append(number)
    offsets = features.select_columns(
        [name for name in ("offset_mapping", "cls_index") if name in features.column_names]
    )
    for example in examples:
        rows = ((number, offsets[number]) for number in numbers[example["id"]])  # read when needed: they are large
        yield example, [Window(number, row["offset_mapping"], row.get("cls_index", 0)) for number, row in rows]


@dataclass(frozen=True)
class FoundAnswer:
    """The answer to a question, and the other likely ones."""

    id: Any
    text: str
    n_best: Sequence[Mapping[str, Any]] = ()
    null_odds: float | None = None  # the score of there being no answer

    @property
    def probability(self) -> float | None:
        """Probability of the answer among the best."""
        return next((one["probability"] for one in self.n_best if one["text"] == self.text), None)


def choose_answer(
    example: Mapping[str, Any],
    windows: Sequence[Spans],
    null_answer: Mapping[str, Any] | None,
    *,
    n_best: int,
    threshold: float,
) -> FoundAnswer:
    """Return the best answer; `null_answer` is the candidate that stands for no answer, if that is allowed."""
    candidates = rank_candidates(example["context"], windows, n_best)
    if null_answer is None:
        return FoundAnswer(example["id"], candidates[0]["text"] if candidates else "", add_probabilities(candidates))
    best = next((one for one in candidates if one["text"]), None)
    odds = null_answer["score"] - (0.0 if best is None else best["score"])
    # In its place among the best, or after them: its probability is needed in any case.
    candidates = sorted([*candidates, null_answer], key=lambda one: -one["score"])
    kept = candidates[:n_best]
    kept += [] if null_answer in kept else [null_answer]
    text = "" if best is None or odds > threshold else best["text"]
    return FoundAnswer(example["id"], text, add_probabilities(kept), odds)


def write_answers(found: Sequence[FoundAnswer], directory: Path, prefix: str) -> None:
    """Write the files that tools for SQuAD read: answers by id, the best ones, the odds of no answer."""
    files: dict[str, dict[str, Any]] = {
        "predictions": {str(one.id): one.text for one in found},
        "nbest_predictions": {str(one.id): one.n_best for one in found if one.n_best},
        "null_odds": {str(one.id): one.null_odds for one in found if one.null_odds is not None},
    }
    for name, content in files.items():
        if content:
            text = json.dumps(content, indent=4, ensure_ascii=False)
            (directory / f"{prefix}_{name}.json").write_text(text + "\n", encoding="utf-8")
