"""Several labels may hold at once: labels `(rows, classes)` of 0 and 1.

Predictions are logits of the same shape (a label is predicted where its logit is above `threshold`, 0 by default,
which is a probability of a half), or 0 and 1 as whole numbers or booleans. A single label of -100 is left out; the
others of its row still count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import MetricError
from .base import Arrays, Measured, Metric
from .classification import check_average, check_finite, compute_average, compute_roc_area, divide
from .inputs import find_counted, get_first_output, read_array, read_class_labels

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

AVERAGES = ("micro", "macro", "weighted", "samples")


class Multilabel(Metric):
    """Labels and predictions as tables of 0 and 1.

    Args:
        threshold: logits above it are a yes. For probabilities pass 0.5.
    """

    reads_all = True

    def __init__(self, *, threshold: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.threshold = threshold

    def _read_tables(self, predictions: Any, references: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Predicted, true, counted: three boolean tables."""
        scores, truth, mask = read_tables(predictions, references, self.name, self.ignore_index)
        guess = scores > self.threshold if scores.dtype.kind == "f" else scores.astype(bool)
        return guess & mask, truth & mask, mask


class MultilabelAccuracy(Multilabel):
    """The share of rows whose labels are all right (subset accuracy). Keeps two numbers.

    >>> MultilabelAccuracy()(([[2.0, -1.0], [3.0, 1.0]], [[1, 0], [1, 0]]))
    {'multilabel_accuracy': 0.5}
    """

    default_name = "multilabel_accuracy"

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guess, truth, mask = self._read_tables(predictions, references)
        row = np.flatnonzero(mask.any(axis=1))
        correct = (guess == truth).all(axis=1)[row]
        return Measured(len(truth), row, {"correct": correct, "rows": np.ones(len(row), dtype=np.int8)})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: float(totals["correct"] / totals["rows"])}


class HammingLoss(Multilabel):
    """The share of single labels that are wrong. Keeps two numbers.

    >>> HammingLoss()(([[2.0, -1.0], [3.0, 1.0]], [[1, 0], [1, 0]]))
    {'hamming_loss': 0.25}
    """

    default_name = "hamming_loss"
    higher_is_better = False

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guess, truth, mask = self._read_tables(predictions, references)
        row = np.flatnonzero(mask.any(axis=1))
        return Measured(len(truth), row, {"wrong": (guess != truth).sum(1)[row], "labels": mask.sum(1)[row]})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: float(totals["wrong"] / totals["labels"])}


class MultilabelAveraged(Multilabel):
    """Precision, recall and F1 over tables of labels. Keeps three counts per class.

    Args:
        average: "micro" (all labels pooled, the default), "macro" (classes alike), "weighted" (by how often a class
            is present) or "samples" (each row scored alone, then the mean).

    Every class counts in "macro", also one that never occurs (it scores 0), as scikit-learn has it.
    """

    def __init__(self, *, average: str = "micro", threshold: float = 0.0, **options: Unpack[Options]) -> None:
        super().__init__(threshold=threshold, **options)
        self.average = check_average(self.name, average, AVERAGES)

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guess, truth, mask = self._read_tables(predictions, references)
        row = np.flatnonzero(mask.any(axis=1))
        counts = {"found": (guess & truth)[row], "predicted": guess[row], "present": truth[row]}
        if self.average == "samples":
            scores = self._compute_ratio(*(count.sum(axis=1) for count in counts.values()))
            counts = {"score": scores, "rows": np.ones(len(row), dtype=np.int8)}
        return Measured(len(truth), row, counts)

    def _score(self, totals: Arrays) -> dict[str, float]:
        if self.average == "samples":
            return {self.name: float(totals["score"] / totals["rows"])}
        found, predicted, present = totals["found"], totals["predicted"], totals["present"]
        if self.average == "macro":
            return {self.name: float(self._compute_ratio(found, predicted, present).mean())}
        return {self.name: compute_average(self._compute_ratio, found, predicted, present, self.average)}


