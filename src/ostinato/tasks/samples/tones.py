"""Generator of sound: notes of four instruments, and digits spoken letter by letter, each letter by its formants."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..media.audio import import_soundfile
from ..media.resampler import Samples
from . import write_rows
from .sentences import create_random

RATE = 8000
# Of each instrument: its partials with their loudness, how fast it fades, how far its pitch trembles.
INSTRUMENTS = {
    "bell": (((1.0, 1.0), (2.76, 0.8), (5.4, 0.6)), 6.0, 0.0),
    "clarinet": (((1.0, 1.0), (3.0, 0.7), (5.0, 0.5), (7.0, 0.3)), 0.0, 0.0),
    "flute": (((1.0, 1.0), (2.0, 0.15)), 0.0, 0.02),
    "violin": (((1.0, 1.0), (2.0, 0.8), (3.0, 0.7), (4.0, 0.6), (5.0, 0.5), (6.0, 0.4)), 0.0, 0.01),
}
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_LETTERS = sorted(set("".join(DIGITS)))
# Two formants in Hz for each letter: a grid of four by four.
_FORMANTS = {letter: (300 + 170 * (number % 4), 1200 + 650 * (number // 4)) for number, letter in enumerate(_LETTERS)}


def synthesize_note(instrument: str, numbers: random.Random) -> Samples:
    """Return half a second of a note of any pitch, played by an instrument, in noise.

    >>> len(synthesize_note("bell", random.Random(0)))
    4000
    """
    time = np.arange(RATE // 2) / RATE
    pitch, (partials, decay, tremble) = numbers.uniform(220, 440), INSTRUMENTS[instrument]
    course = pitch * (1 + tremble * np.sin(2 * np.pi * 6 * time))
    waves = [loudness * np.sin(2 * np.pi * ratio * np.cumsum(course) / RATE) for ratio, loudness in partials]
    wave = sum(waves) * np.exp(-decay * time) / sum(loudness for _, loudness in partials)
    return _add_noise(numbers.uniform(0.3, 0.6) * wave, numbers)


def synthesize_speech(text: str, numbers: random.Random, pitch: float | None = None) -> Samples:
    """Return a text spoken at a random pace: a sound for each letter, a pause after each word.

    Voices have random pitches, or a given one in Hz.
    """
    pitch, pace = pitch or numbers.uniform(90, 160), numbers.uniform(0.07, 0.09)
    parts: list[np.ndarray] = [np.zeros(round(RATE * numbers.uniform(0.04, 0.08)))]
    for letter in text:
        seconds = pace * numbers.uniform(0.9, 1.1)
        start, count = sum(map(len, parts)), round(RATE * seconds)
        parts.append(np.zeros(count) if letter == " " else _synthesize_letter(letter, pitch, start, count))
    return _add_noise(np.concatenate([*parts, np.zeros(round(RATE * 0.05))]), numbers)


def _synthesize_letter(letter: str, pitch: float, start: int, count: int) -> Samples:
    """Return so many samples of the harmonics of a pitch, loud near the formants of the letter."""
    time = (start + np.arange(count)) / RATE
    harmonics = np.arange(1, int(RATE / 2 / pitch)) * pitch
    distances = harmonics[:, None] - np.array(_FORMANTS[letter])
    loudness = np.exp(-((distances / 90) ** 2)).sum(1)
    wave = (loudness[:, None] * np.sin(2 * np.pi * harmonics[:, None] * time)).sum(0)
    return 0.25 * np.hanning(len(time)) ** 0.25 * wave / max(np.abs(wave).max(), 1e-6)


def _add_noise(wave: np.ndarray, numbers: random.Random) -> Samples:
    noise = np.random.RandomState(numbers.randrange(2**32)).standard_normal(len(wave))
    return np.clip(wave + 0.01 * noise, -1, 1).astype(np.float32)


def save_recording(samples: Samples, path: Path, rate: int = RATE) -> None:
    """Write a recording as a wav file of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    import_soundfile().write(path, samples, rate, subtype="PCM_16")


def write_spoken_digits(directory: Path, counts: Mapping[str, int], pitch: float | None = None) -> dict[str, str]:
    """Write so many recordings of one to three digits for each split, and a table of them."""
    numbers, files = create_random(0), {}
    for split, count in counts.items():
        rows = []
        for number in range(count):
            text, file = build_digits(1 + number % 3, numbers), f"{split}/{number:03}.wav"
            save_recording(synthesize_speech(text, numbers, pitch), directory / file)
            rows.append({"audio": file, "text": text})
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
    return files


def build_digits(count: int, numbers: random.Random) -> str:
    """Return so many random digits as words."""
    return " ".join(DIGITS[numbers.randrange(len(DIGITS))] for _ in range(count))
