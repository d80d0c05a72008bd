"""The base of recipes for sound: flags, recordings and their lengths, the feature extractor, augmentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ostinato import DataError
from ostinato.logging import get_logger

from ..rows import TEST, TRAIN, Split
from ..task_arguments import ModelArguments, flag
from .audio import AUDIO_ENDINGS, AudioInfo, inspect_audio, read_audio
from .audio_augmentation import SpectrogramMasks, WaveAugmentation
from .audio_collators import AudioCollator
from .audio_pictures import draw_recording
from .feature_extractors import load_feature_extractor
from .frame_lengths import count_frames, fit_masks
from .media_arguments import MediaArguments
from .media_files import MediaFile
from .media_reader import MediaKind
from .media_recipe import MediaRecipe
from .resampler import Samples

AUDIO = MediaKind("audio", AUDIO_ENDINGS, ("audio", "file", "path", "audio_path", "file_name", "filename"), "Audio")
INPUT_NAMES = ("input_values", "input_features")  # of raw samples, and of spectrograms


@dataclass
class AudioArguments(MediaArguments):
    """Recordings, and their changes in training."""

    validation_file: str | None = flag(None, "Rows to evaluate on.", aliases=["--eval_file"])
    validation_split_name: str | None = flag(
        None, "The split to evaluate on, if not 'validation'.", aliases=["--eval_split_name"]
    )
    audio_column_name: str | None = flag(None, "The column with the recordings, if not 'audio', 'file' or 'path'.")
    allow_silence: bool = flag(False, "Accept recordings that are silent from beginning to end.")
    augment_gain_db: float = flag(0.0, "Training: change the loudness by up to so many dB, up or down.")
    augment_noise_snr_db: float | None = flag(
        None, "Training: add noise to half of the recordings, at least so many dB below them."
    )


@dataclass
class AudioModelArguments(ModelArguments):
    """The model, and what it hears."""

    feature_extractor_name: str | None = flag(None, "A feature extractor other than the model's, by path or name.")
    sampling_rate: int | None = flag(None, "The sampling rate of a new model in Hz. By default 16000.")
    freeze_feature_encoder: bool | None = flag(
        None,
        "Keep the model's convolutions as they are. By default those of a pretrained model.",
        aliases=["--freeze_feature_extractor"],
    )


class AudioRecipe(MediaRecipe):
    """A task whose rows hold recordings. `rate` exists from `load_processor` on."""

    kind: ClassVar[MediaKind] = AUDIO
    arguments_class = AudioArguments
    model_arguments_class = AudioModelArguments
    column_flag: ClassVar[str] = "audio_column_name"

    rate: int | None = None  # at which recordings are read; None: their own
    feature_extractor: Any
    headers: dict[str, dict[int, AudioInfo | None]]  # of a split, by the number of the row in its source

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.headers = {}
        self.wave_augmentation = WaveAugmentation(arguments.augment_gain_db, arguments.augment_noise_snr_db)
        self.spectrogram_masks: SpectrogramMasks | None = None

    # ---- rows ------------------------------------------------------------------------------------------------

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        return {name: self._read_headers(split) for name, split in super().read(wanted).items()}

    def get_length_limits(self) -> tuple[float, float]:
        """Return how many seconds a recording has at least and at most, except for prediction."""
        return 0.0, math.inf

    def _read_headers(self, split: Split) -> Split:
        """Return the rows whose recordings have a wanted length; keep what their headers say."""
        headers = [self._inspect(split, row, value) for row, value in enumerate(split.read_column(self.media_column))]
        kept = list(range(len(split)))
        least, most = self.get_length_limits()
        if not split.name.startswith(TEST):
            kept = [row for row, info in enumerate(headers) if info is None or least <= info.seconds <= most]
            if not kept:
                raise DataError(
                    what=f"{split.source}: no recording is between {least:g} and {most:g} seconds long",
                    why=f"the longest has {max(info.seconds for info in headers if info is not None):.2f} seconds",
                    fix="change --min_duration_in_seconds or --max_duration_in_seconds",
                )
        if len(kept) < len(split):
            get_logger().info(
                f"{split.source}: {len(split) - len(kept):,} of {len(split):,} rows are left out: they are not "
                f"between {least:g} and {most:g} seconds long (--min_duration_in_seconds)"
            )
            split = split.select(kept)
        self.headers[split.name] = {split.get_number(row): headers[place] for row, place in enumerate(kept)}
        return split

    def _inspect(self, split: Split, row: int, value: Any) -> AudioInfo | None:
        try:
            return inspect_audio(value, split.directory)
        except DataError as error:
            if self.training.skip_bad_rows:
                return None
            where = split.locate(row, self.media_column)
            raise DataError(f"{where}: {error.what}", error.why, error.fix) from None

    # ---- model -----------------------------------------------------------------------------------------------

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        self.feature_extractor = load_feature_extractor(
            arguments, self.config, arguments.feature_extractor_name, arguments.sampling_rate
        )
        self.rate = int(self.feature_extractor.sampling_rate)
        self.is_new = arguments.model_name_or_path is None
        self.freezes = (
            not self.is_new if arguments.freeze_feature_encoder is None else arguments.freeze_feature_encoder
        )
        for name, headers in self.headers.items():
            get_logger().info(f"{name}: {describe_headers([info for info in headers.values() if info], self.rate)}")
        return self.feature_extractor

    def prepare_config(self, config: Any) -> None:
        fit_masks(config, self.headers.get(TRAIN, {}).values(), self.rate or 1, self.shortest_window)

    @property
    def shortest_window(self) -> float:
        """The seconds that training takes of a recording that is longer."""
        return math.inf

    def prepare_model(self, model: Any) -> None:
        freeze = getattr(model, "freeze_feature_encoder", None)
        if self.freezes and freeze is not None:
            freeze()
            get_logger().info("the model's convolutions are not trained (--freeze_feature_encoder false trains them)")

    # ---- features --------------------------------------------------------------------------------------------

    def open(self, value: Any, directory: Path) -> Samples:
        arguments = self.arguments

        def read(given: Any) -> Samples:
            return read_audio(given, self.rate, directory, allow_silence=arguments.allow_silence)

        file = None if self.cache is None or self.rate is None else MediaFile.from_value(value, directory)
        if file is None or self.cache is None:
            return read(value)
        return self.cache.read(file, f"audio-{self.rate}", lambda _: read(value))

    def build_features(self, split: Split) -> Any:
        problems = self._find_short_recordings(split)
        if split.name.startswith(TEST):  # every row gets a prediction
            for _, error in problems:
                raise error
        return super().build_features(self.reject_rows(split, problems))

    def _find_short_recordings(self, split: Split) -> Iterator[tuple[int, DataError]]:
        for row in range(len(split)):
            frames = self.count_row_frames(split, row)
            if frames is not None and frames < 1:
                yield (
                    row,
                    split.build_error(
                        row,
                        self.media_column,
                        "the recording is too short: the model makes no frame of it",
                        "remove the row",
                    ),
                )

    def count_row_frames(self, split: Split, row: int) -> int | None:
        """Return how many frames the model makes of a recording; None if that is not known."""
        info = self.headers[split.name][split.get_number(row)]
        return None if info is None else count_frames(self.config, int(info.seconds * (self.rate or 1)))

    def build_collator(self, model: Any) -> Any:
        return AudioCollator(self.feature_extractor)

    def extract_features(self, samples: Samples, purpose: str, **options: Any) -> dict[str, Any]:
        """Return the model's input for a recording; in training, augmented."""
        if purpose == TRAIN and not self.wave_augmentation.is_off:
            samples = self.wave_augmentation(samples)
        made = self.feature_extractor(samples, sampling_rate=self.rate, return_tensors="np", **options)
        row = {name: values[0] for name, values in made.items()}
        if purpose == TRAIN and self.spectrogram_masks is not None:
            for name in INPUT_NAMES:
                if name in row:
                    row[name] = self.spectrogram_masks(row[name], self.time_axis)
        return row

    def draw_row(self, row: Mapping[str, Any]) -> Any:
        return draw_recording(self.open_row(row, TEST), self.rate or 1)

    @property
    def time_axis(self) -> int:
        """The axis of a spectrogram that is time."""
        return 1 if type(self.feature_extractor).__name__.startswith("Whisper") else 0


