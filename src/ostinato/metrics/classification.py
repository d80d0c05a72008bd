"""One class per label: accuracy, precision, recall, F1, Matthews correlation, area under the ROC curve.

Predictions are logits (one more dimension than the labels) or class ids (the labels' shape); labels may be of any
shape, so rows, tokens and pixels are counted alike. All but the area under the curve keep three counts per class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import MetricError
from ..core.notices import note_once
from .base import Arrays, Measured, Metric, TooFewRowsError
from .inputs import (
    condense_classes,
    find_counted,
    find_rows,
    get_first_output,
    read_array,
    read_class_labels,
    read_classes,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import NamelessOptions, Options

AVERAGES = ("binary", "macro", "micro", "weighted")


class Accuracy(Metric):
    """The share of labels that were predicted. Keeps two numbers.

    >>> Accuracy()(([[0.2, 0.8], [0.9, 0.1]], [1, 1]))
    {'accuracy': 0.5}
    """

    default_name = "accuracy"
    counts = True

    def condense(self, predictions: Any, references: Any) -> tuple[Any, Any] | None:
        return condense_classes(predictions, references, self.name)

    def _measure(self, predictions: Any, references: Any) -> Measured:
        found = read_classes(predictions, references, self.name, self.ignore_index)
        hit = found.truth == found.guess
        if found.one_each:
            values = {"correct": hit.astype(np.int64), "labels": np.ones(len(hit), dtype=np.int64)}
            return Measured(found.rows, found.row, values)
        labels = np.bincount(found.row, minlength=found.rows)
        correct = np.bincount(found.row[hit], minlength=found.rows)
        row = np.flatnonzero(labels)
        return Measured(found.rows, row, {"correct": correct[row], "labels": labels[row]})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: float(totals["correct"] / totals["labels"])}


class TopKAccuracy(Metric):
    """The share of labels that are among the `k` classes with the highest logits. Keeps two numbers.

    Of equal logits, those of the lower classes come first.

    >>> TopKAccuracy(k=2)(([[0.1, 0.7, 0.2], [0.1, 0.7, 0.2]], [2, 0]))
    {'top_2_accuracy': 0.5}
    """

    default_name = "top_k_accuracy"
    counts = True

    def __init__(self, *, k: int = 5, name: str | None = None, **options: Unpack[NamelessOptions]) -> None:
        if k < 1:
            raise MetricError(f"top_k_accuracy: k={k}", "at least one class is looked at", "k=5")
        super().__init__(name=f"top_{k}_accuracy" if name in (None, self.default_name) else name, **options)
        self.k = k

    def _measure(self, predictions: Any, references: Any) -> Measured:
        labels = read_class_labels(references, self.name)
        logits = read_array(get_first_output(predictions, self.name), self.name, "predictions")
        if logits.shape[:-1] != labels.shape:
            raise MetricError(
                what=f"{self.name}: predictions {logits.shape} do not fit labels {labels.shape}",
                why="it needs a logit for each class of every label",
                fix="pass logits, not class ids",
            )
        mask = find_counted(labels, self.ignore_index)
        scores, truth = check_finite(logits[mask], self.name), labels[mask]
        own = np.take_along_axis(scores, truth[:, None], axis=1)
        is_before = (scores > own) | ((scores == own) & (np.arange(scores.shape[1]) < truth[:, None]))
        hit = (is_before.sum(axis=1) < self.k).astype(np.int64)
        return Measured(len(labels), find_rows(mask), {"hits": hit, "labels": np.ones(len(hit), dtype=np.int64)})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: float(totals["hits"] / totals["labels"])}


class ClassCounts(Metric):
    """Metrics that follow from three counts per class: found, predicted, present.

    For an interval it keeps the true and the predicted class of every label, 16 bytes each.
    """

    counts = grows = True

    def condense(self, predictions: Any, references: Any) -> tuple[Any, Any] | None:
        return condense_classes(predictions, references, self.name)

    def _measure(self, predictions: Any, references: Any) -> Measured:
        found = read_classes(predictions, references, self.name, self.ignore_index)
        self._num_classes = max(self._num_classes, found.num_classes)
        return Measured(
            found.rows,
            found.row,
            {"truth": found.truth.astype(np.int32), "guess": found.guess.astype(np.int32)},
        )

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        self._num_classes = 0

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another copy of this metric has seen, given as its `state()`."""
        super().merge(state)
        self._num_classes = max(self._num_classes, 0 if self._totals is None else len(self._totals["present"]))

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        truth, guess = values["truth"], values["guess"]
        size = max(int(truth.max()) + 1, int(guess.max()) + 1, self._num_classes)
        hit = truth == guess
        return {
            "found": np.bincount(truth[hit], None if weights is None else weights[hit], size).astype(np.float64),
            "predicted": np.bincount(guess, weights, size).astype(np.float64),
            "present": np.bincount(truth, weights, size).astype(np.float64),
        }


