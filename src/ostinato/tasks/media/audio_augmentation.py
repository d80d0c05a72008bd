"""Changes of recordings for training: windows, gain, noise, and masks over a spectrogram (SpecAugment).

All of them draw from numpy's global stream, which the reading of a row finds seeded by the row's own position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .resampler import Samples


def take_random_window(samples: Samples, length: int) -> Samples:
    """Return `length` successive samples from a random place; a shorter recording is returned as it is."""
    if len(samples) <= length:
        return samples
    start = np.random.randint(len(samples) - length + 1)
    return samples[start : start + length]


@dataclass(frozen=True)
class WaveAugmentation:
    """Random loudness and noise.

    Args:
        gain_db: The loudness is changed by up to this, up or down.
        noise_snr_db: White noise is added, at least this far below the recording and at most 20 dB further.
        probability: That a recording gets noise.

    >>> WaveAugmentation().is_off
    True
    """

    gain_db: float = 0.0
    noise_snr_db: float | None = None
    probability: float = 0.5

    @property
    def is_off(self) -> bool:
        """Whether recordings stay as they are, and nothing is drawn."""
        return not self.gain_db and self.noise_snr_db is None

    def __call__(self, samples: Samples) -> Samples:
        if self.noise_snr_db is not None and np.random.random() < self.probability:
            distance = self.noise_snr_db + 20.0 * np.random.random()
            scale = np.sqrt(np.mean(samples**2)) * 10.0 ** (-distance / 20.0)
            samples = samples + (scale * np.random.standard_normal(len(samples))).astype(np.float32)
        if self.gain_db:
            samples = samples * np.float32(10.0 ** (np.random.uniform(-self.gain_db, self.gain_db) / 20.0))
        return samples


@dataclass(frozen=True)
class SpectrogramMasks:
    """SpecAugment: bands of time and of frequency are replaced by the mean of the spectrogram.

    Args:
        time_masks: The number of bands of frames.
        time_width: Each is at most this many frames wide, and at most a fifth of the recording.
        frequency_masks: The number of bands of frequencies.
        frequency_width: Each is at most this many frequencies wide.
    """

    time_masks: int = 2
    time_width: int = 40
    frequency_masks: int = 2
    frequency_width: int = 15

    def __call__(self, features: NDArray[np.float32], time_axis: int) -> NDArray[np.float32]:
        """Return a copy of a spectrogram with masks; `time_axis` is 0 or 1."""
        masked, mean = features.copy(), features.mean()
        by_time = masked if time_axis == 0 else masked.T  # views
        widest = min(self.time_width, len(by_time) // 5)
        for _ in range(self.time_masks):
            by_time[_draw_band(len(by_time), widest)] = mean
        for _ in range(self.frequency_masks):
            by_time[:, _draw_band(by_time.shape[1], min(self.frequency_width, by_time.shape[1] // 2))] = mean
        return masked


def _draw_band(length: int, widest: int) -> slice:
    width = np.random.randint(widest + 1)
    start = np.random.randint(length - width + 1)
    return slice(start, start + width)
