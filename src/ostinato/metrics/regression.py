"""Numbers against numbers: errors, explained variance, correlations.

Predictions and labels have one shape; a last dimension of 1 (`num_labels=1`) is dropped. With several outputs per row
each is scored alone and the mean is given, as scikit-learn does. Labels of -100 are ignored, which is reported once,
since a target may well be -100: `ignore_index=None` counts it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.notices import note_once
from .base import Arrays, Measured, Metric
from .classification import compute_mid_ranks
from .inputs import read_values


class MeanError(Metric):
    """Errors that are a mean over rows. Keeps two numbers per output."""

    reads_all = True
    higher_is_better = False

    def _compute_errors(self, difference: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guess, truth, mask = read_values(predictions, references, self.name, self.ignore_index)
        row = np.flatnonzero(mask.any(axis=1))
        error = np.where(mask, self._compute_errors(guess - truth), 0.0)
        return Measured(len(truth), row, {"error": error[row], "labels": mask[row]})

    def _score(self, totals: Arrays) -> dict[str, float]:
        there = totals["labels"] > 0
        return {self.name: float(self._transform_means(totals["error"][there] / totals["labels"][there]).mean())}

    def _transform_means(self, means: np.ndarray) -> np.ndarray:
        return means


class MeanSquaredError(MeanError):
    """The mean of squared errors.

    >>> MeanSquaredError()(([[1.0], [2.0]], [1.0, 4.0]))
    {'mse': 2.0}
    """

    default_name = "mse"

    def _compute_errors(self, difference: np.ndarray) -> np.ndarray:
        return difference**2


class RootMeanSquaredError(MeanSquaredError):
    """The root of the mean of squared errors: in the unit of the labels.

    >>> RootMeanSquaredError()(([1.0, 2.0], [1.0, 4.0]))
    {'rmse': 1.4142135623730951}
    """

    default_name = "rmse"

    def _transform_means(self, means: np.ndarray) -> np.ndarray:
        return np.sqrt(means)


class MeanAbsoluteError(MeanError):
    """The mean of absolute errors.

    >>> MeanAbsoluteError()(([1.0, 2.0], [1.0, 4.0]))
    {'mae': 1.0}
    """

    default_name = "mae"

    def _compute_errors(self, difference: np.ndarray) -> np.ndarray:
        return np.abs(difference)


class Moments(Metric):
    """Metrics that follow from means, variances and the covariance. Keeps seven numbers per output.

    Batches are joined around their own means (Chan's update), so that a large mean does not drown a small variance.
    """

    reads_all = True

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guess, truth, mask = read_values(predictions, references, self.name, self.ignore_index)
        row = np.flatnonzero(mask.any(axis=1))
        return Measured(len(truth), row, {"guess": guess[row], "truth": truth[row], "counts": mask[row]})

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        counts = values["counts"] if weights is None else values["counts"] * weights[:, None]
        labels = counts.sum(axis=0, dtype=np.float64)
        per_label = np.where(labels > 0, labels, 1.0)
        guess_mean = (counts * values["guess"]).sum(axis=0) / per_label
        truth_mean = (counts * values["truth"]).sum(axis=0) / per_label
        guess, truth = values["guess"] - guess_mean, values["truth"] - truth_mean
        return {
            "labels": labels,
            "guess_mean": guess_mean,
            "truth_mean": truth_mean,
            "guess_spread": (counts * guess**2).sum(axis=0),
            "truth_spread": (counts * truth**2).sum(axis=0),
            "covariation": (counts * guess * truth).sum(axis=0),
            "residual": (counts * (values["guess"] - values["truth"]) ** 2).sum(axis=0),
        }

    def _combine(self, one: Arrays, other: Arrays) -> Arrays:
        self._check_same_kind(one, other, whole=True)
        labels = one["labels"] + other["labels"]
        share = other["labels"] / np.where(labels > 0, labels, 1.0)
        guess_gap = other["guess_mean"] - one["guess_mean"]
        truth_gap = other["truth_mean"] - one["truth_mean"]
        between = one["labels"] * share
        return {
            "labels": labels,
            "guess_mean": one["guess_mean"] + share * guess_gap,
            "truth_mean": one["truth_mean"] + share * truth_gap,
            "guess_spread": one["guess_spread"] + other["guess_spread"] + between * guess_gap**2,
            "truth_spread": one["truth_spread"] + other["truth_spread"] + between * truth_gap**2,
            "covariation": one["covariation"] + other["covariation"] + between * guess_gap * truth_gap,
            "residual": one["residual"] + other["residual"],
        }


class R2(Moments):
    """The share of the labels' variance that is explained: 1 is perfect, 0 is the mean, below is worse than the mean.

    Labels without variance give 1 if all are met and 0 if not; a single label gives NaN, which is reported.

    >>> R2()(([2.5, 0.0, 2.0, 8.0], [3.0, -0.5, 2.0, 7.0]))
    {'r2': 0.9486081370449679}
    """

    default_name = "r2"

    def _score(self, totals: Arrays) -> dict[str, float]:
        if totals["labels"].max() < 2:
            note_once(f"{self.name} is NaN: a single label has no variance", key=f"{self.name}.single")
            return {self.name: float("nan")}
        residual, spread = totals["residual"], compute_spread(totals, "truth")
        unexplained = np.divide(residual, spread, out=(residual > 0).astype(np.float64), where=spread > 0)
        return {self.name: float((1 - unexplained)[totals["labels"] > 0].mean())}


class Pearson(Moments):
    """Linear correlation. Constant predictions or labels have none: NaN, which is reported.

    >>> Pearson()(([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]))
    {'pearson': 1.0}
    """

    default_name = "pearson"

    def _score(self, totals: Arrays) -> dict[str, float]:
        there = totals["labels"] > 0
        spreads = (compute_spread(totals, side)[there] for side in ("guess", "truth"))
        columns = zip(totals["covariation"][there], *spreads, strict=True)
        found = [correlation(covariation, guess, truth, self.name) for covariation, guess, truth in columns]
        return {self.name: float(np.mean(found))}


class Spearman(Metric):
    """Correlation of ranks. Ranks need every value, so it keeps both as float64: 16 bytes per row and output.

    >>> Spearman()(([1.0, 2.0, 40.0], [1.0, 2.0, 3.0]))
    {'spearman': 1.0}
    """

    reads_all = True
    default_name = "spearman"
    keeps_rows = True

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guess, truth, mask = read_values(predictions, references, self.name, self.ignore_index)
        row = np.flatnonzero(mask.any(axis=1))
        return Measured(len(truth), row, {"guess": guess[row], "truth": np.where(mask, truth, np.nan)[row]})

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        return values if weights is None else {name: np.repeat(one, weights, axis=0) for name, one in values.items()}

    def _score(self, totals: Arrays) -> dict[str, float]:
        columns = zip(totals["guess"].T, totals["truth"].T, strict=True)
        found = [self._to_ranks(guess, truth) for guess, truth in columns if not np.isnan(truth).all()]
        return {self.name: float(np.mean(found))}

    def _to_ranks(self, guess: np.ndarray, truth: np.ndarray) -> float:
        there = ~np.isnan(truth)
        if np.isnan(guess[there]).any():
            return float("nan")
        first, second = (compute_mid_ranks(side[there]) - (there.sum() + 1) / 2 for side in (guess, truth))
        return correlation(first @ second, first @ first, second @ second, self.name)


def compute_spread(totals: Arrays, side: str) -> np.ndarray:
    """Return the sum of squared distances from the mean; 0 where it is only what rounding leaves of a constant.

    >>> totals = {"labels": np.array([3.0]), "truth_mean": np.array([0.1]), "truth_spread": np.array([1e-34])}
    >>> compute_spread(totals, "truth")
    array([0.])
    """
    spread, rounding = totals[f"{side}_spread"], totals["labels"] * (1e-13 * totals[f"{side}_mean"]) ** 2
    return np.where(spread > rounding, spread, 0.0)


def correlation(covariation: float, one_spread: float, other_spread: float, name: str) -> float:
    """Divide the covariation by the roots of both spreads; NaN where one of them is 0.

    >>> correlation(2.0, 4.0, 1.0, "pearson")
    1.0
    """
    if one_spread <= 0 or other_spread <= 0:
        kind = "predictions" if one_spread <= 0 else "labels"
        note_once(f"{name} is NaN: the {kind} are all the same", key=f"{name}.constant {kind}")
        return float("nan")
    product = one_spread * other_spread  # its root is exact where both are equal; the product of roots is not
    scale = np.sqrt(product) if 1e-300 < product < 1e300 else np.sqrt(one_spread) * np.sqrt(other_spread)
    return float(np.clip(covariation / scale, -1, 1))
