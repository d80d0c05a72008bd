"""Recordings of several formats, rates and channels, and what is said of those that cannot be read."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato import ConfigError, DataError
from ostinato.tasks.media import audio
from ostinato.tasks.media.audio import inspect_audio, read_audio

soundfile = pytest.importorskip("soundfile")

RATE = 16000


def tone(seconds: float = 0.5, frequency: float = 440.0, rate: int = RATE) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write(name: str, samples: np.ndarray | None = None, rate: int = RATE, **more: Any) -> Path:
    soundfile.write(name, tone() if samples is None else samples, rate, **more)
    return Path(name)


@pytest.mark.parametrize(
    ("name", "worst"), [("a.wav", 1e-4), ("a.flac", 1e-4), ("a.aiff", 1e-4), ("a.ogg", 0.05), ("a.mp3", 0.05)]
)
def test_formats(name: str, worst: float) -> None:
    if name.endswith("mp3") and "MP3" not in soundfile.available_formats():
        pytest.skip("this libsndfile has no mp3")
    read = read_audio(write(name), RATE)
    assert read.dtype == np.float32
    assert read.shape == (RATE // 2,)
    assert np.abs(read - tone())[400:-400].max() < worst
    assert inspect_audio(name) == audio.AudioInfo(RATE, 1, RATE // 2)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
def test_sample_formats_have_one_scale(subtype: str) -> None:
    read = read_audio(write("a.wav", subtype=subtype), RATE)
    assert np.abs(read - tone()).max() < (0.02 if subtype in ("PCM_U8", "ULAW") else 1e-4)


def test_channels_are_averaged_and_rates_changed() -> None:
    both = np.stack([tone(rate=44100), np.zeros_like(tone(rate=44100))], axis=1)
    read = read_audio(write("a.flac", both, 44100), RATE)
    assert np.abs(read - tone() / 2)[400:-400].max() < 1e-3
    assert inspect_audio("a.flac").channels == 2


def test_values_of_columns() -> None:
    content = write("a.wav").read_bytes()
    expected = read_audio("a.wav", RATE)
    for source in (content, {"path": "a.wav", "bytes": None}, {"path": "elsewhere.wav", "bytes": content}):
        assert np.array_equal(read_audio(source, RATE), expected)
    stereo = {"path": None, "array": np.stack([expected, expected]), "sampling_rate": RATE}
    assert np.array_equal(read_audio(stereo, RATE), expected)
    with pytest.raises(DataError, match="no recording is named"):
        read_audio({"path": None, "bytes": None}, RATE)


def cut(name: str) -> None:
    content = write(name).read_bytes()
    Path(name).write_bytes(content[: len(content) // 2])


MISTAKES: dict[str, tuple[str, Callable[[], Any], str]] = {
    "no such file": ("a.wav", lambda: None, "a.wav: there is no such file"),
    "a directory": ("a.wav", lambda: Path("a.wav").mkdir(), "a.wav is a directory"),
    "no bytes": ("a.wav", lambda: Path("a.wav").touch(), "a.wav is empty.*it has 0 bytes"),
    "no samples": ("a.wav", lambda: write("a.wav", np.zeros(0)), "a.wav is empty.*the recording has no samples"),
    "a text": ("a.wav", lambda: Path("a.wav").write_text("hello\n" * 99), "a.wav is no recording.*it is a text file"),
    "half a header": ("a.wav", lambda: Path("a.wav").write_bytes(write("b.wav").read_bytes()[:20]), "Malformed 'fmt"),
    "silence": ("a.wav", lambda: write("a.wav", np.zeros(8000)), "a.wav is silent.*0.50 seconds.*--allow_silence"),
    "one value": ("a.wav", lambda: write("a.wav", np.full(8000, 0.5)), "a.wav is silent"),
    "no numbers": (
        "a.wav",
        lambda: write("a.wav", np.full(80, np.nan), subtype="FLOAT"),
        "samples that are no numbers",
    ),
    "half a wav": ("a.wav", lambda: cut("a.wav"), "a.wav is cut off.*promises 16,044 bytes, it has 8,022"),
    "half a flac": ("a.flac", lambda: cut("a.flac"), "a.flac is cut off or damaged.*lost sync"),
    "a foreign format": (
        "a.m4a",
        lambda: Path("a.m4a").write_bytes(b"ftyp" * 50),
        "not read .m4a.*ffmpeg -i a.m4a a.wav",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_files_that_cannot_be_read(mistake: str) -> None:
    name, make, message = MISTAKES[mistake]
    make()
    with pytest.raises(DataError, match=f"(?s){message}"):
        read_audio(name, RATE)


def test_silence_may_be_wanted() -> None:
    assert not read_audio(write("a.wav", np.zeros(8000)), RATE, allow_silence=True).any()


def test_an_mp3_without_its_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise soundfile.LibsndfileError(1, "Error opening 'a.mp3': ")

    Path("a.mp3").write_bytes(b"\xff\xfb" * 100)
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"WAV": "WAV (Microsoft)"})
    monkeypatch.setattr(soundfile, "SoundFile", refuse)
    with pytest.raises(DataError, match=r"(?s)a.mp3 cannot be decoded.*has no decoder for mp3.*ffmpeg -i a.mp3 a.wav"):
        read_audio("a.mp3", RATE)


def test_without_soundfile_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(ConfigError, match=r"(?s)sound cannot be read.*ostinato\[media\]"):
        read_audio("a.wav", RATE)


def test_a_wav_of_unknown_size_is_read() -> None:
    content = bytearray(write("a.wav").read_bytes())
    content[4:8] = b"\xff\xff\xff\xff"  # what a program writes into a pipe
    assert len(read_audio(bytes(content), RATE)) == RATE // 2
    assert len(read_audio(io.BytesIO(content).getvalue(), RATE)) == RATE // 2
