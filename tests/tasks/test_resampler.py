"""Resampling beside an ideal, scipy's polyphase filter and soxr."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ostinato.tasks.media.resampler import resample

soxr = pytest.importorskip("soxr")
signal = pytest.importorskip("scipy.signal")

RATES = [(8000, 16000), (44100, 16000), (48000, 16000), (11025, 16000), (16000, 8000), (16000, 44100), (11127, 16000)]
EDGE = 400  # samples at either end where a filter has nothing to stand on


def tones(rate: int, seconds: float, below: float) -> np.ndarray:
    """Twelve tones between 2 % and 85 % of a Nyquist frequency."""
    time = np.arange(math.ceil(rate * seconds)) / rate
    return sum(np.sin(2 * np.pi * share * below * time + share) for share in np.linspace(0.02, 0.85, 12)) / 12


def error(one: np.ndarray, other: np.ndarray) -> float:
    """The root of the mean squared difference."""
    count = min(len(one), len(other))
    return float(np.sqrt(np.mean((one[:count][EDGE:-EDGE] - other[:count][EDGE:-EDGE]) ** 2)))


@pytest.mark.parametrize(("rate", "new_rate"), RATES)
def test_tones_are_those_sampled_at_the_new_rate(rate: int, new_rate: int) -> None:
    below = min(rate, new_rate) / 2
    given = tones(rate, 0.25, below).astype(np.float32)
    ours, ideal = resample(given, rate, new_rate), tones(new_rate, 0.25, below)
    assert ours.dtype == np.float32
    assert len(ours) == math.ceil(len(given) * new_rate / rate)
    common = math.gcd(rate, new_rate)
    scipys = signal.resample_poly(given, new_rate // common, rate // common)
    assert error(ours, ideal) < 1e-6  # -120 dB
    assert error(ours, ideal) < error(scipys, ideal)
    assert error(ours, soxr.resample(given, rate, new_rate)) < 1e-4


@pytest.mark.parametrize(("rate", "new_rate"), [(44100, 16000), (48000, 16000), (16000, 8000), (11127, 8000)])
@pytest.mark.parametrize("above", [1.005, 1.2])
def test_nothing_is_folded_below_the_new_nyquist_frequency(rate: int, new_rate: int, above: float) -> None:
    tone = np.sin(2 * np.pi * above * new_rate / 2 * np.arange(rate) / rate).astype(np.float32)
    left = resample(tone, rate, new_rate)[EDGE:-EDGE]
    assert 20 * np.log10(np.sqrt(2 * np.mean(left**2))) < -95


def test_an_impulse_stays_where_it_is() -> None:
    impulse = np.zeros(800, np.float32)
    impulse[400] = 1
    assert resample(impulse, 8000, 16000).argmax() == 800
    assert resample(impulse, 8000, 4000).argmax() == 200
    assert resample(impulse, 11127, 16000).argmax() == round(400 * 16000 / 11127)


def test_short_and_empty_recordings() -> None:
    assert len(resample(np.zeros(0, np.float32), 8000, 16000)) == 0
    for count in (1, 2, 5):
        assert len(resample(np.ones(count, np.float32), 44100, 16000)) == math.ceil(count * 160 / 441)
        assert len(resample(np.ones(count, np.float32), 8001, 16000)) == math.ceil(count * 16000 / 8001)
    same = np.ones(3, np.float32)
    assert resample(same, 8000, 8000) is same
