"""Retrieval: mean reciprocal rank and recall at k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import MetricError
from .base import Arrays, Measured, Metric
from .classification import check_finite
from .inputs import find_counted, read_array

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

CHUNK_BYTES = 32 << 20


class Retrieval(Metric):
    """Mean reciprocal rank, and how often the right one is among the first k.

    Two forms of input:

    - embeddings: queries `(rows, size)` and answers `(rows, size)`; row i's answer is the right one for query i, and
      those of all other rows, of all batches, are the wrong ones. All embeddings are needed in the end, so both are
      kept as float32 (8 bytes per row and dimension); similarities are computed 32 MiB at a time.
    - scores `(rows, candidates)` with the place of the right candidate `(rows,)`, where -100 leaves the row out: only
      the rank is kept, 4 bytes per row.

    Equal scores count against the query, so that a model that embeds everything alike ranks last.

    Args:
        at: which k.
        mrr: whether to give the mean reciprocal rank.
        similarity: "cosine" or "dot".

    >>> queries, answers = [[1.0, 0.0], [0.0, 1.0]], [[0.9, 0.1], [0.8, 0.6]]
    >>> Retrieval(at=[1])((queries, answers))
    {'mrr': 1.0, 'recall_at_1': 1.0}
    """

    default_name = "retrieval"
    keeps_rows = True

    def __init__(
        self,
        *,
        at: Sequence[int] = (1, 5, 10),
        mrr: bool = True,
        similarity: str = "cosine",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        if any(k < 1 for k in at) or not (mrr or at):
            raise MetricError(f"{self.name}: at={list(at)}", "ranks count from 1", "at=[1, 5, 10]")
        if similarity not in ("cosine", "dot"):
            raise MetricError(
                what=f"{self.name}: similarity={similarity!r}",
                why="there are 'cosine' and 'dot'",
                fix="similarity='cosine'",
            )
        self.at, self.mrr, self.similarity = tuple(at), mrr, similarity

    def _list_names(self) -> tuple[str, ...]:
        return (*(["mrr"] if self.mrr else []), *(f"recall_at_{k}" for k in self.at))

    def _measure(self, predictions: Any, references: Any) -> Measured:
        first = read_array(predictions, self.name, "predictions")
        second = read_array(references, self.name, "labels")
        if first.ndim == 2 and second.ndim == 1 and second.dtype.kind in "iu" and len(first) == len(second):
            return self._measure_scores(check_finite(first, self.name), second)
        if first.ndim == 2 and first.shape == second.shape and second.dtype.kind == "f":
            values = {"queries": self._normalize_rows(first), "answers": self._normalize_rows(second)}
            return Measured(len(first), np.arange(len(first)), values)
        raise MetricError(
            what=f"{self.name}: predictions {first.shape}, labels {second.shape} of {second.dtype}",
            why="it takes two tables of embeddings (rows, size), or scores (rows, candidates) and places (rows,)",
            fix="pass (query embeddings, answer embeddings), or scores with the place of the right candidate",
        )

    def _measure_scores(self, scores: np.ndarray, place: np.ndarray) -> Measured:
        row = np.flatnonzero(find_counted(place, self.ignore_index))
        place = place[row].astype(np.int64)
        if len(place) and not 0 <= place.min() <= place.max() < scores.shape[1]:
            bad = place.min() if place.min() < 0 else place.max()
            raise MetricError(
                what=f"{self.name}: label {bad} names none of {scores.shape[1]} candidates",
                why="labels say which column is the right one, from 0",
                fix="number candidates from 0; -100 leaves a row out",
            )
        right = scores[row, place]
        return Measured(len(scores), row, {"rank": (scores[row] >= right[:, None]).sum(axis=1).astype(np.int32)})

    def _normalize_rows(self, table: np.ndarray) -> np.ndarray:
        table = check_finite(table.astype(np.float32), self.name)
        if self.similarity == "dot":
            return table
        length = np.linalg.norm(table, axis=1, keepdims=True)
        return table / np.where(length > 0, length, 1)

    def _finalize(self, kept: Arrays) -> Arrays:
        if "rank" in kept:
            return kept
        others = {name: array for name, array in kept.items() if name not in ("queries", "answers")}
        return {**others, "rank": compute_ranks(kept["queries"], kept["answers"])}

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        weights = np.ones(len(values["rank"])) if weights is None else weights
        hits = {f"recall_at_{k}": weights @ (values["rank"] <= k) for k in self.at}
        return {"mrr": weights @ (1 / values["rank"]), **hits, "rows": weights.sum()}

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {name: float(totals[name] / totals["rows"]) for name in self._list_names()}


def compute_ranks(queries: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the rank of answer i for query i among all answers, from 1; ties count against it.

    >>> compute_ranks(np.eye(2), np.array([[1.0, 0.0], [2.0, 1.0]]))
    array([2, 1], dtype=int32)
    """
    step = max(1, CHUNK_BYTES // (4 * max(1, len(answers))))
    found = np.empty(len(queries), dtype=np.int32)
    for start in range(0, len(queries), step):
        scores = queries[start : start + step] @ answers.T
        own = scores[np.arange(len(scores)), np.arange(start, start + len(scores))]
        found[start : start + step] = (scores >= own[:, None]).sum(axis=1)
    return found
