"""Pictures of recordings for the report: the waveform, and below it the spectrogram."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .resampler import Samples

_WIDTH, _WAVE_HEIGHT, _SPECTROGRAM_HEIGHT = 240, 48, 96  # pixels
_WINDOW_SECONDS = 0.025
_DYNAMIC_RANGE = 70.0  # dB below the loudest point that are still drawn
_INK, _PAPER = (36, 71, 140), (250, 250, 252)
_COLORS = ((0, 0, 8), (46, 24, 104), (152, 42, 110), (238, 100, 60), (252, 250, 180))  # from quiet to loud


def draw_recording(samples: Samples, rate: int) -> Any:
    """Return an image of Pillow: the waveform above the spectrogram, which goes up to half the rate."""
    from PIL import Image  # noqa: PLC0415

    parts = [_draw_wave(samples), _draw_spectrogram(samples, rate)]
    return Image.fromarray(np.concatenate(parts))


def _draw_wave(samples: Samples) -> NDArray[np.uint8]:
    """Draw a line from the lowest to the highest sample of each column of pixels."""
    edges = np.linspace(0, len(samples), _WIDTH + 1).astype(int)
    peak = max(float(np.abs(samples).max(initial=0.0)), 1e-6)
    columns = [samples[start : max(stop, start + 1)] for start, stop in pairwise(edges)]
    middle = (_WAVE_HEIGHT - 1) / 2
    high = np.array([middle - column.max(initial=0.0) / peak * middle for column in columns])
    low = np.array([middle - column.min(initial=0.0) / peak * middle for column in columns])
    rows = np.arange(_WAVE_HEIGHT)[:, None]
    is_drawn = (rows >= np.floor(high)) & (rows <= np.ceil(low))
    return np.where(is_drawn[..., None], np.array(_INK, np.uint8), np.array(_PAPER, np.uint8))


def _draw_spectrogram(samples: Samples, rate: int) -> NDArray[np.uint8]:
    """Draw the loudness in dB; time goes to the right, frequency up."""
    size = max(2 * _SPECTROGRAM_HEIGHT, round(_WINDOW_SECONDS * rate))
    padded = np.pad(samples, size // 2)
    starts = np.linspace(0, len(samples) - 1, _WIDTH).astype(int)
    frames = padded[starts[:, None] + np.arange(size)] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = np.linspace(0, power.shape[1], _SPECTROGRAM_HEIGHT + 1).astype(int)
    bands = np.add.reduceat(power, edges[:-1], axis=1)
    loudness = 10 * np.log10(bands + 1e-12)
    share = np.clip((loudness - loudness.max()) / _DYNAMIC_RANGE + 1, 0, 1).T[::-1]
    stops = np.linspace(0, 1, len(_COLORS))
    channels = [np.interp(share, stops, [color[channel] for color in _COLORS]) for channel in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)