class BalancedAccuracy(ClassCounts):
    """The mean over classes of the share that was found: rare classes weigh as much as common ones.

    >>> BalancedAccuracy()(([0, 0, 0, 0], [0, 0, 0, 1]))
    {'balanced_accuracy': 0.5}
    """

    default_name = "balanced_accuracy"

    def _score(self, totals: Arrays) -> dict[str, float]:
        present = totals["present"] > 0
        return {self.name: float((totals["found"][present] / totals["present"][present]).mean())}


class MatthewsCorrelation(ClassCounts):
    """Correlation between predicted and true classes, for two or more: 1 is perfect, 0 is chance.

    >>> MatthewsCorrelation()(([0, 1, 1, 1], [0, 0, 1, 1]))
    {'matthews_correlation': 0.5773502691896258}
    """

    default_name = "matthews_correlation"

    def _score(self, totals: Arrays) -> dict[str, float]:
        predicted, present = totals["predicted"], totals["present"]
        number, correct = present.sum(), totals["found"].sum()
        spread_predicted = number**2 - predicted @ predicted
        spread_present = number**2 - present @ present
        if not spread_predicted or not spread_present:  # only one class was predicted, or is there
            return {self.name: 0.0}
        covariance = correct * number - predicted @ present
        return {self.name: float(covariance / np.sqrt(spread_predicted * spread_present))}


