"""Numbers against scikit-learn and scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import MetricError
from ostinato.core.notices import forget_notices
from ostinato.metrics import metric

sk: Any = pytest.importorskip("sklearn.metrics")
stats: Any = pytest.importorskip("scipy.stats")

ERRORS = {
    "mse": "mean_squared_error",
    "rmse": "root_mean_squared_error",
    "mae": "mean_absolute_error",
    "r2": "r2_score",
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shape = (int(rng.integers(2, 40)), int(rng.integers(2, 5))) if seed % 2 else (int(rng.integers(2, 40)),)
        truth, guess = rng.normal(size=shape) * 3 + 2, rng.normal(size=shape)
        expected = {name: pytest.approx(getattr(sk, ERRORS[name])(truth, guess))}
        assert metric(name)((guess, truth)) == expected
        assert metric(ERRORS[name])((guess, truth)) == {ERRORS[name]: expected[name]}
        if len(shape) == 1:
            assert metric(name)((guess[:, None], truth)) == metric(name)((guess, truth[:, None])) == expected


@pytest.mark.parametrize(("name", "reference"), [("pearson", stats.pearsonr), ("spearman", stats.spearmanr)])
def test_correlations(name: str, reference: Any) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = np.round(rng.normal(size=rng.integers(3, 40)), 1)
        guess = np.round(truth * rng.normal() + rng.normal(size=len(truth)), 1)
        assert metric(name)((guess, truth))[name] == pytest.approx(reference(guess, truth).statistic)
    columns = rng.normal(size=(2, 30, 2))
    mean = np.mean([reference(columns[0, :, k], columns[1, :, k]).statistic for k in range(2)])
    assert metric(name)((columns[0], columns[1]))[name] == pytest.approx(mean)


@pytest.mark.parametrize("name", ["pearson", "r2"])
def test_large_means_do_not_drown_small_variances(name: str) -> None:
    rng = np.random.default_rng(0)
    truth = 1e8 + rng.normal(size=200)
    guess = truth + rng.normal(size=200)
    target = metric(name)
    for part in np.array_split(np.arange(200), 13):
        target.update(guess[part], truth[part])
    expected = stats.pearsonr(guess, truth).statistic if name == "pearson" else sk.r2_score(truth, guess)
    assert target.compute()[name] == pytest.approx(expected, rel=1e-6)


def test_constant_labels(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    same = np.full(6, 0.1)
    other = np.arange(6.0)
    assert metric("r2")((same, same)) == {"r2": 1.0}
    assert metric("r2")((other, same)) == {"r2": 0.0}
    for name in ("pearson", "spearman"):
        assert math.isnan(metric(name)((same, other))[name])
        assert math.isnan(metric(name)((other, same))[name])
    text = capsys.readouterr().err
    assert "pearson is NaN: the predictions are all the same" in text
    assert "spearman is NaN: the labels are all the same" in text
    assert math.isnan(metric("r2")(([1.0], [2.0]))["r2"])
    assert "a single label" in capsys.readouterr().err
    target = metric("pearson")
    for part in np.array_split(same, 3):
        target.update(part, other[: len(part)])
    assert math.isnan(target.compute()["pearson"])


def test_ignored_values_are_noted_and_can_count(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    pair = np.array([1.0, -99.0]), np.array([2.0, -100.0])
    assert metric("mae")(pair) == {"mae": 1.0}
    assert "ignore_index=None" in capsys.readouterr().err
    assert metric("mae", ignore_index=None)((pair[0], pair[1] + 1)) == {"mae": 1.0}
    assert metric("mse", ignore_index=None)(pair) == {"mse": 1.0}
    assert not capsys.readouterr().err


def test_half_precision_tensors_are_summed_in_double() -> None:
    guess = torch.full((5000,), 0.1, dtype=torch.bfloat16)
    value = float(guess[0])
    assert metric("mae")((guess, torch.zeros(5000)))["mae"] == pytest.approx(value, rel=1e-12)


def test_nan_predictions_stay_visible() -> None:
    for name in ("mse", "spearman", "pearson"):
        assert math.isnan(metric(name)(([1.0, math.nan, 2.0], [1.0, 2.0, 4.0]))[name])


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(MetricError, match=r"predictions \(2, 3\) do not fit labels \(2,\)") as caught:
        metric("mse")((np.ones((2, 3)), np.ones(2)))
    assert "num_labels=1" in caught.value.fix
