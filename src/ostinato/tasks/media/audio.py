"""Sound from files: decoded by soundfile, mixed down to one channel, resampled, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import ConfigError, DataError

from .media_files import MediaFile, looks_like_text
from .resampler import Samples, resample

AUDIO_ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64", ".rf64")
_SILENCE = 1e-4  # from peak to peak: three steps of 16 bits
_CUT_SHARE = 0.9  # an mp3 may end a little earlier than its header says
_WAV_SLACK = 8  # bytes that the size in a header may be off
_WAV_UNKNOWN_SIZE = 0x7FFFF000  # what programs write that do not know the size in advance


@dataclass(frozen=True)
class AudioInfo:
    """The header of a recording."""

    rate: int
    channels: int
    frames: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.frames / self.rate


def inspect_audio(value: Any, directory: Path = Path()) -> AudioInfo:
    """Return what the header of a recording says, without decoding it.

    Args:
        value: A path, the bytes of a file, or a value of a `datasets` column, with a path, bytes or an array.
        directory: Where relative paths start.

    Raises:
        DataError: the file is missing, empty, or of no format that can be read.
    """
    if (array := _find_array(value)) is not None:
        return AudioInfo(int(value["sampling_rate"]), 1 if array.ndim == 1 else array.shape[0], array.shape[-1])
    soundfile, file = import_soundfile(), _find_file(value, directory)
    file.check()
    try:
        with file.open() as stream, soundfile.SoundFile(stream) as sound:
            info = AudioInfo(sound.samplerate, sound.channels, sound.frames)
    except soundfile.SoundFileError as error:
        raise _explain(soundfile, file, error) from None
    _check_length(file.name, info.frames)
    return info


def read_audio(value: Any, rate: int | None, directory: Path = Path(), *, allow_silence: bool = False) -> Samples:
    """Return a recording as one channel of float32 between -1 and 1, at the given rate (None: its own).

    Several channels are averaged.

    Raises:
        DataError: the file is missing, empty, silent, cut off, or of no format that can be read.
    """
    if (array := _find_array(value)) is not None:
        name, own_rate = str(value.get("path") or "the recording"), int(value["sampling_rate"])
        samples = np.asarray(array, np.float32).T
    else:
        file = _find_file(value, directory)
        name, (samples, own_rate) = file.name, _decode(file)
    if samples.ndim > 1:
        samples = samples.mean(axis=1, dtype=np.float32)
    _check_samples(name, samples, own_rate, allow_silence)
    return resample(np.ascontiguousarray(samples), own_rate, rate or own_rate)


def _decode(file: MediaFile) -> tuple[np.ndarray, int]:
    """Return samples, of shape (frames,) or (frames, channels), and their rate."""
    soundfile = import_soundfile()
    with file.open() as stream:
        try:
            sound = soundfile.SoundFile(stream)
        except soundfile.SoundFileError as error:
            raise _explain(soundfile, file, error) from None
        with sound:
            promised = sound.frames
            try:
                samples, rate = sound.read(dtype="float32"), sound.samplerate
            except soundfile.SoundFileError as error:
                raise _build_cut_error(file, _clean(error)) from None
    if len(samples) < _CUT_SHARE * promised:
        raise _build_cut_error(file, f"its header promises {promised:,} samples, it holds {len(samples):,}")
    _check_wav_size(file)
    return samples, rate


def import_soundfile() -> Any:
    """Return `soundfile`, or raise an error that says how to install it."""
    try:
        import soundfile  # noqa: PLC0415
    except (ImportError, OSError) as error:  # OSError: without libsndfile
        raise ConfigError(
            what="sound cannot be read",
            why="soundfile is not installed" if isinstance(error, ImportError) else " ".join(str(error).split()),
            fix="pip install 'ostinato[media]'",
        ) from None
    return soundfile


def _find_array(value: Any) -> np.ndarray | None:
    given = value.get("array") if isinstance(value, Mapping) else None
    return None if given is None else np.asarray(given)


def _find_file(value: Any, directory: Path) -> MediaFile:
    if isinstance(value, Path):
        value = str(value)
    file = MediaFile.from_value(value, directory)
    if file is None:
        raise DataError("no recording is named", f"the value is {value!r}", "name a file, or remove the row")
    return file


# ---- errors ---------------------------------------------------------------------------------------------------------


def _check_length(name: str, frames: int) -> None:
    if frames == 0:
        raise DataError(f"{name} is empty", "the recording has no samples", "remove the row")


def _check_samples(name: str, samples: Samples, rate: int, allow_silence: bool) -> None:
    _check_length(name, len(samples))
    if not np.isfinite(samples).all():
        raise DataError(f"{name} holds samples that are no numbers", "NaN or infinity", "record it anew")
    if not allow_silence and np.ptp(samples) < _SILENCE:
        raise DataError(
            what=f"{name} is silent",
            why=f"its {len(samples) / rate:.2f} seconds hold one value",
            fix="remove the row, or keep it with --allow_silence",
        )


def _explain(soundfile: Any, file: MediaFile, error: Exception) -> DataError:
    """Return the error about a file that soundfile does not open."""
    path, version = Path(file.name), soundfile.__libsndfile_version__
    ending, convert = path.suffix.lower(), f"convert it: ffmpeg -i {path.name} {path.stem}.wav"
    if ending == ".mp3" and "MP3" not in soundfile.available_formats():
        return DataError(
            what=f"{file.name} cannot be decoded",
            why=f"libsndfile {version} has no decoder for mp3; version 1.1 and later have one",
            fix=f"pip install --upgrade soundfile, or {convert}",
        )
    if ending and ending not in AUDIO_ENDINGS:
        return DataError(
            what=f"{file.name} cannot be decoded",
            why=f"libsndfile {version} does not read {ending}; it reads wav, flac, ogg, mp3, aiff, …",
            fix=convert,
        )
    with file.open() as stream:
        is_text = looks_like_text(stream.read(256))
    return DataError(
        what=f"{file.name} is no recording" + ("" if is_text else ", or its header is broken"),
        why="it is a text file" if is_text else _clean(error),
        fix="replace the file, or remove the row",
    )


def _build_cut_error(file: MediaFile, why: str) -> DataError:
    return DataError(f"{file.name} is cut off or damaged", why, "fetch the file again, or remove the row")


def _check_wav_size(file: MediaFile) -> None:
    """Raise for a wav file that is shorter than its header says; libsndfile reads what there is."""
    with file.open() as stream:
        head, size = stream.read(8), stream.seek(0, 2)
    promised = int.from_bytes(head[4:8], "little") + 8
    if head[:4] == b"RIFF" and size + _WAV_SLACK < promised < _WAV_UNKNOWN_SIZE:
        raise _build_cut_error(file, f"its header promises {promised:,} bytes, it has {size:,}")


def _clean(error: Exception) -> str:
    """Return the reason alone: soundfile puts the name before it."""
    return str(error).rpartition(": ")[2].strip() or type(error).__name__