class Averaged(ClassCounts):
    """Precision, recall and F1: how they are averaged over classes.

    Args:
        average: "binary" (the class `positive` alone), "macro" (all classes alike), "weighted" (by how often a class
            is present) or "micro" (all labels pooled). None: binary for two classes and macro for more, with a notice.
        positive: the class that "binary" looks at.

    A class that is neither present nor predicted is left out; what would be divided by zero counts as 0.
    """

    def __init__(self, *, average: str | None = None, positive: int = 1, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.average, self.positive = check_average(self.name, average, AVERAGES), positive

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _score(self, totals: Arrays) -> dict[str, float]:
        found, predicted, present = totals["found"], totals["predicted"], totals["present"]
        average = self.average or self._choose_average(len(present))
        if average == "binary":
            return {self.name: self._score_binary(found, predicted, present)}
        return {self.name: compute_average(self._compute_ratio, found, predicted, present, average)}

    def _score_binary(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> float:
        if len(present) > 2:
            raise MetricError(
                what=f"{self.name}: average='binary' with {len(present)} classes",
                why=f"it scores class {self.positive} against one other",
                fix="average='macro' (classes alike), 'weighted' (by frequency) or 'micro' (labels pooled)",
            )
        if not 0 <= self.positive <= 1:
            raise MetricError(
                what=f"{self.name}: positive={self.positive} is not one of two classes",
                why="they are 0 and 1",
                fix="positive=1, or average='macro'",
            )
        scores = self._compute_ratio(found, predicted, present)
        return float(scores[self.positive]) if self.positive < len(scores) else 0.0

    def _choose_average(self, num_classes: int) -> str:
        if num_classes <= 2:
            return "binary"
        note_once(f"{self.name} is averaged over {num_classes} classes: average='macro'", key=f"{self.name}.average")
        return "macro"


class Precision(Averaged):
    """The share of what was predicted that is right. Averaging: see `Averaged`.

    >>> Precision()(([1, 1, 0], [1, 0, 1]))
    {'precision': 0.5}
    """

    default_name = "precision"

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        return divide(found, predicted)


class Recall(Averaged):
    """The share of what is there that was found. Averaging: see `Averaged`.

    >>> Recall(average="macro")(([0, 1, 2, 2], [0, 1, 1, 2]))
    {'recall': 0.8333333333333334}
    """

    default_name = "recall"

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        return divide(found, present)


class F1(Averaged):
    """The harmonic mean of precision and recall. Averaging: see `Averaged`.

    >>> F1(average="micro")(([0, 1, 2, 2], [0, 1, 1, 2]))
    {'f1': 0.75}
    """

    default_name = "f1"

    def _compute_ratio(self, found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
        return divide(2 * found, predicted + present)


class RocAuc(Metric):
    """Area under the ROC curve: how often a positive row scores higher than a negative one.

    The exact value needs every score, so it keeps them as float32: one per row for two classes (8 bytes with the
    label), one per class and row for more.

    Predictions are logits `(rows, 2)`, or scores `(rows,)` or `(rows, 1)` of class 1; for more classes logits
    `(rows, classes)`, each class against the rest, averaged by `average` ("macro" or "weighted").

    >>> RocAuc()(([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))
    {'roc_auc': 0.75}
    """

    reads_all = True
    default_name = "roc_auc"
    keeps_rows = True

    def __init__(self, *, average: str = "macro", **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.average = check_average(self.name, average, ("macro", "weighted"))

    def _measure(self, predictions: Any, references: Any) -> Measured:
        labels = read_class_labels(references, self.name)
        scores = read_array(get_first_output(predictions, self.name), self.name, "predictions")
        mask = find_counted(labels, self.ignore_index)
        kept = self._read_scores(scores, labels)[mask]
        truth = labels[mask]
        columns = kept.shape[1] if kept.ndim == 2 else 2
        if len(truth) and not 0 <= truth.min() <= truth.max() < columns:
            bad = truth.min() if truth.min() < 0 else truth.max()
            raise MetricError(
                what=f"{self.name}: label {bad} is not among {columns} classes",
                why=f"predictions {scores.shape} score classes 0 to {columns - 1}",
                fix="pass logits with one column per class",
            )
        return Measured(len(labels), find_rows(mask), {"scores": kept, "truth": truth.astype(np.int32)})

    def _read_scores(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        if scores.ndim == labels.ndim + 1 and scores.shape[-1] == 1:
            scores = scores[..., 0]
        if scores.shape == labels.shape:
            return check_finite(scores.astype(np.float32), self.name)
        if scores.shape[:-1] != labels.shape:
            raise MetricError(
                what=f"{self.name}: predictions {scores.shape} do not fit labels {labels.shape}",
                why="it needs a score per row, or a logit per row and class",
                fix="pass logits, not class ids",
            )
        if scores.shape[-1] == 2:
            return check_finite((scores[..., 1] - scores[..., 0]).astype(np.float32), self.name)
        return check_finite(softmax(scores), self.name)

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        return values if weights is None else {name: np.repeat(one, weights, axis=0) for name, one in values.items()}

    def _score(self, totals: Arrays) -> dict[str, float]:
        scores, truth = totals["scores"], totals["truth"]
        if scores.ndim == 1:
            return {self.name: compute_roc_area(scores, truth == 1, self.name)}
        areas = [
            compute_roc_area(scores[:, label], truth == label, f"{self.name} of class {label}")
            for label in range(scores.shape[1])
        ]
        weights = np.bincount(truth, minlength=len(areas)) if self.average == "weighted" else None
        return {self.name: float(np.average(areas, weights=weights))}


# ------------------------------------------------------------------------------------------------------------- shared


def compute_roc_area(scores: np.ndarray, positive: np.ndarray, name: str) -> float:
    """Return the area under the ROC curve, by ranks; ties count half.

    >>> compute_roc_area(np.array([1.0, 2.0, 2.0]), np.array([False, True, False]), "roc_auc")
    0.75
    """
    number = int(positive.sum())
    others = len(positive) - number
    if not number or not others:
        raise TooFewRowsError(
            what=f"{name} is not defined",
            why=f"all {len(positive)} labels are {'positive' if number else 'negative'}; it compares the two kinds",
            fix="evaluate on rows of both kinds, or use 'accuracy'",
        )
    above = compute_mid_ranks(scores)[positive].sum() - number * (number + 1) / 2
    return float(above / (number * others))


def compute_mid_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1; equal values share the mean of theirs.

    >>> compute_mid_ranks(np.array([5.0, 1.0, 5.0]))
    array([2.5, 1. , 2.5])
    """
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(times, dtype=np.float64)
    return (last - (times - 1) / 2)[place.reshape(-1)]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities over the last dimension, in float32.

    >>> softmax(np.array([[0.0, 0.0]]))
    array([[0.5, 0.5]], dtype=float32)
    """
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return (shifted / shifted.sum(axis=-1, keepdims=True)).astype(np.float32)


def check_finite(scores: np.ndarray, name: str) -> np.ndarray:
    """Return scores; raise if one is NaN, which has no order.

    >>> check_finite(np.array([1.0]), "roc_auc")
    array([1.])
    """
    if np.isnan(scores).any():
        raise MetricError(
            what=f"{name}: {int(np.isnan(scores).sum())} scores of a batch are NaN",
            why="NaN is neither above nor below anything, so there is no curve",
            fix="find where the model's output overflows; bf16=True instead of fp16=True often helps",
        )
    return scores


def check_average(name: str, average: str | None, allowed: tuple[str, ...]) -> Any:
    """Return a way of averaging; raise if it does not exist.

    >>> check_average("f1", "macro", ("macro", "micro"))
    'macro'
    """
    if average is not None and average not in allowed:
        raise MetricError(
            what=f"{name}: average={average!r} is not a way of averaging",
            why=f"there are {', '.join(map(repr, allowed))}",
            fix=f"average={allowed[0]!r}",
        )
    return average


def compute_average(ratio: Any, found: np.ndarray, predicted: np.ndarray, present: np.ndarray, average: str) -> float:
    """Average a ratio per class: "micro", "macro" or "weighted".

    >>> shares = compute_average(
    ...     lambda f, p, t: divide(f, t), np.array([1, 1]), np.array([2, 1]), np.array([1, 2]), "macro"
    ... )
    >>> shares
    0.75
    """
    if average == "micro":
        return float(ratio(found.sum(), predicted.sum(), present.sum()))
    there = (predicted + present) > 0
    scores = ratio(found[there], predicted[there], present[there])
    if average == "weighted":
        return float(np.average(scores, weights=present[there])) if present.sum() else 0.0
    return float(scores.mean()) if len(scores) else 0.0


def divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide part by whole; 0 where the whole is 0.

    >>> divide(np.array([1, 0]), np.array([2, 0]))
    array([0.5, 0. ])
    """
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)