class MultilabelPrecision(MultilabelAveraged):
    """The share of predicted labels that are right. Averaging: see `MultilabelAveraged`.

    >>> MultilabelPrecision()(([[1, 1]], [[1, 0]]))
    {'multilabel_precision': 0.5}
    """

    default_name = "multilabel_precision"

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        return divide(found, predicted)


class MultilabelRecall(MultilabelAveraged):
    """The share of labels that were found. Averaging: see `MultilabelAveraged`.

    >>> MultilabelRecall()(([[1, 0]], [[1, 1]]))
    {'multilabel_recall': 0.5}
    """

    default_name = "multilabel_recall"

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        return divide(found, present)


class MultilabelF1(MultilabelAveraged):
    """The harmonic mean of precision and recall. Averaging: see `MultilabelAveraged`.

    >>> MultilabelF1(average="samples")(([[2.0, -1.0], [3.0, 1.0]], [[1, 0], [1, 0]]))
    {'multilabel_f1': 0.8333333333333333}
    """

    default_name = "multilabel_f1"

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        return divide(2 * found, predicted + present)


class MultilabelRocAuc(Metric):
    """Area under the ROC curve of every label, averaged ("macro") or pooled ("micro").

    The exact value needs every score: it keeps one float32 and one byte per row and class.

    >>> MultilabelRocAuc()(([[0.1, 0.9], [0.8, 0.2]], [[0, 1], [1, 0]]))
    {'multilabel_roc_auc': 1.0}
    """

    reads_all = True
    default_name = "multilabel_roc_auc"
    keeps_rows = True

    def __init__(self, *, average: str = "macro", **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.average = check_average(self.name, average, ("macro", "micro"))

    def _measure(self, predictions: Any, references: Any) -> Measured:
        scores, truth, mask = read_tables(predictions, references, self.name, self.ignore_index)
        row = np.flatnonzero(mask.any(axis=1))
        kept = check_finite(scores.astype(np.float32), self.name)[row]
        return Measured(len(truth), row, {"scores": kept, "truth": np.where(mask, truth, -1).astype(np.int8)[row]})

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        return values if weights is None else {name: np.repeat(one, weights, axis=0) for name, one in values.items()}

    def _score(self, totals: Arrays) -> dict[str, float]:
        scores, truth = totals["scores"], totals["truth"]
        if self.average == "micro":
            return {self.name: self._compute_area(scores.reshape(-1), truth.reshape(-1), self.name)}
        areas = [
            self._compute_area(scores[:, label], truth[:, label], f"{self.name} of label {label}")
            for label in range(scores.shape[1])
        ]
        return {self.name: float(np.mean(areas))}

    def _compute_area(self, scores: np.ndarray, truth: np.ndarray, name: str) -> float:
        there = truth >= 0
        return compute_roc_area(scores[there], truth[there] == 1, name)


def read_tables(
    predictions: Any, references: Any, name: str, ignore_index: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores as given, truth and what counts as boolean tables, all `(rows, classes)`.

    >>> scores, truth, mask = read_tables([[0.5, -2.0]], [[1.0, -100]], "multilabel_f1", -100)
    >>> truth, mask
    (array([[ True, False]]), array([[ True, False]]))
    """
    labels = read_class_labels(references, name)
    scores = np.atleast_1d(read_array(get_first_output(predictions, name), name, "predictions"))
    if scores.shape != labels.shape or labels.ndim != 2:
        raise MetricError(
            what=f"{name}: predictions {scores.shape}, labels {labels.shape}",
            why="both are tables of one shape: a row per example, a column per class",
            fix="encode labels as 0 and 1 per class; for one class per row use the metric without 'multilabel_'",
        )
    mask = find_counted(labels, ignore_index)
    bad = mask & (labels != 0) & (labels != 1)
    if bad.any():
        raise MetricError(
            what=f"{name}: label {labels[bad].flat[0]} is neither 0 nor 1",
            why="each column says whether its class holds",
            fix="encode labels as 0 and 1 per class",
        )
    return scores, labels == 1, mask