def describe_headers(headers: Sequence[AudioInfo], rate: int) -> str:
    """Return a line about recordings: how much there is, and what is done to them.

    >>> describe_headers([AudioInfo(8000, 1, 8000), AudioInfo(44100, 2, 44100)], 16000)
    '2 recordings of 2.0 seconds; 8000 Hz (1) and 44100 Hz (1) are resampled to 16000 Hz; 1 is mixed down'
    """
    seconds = sum(info.seconds for info in headers)
    duration = f"{seconds:.1f} seconds" if seconds < 60 else f"{seconds / 60:.1f} minutes"
    parts = [f"{len(headers):,} recordings of {duration}"]
    rates = Counter(info.rate for info in headers)
    if others := sorted(one for one in rates if one != rate):
        named = " and ".join(f"{one} Hz ({rates[one]:,})" for one in others)
        parts.append(f"{named} are resampled to {rate} Hz")
    if several := sum(info.channels > 1 for info in headers):
        parts.append(f"{several:,} {'is' if several == 1 else 'are'} mixed down")
    return "; ".join(parts)


def stack_rows(rows: Sequence[np.ndarray], filler: float) -> np.ndarray:
    """Return rows of different lengths as one array, filled up at the end.

    >>> stack_rows([np.array([1, 2]), np.array([3])], -100).tolist()
    [[1, 2], [3, -100]]
    """
    width = max(len(row) for row in rows)
    result = np.full((len(rows), width), filler, dtype=rows[0].dtype)
    for number, row in enumerate(rows):
        result[number, : len(row)] = row
    return result
