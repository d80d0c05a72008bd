"""Retrieval: finding the right text among all distinct texts of a set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ostinato.metrics import metric

_SCORES_PER_BLOCK = 8 << 20  # scores at a time
NOT_A_CANDIDATE = -2.0  # below every cosine


@dataclass(frozen=True)
class SearchResult:
    """A few queries with the cosines of all candidates `(queries, candidates)` and the index of the right one."""

    start: int  # the row of the first query
    cosines: np.ndarray
    place: np.ndarray

    @property
    def ranks(self) -> np.ndarray:
        """Return ranks from 1; candidates with an equal cosine count against the right one."""
        own = self.cosines[np.arange(len(self.place)), self.place]
        return (self.cosines >= own[:, None]).sum(axis=1)


class Candidates:
    """The second and third texts of all rows, each once: a text that occurs in two rows is one answer.

    `vectors` (rows, towers, size) are those of the rows' texts, `texts` (rows, towers) their numbers: equal texts have
    equal numbers. The right answer of another row with the same first text is no wrong answer, nor is the first text.
    """

    def __init__(self, vectors: np.ndarray, texts: np.ndarray) -> None:
        vectors, texts = np.asarray(vectors, dtype=np.float32), np.asarray(texts)
        size, self.towers = vectors.shape[-1], texts.shape[1]
        self.queries, self.firsts = _normalize(vectors[:, 0]), texts[:, 0]
        self.names, self.origin = np.unique(texts[:, 1:].reshape(-1), return_index=True)
        self.vectors = _normalize(vectors[:, 1:].reshape(-1, size)[self.origin])
        self.places = np.searchsorted(self.names, texts[:, 1])
        right: dict[int, set[int]] = defaultdict(set)
        for first, place in zip(self.firsts.tolist(), self.places.tolist(), strict=True):
            right[first].add(place)
        known = {int(name): place for place, name in enumerate(self.names)}
        for first in right.keys() & known.keys():
            right[first].add(known[first])
        self.right = {first: sorted(places) for first, places in right.items() if len(places) > 1}

    def find_origin(self, candidate: int) -> tuple[int, int]:
        """Return the first row and tower in which a candidate occurs."""
        row, tower = divmod(int(self.origin[candidate]), self.towers - 1)
        return row, tower + 1

    def search(self) -> Iterator[SearchResult]:
        """Yield all queries, some at a time."""
        step = max(1, _SCORES_PER_BLOCK // len(self.names))
        for start in range(0, len(self.queries), step):
            cosines = self.queries[start : start + step] @ self.vectors.T
            place = self.places[start : start + step]
            for row, first in enumerate(self.firsts[start : start + step].tolist()):
                if first in self.right:
                    others = [other for other in self.right[first] if other != place[row]]
                    cosines[row, others] = NOT_A_CANDIDATE
            yield SearchResult(start, cosines, place)


def measure_retrieval(vectors: np.ndarray, texts: np.ndarray) -> dict[str, float]:
    """Return the mean reciprocal rank, and how often the right text is among the first 1, 5 and 10 of the set."""
    measure = metric("retrieval")
    for found in Candidates(vectors, texts).search():
        measure.update(found.cosines, found.place)
    return measure.compute()


def _normalize(table: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(length > 0, length, 1)
