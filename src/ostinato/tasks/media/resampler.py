"""Resampling by a windowed sinc: band-limited, so that nothing above the new Nyquist frequency is folded below it.

An output sample is a weighted sum of the input samples around it. The weights depend on its position between
two input samples alone, which repeats after `up` output samples: a block of them is one matrix product.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

_ZERO_CROSSINGS = 64  # of the sinc on either side; the transition band is a tenth of the lower Nyquist frequency
_CUTOFF = 0.95  # of the lower Nyquist frequency: the middle of the transition band, which ends below 1
_KAISER_BETA = 10.0  # about 100 dB of attenuation in the stop band
_LEAST_BLOCK = 64  # output samples of a block: fewer would copy every input sample more often
_LARGEST_MATRIX = 1 << 22  # weights that are kept for a pair of rates; for rates with more they are interpolated
_PHASES = 4096  # positions between two input samples, to interpolate between


def resample(samples: Samples, rate: int, new_rate: int) -> Samples:
    """Return a recording at another rate, of `ceil(len(samples) * new_rate / rate)` samples.

    Outside of the recording the signal is taken to be zero.

    >>> tone = np.sin(np.arange(800, dtype=np.float32) * 0.1)
    >>> len(resample(tone, 8000, 16000)), len(resample(tone, 44100, 16000))
    (1600, 291)
    """
    if rate == new_rate or not len(samples):
        return samples
    common = math.gcd(rate, new_rate)
    up, down = new_rate // common, rate // common
    count = -(-len(samples) * up // down)
    repeats = -(-_LEAST_BLOCK // up)
    up, down = up * repeats, down * repeats
    reach = _compute_reach(up, down)
    if up * (down + 2 * reach) > _LARGEST_MATRIX:
        return _interpolate(samples, up / down, count, reach)
    blocks = -(-count // up)
    padded = np.zeros(blocks * down + 2 * reach, np.float32)
    fitting = min(len(samples), len(padded) - reach)
    padded[reach : reach + fitting] = samples[:fitting]
    windows = np.lib.stride_tricks.sliding_window_view(padded, down + 2 * reach)[::down]
    return (windows @ _build_weights(up, down)).reshape(-1)[:count]


def _compute_reach(up: int, down: int) -> int:
    """Return how many input samples on either side have a weight."""
    return math.ceil(_ZERO_CROSSINGS * max(1.0, down / up)) + 1


@lru_cache(maxsize=8)
def _build_weights(up: int, down: int) -> Samples:
    """Return the weights of `down` input samples and their neighbours (rows) for `up` output samples (columns)."""
    reach = _compute_reach(up, down)
    inputs = np.arange(-reach, down + reach)[:, None]
    outputs = np.arange(up)[None, :] * (down / up)
    return _compute_weights(outputs - inputs, up / down)


def _compute_weights(distances: NDArray[Any], ratio: float) -> Samples:
    """Return the value of the windowed sinc at distances in input samples."""
    scale = min(1.0, ratio)
    position = distances * scale / _ZERO_CROSSINGS
    window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1.0 - position**2, 0.0, None))) / np.i0(_KAISER_BETA)
    window[np.abs(position) >= 1.0] = 0.0
    return (np.sinc(distances * scale * _CUTOFF) * window * scale * _CUTOFF).astype(np.float32)


def _interpolate(samples: Samples, ratio: float, count: int, reach: int) -> Samples:
    """Return the same for rates that have no small common measure, such as 11,127 and 16,000 Hz.

    The weights are interpolated between those of `_PHASES` positions; the error is below that of float32.
    """
    padded = np.pad(samples, reach + 1)
    neighbours, result = np.arange(-reach, reach + 1), np.empty(count, np.float32)
    weights = _build_phases(ratio, reach)
    for start in range(0, count, 4096):
        places = np.arange(start, min(start + 4096, count)) / ratio
        nearest = places.astype(np.int64)
        phases, rest = np.divmod((places - nearest) * _PHASES, 1.0)
        taken = padded[np.minimum(nearest[:, None] + neighbours + reach + 1, len(padded) - 1)]
        before = np.einsum("ij,ij->i", taken, weights[phases.astype(np.int64)])
        after = np.einsum("ij,ij->i", taken, weights[phases.astype(np.int64) + 1])
        result[start : start + len(places)] = before + rest * (after - before)
    return result


@lru_cache(maxsize=2)
def _build_phases(ratio: float, reach: int) -> Samples:
    """Return the weights of the neighbours (columns) of a position, for positions between two input samples (rows)."""
    phases = np.arange(_PHASES + 1)[:, None] / _PHASES
    return _compute_weights(phases - np.arange(-reach, reach + 1)[None, :], ratio)
