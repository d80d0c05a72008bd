"""Audio classification: one label for a recording, from folders by label, tables of paths or datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import ConfigError

from .media.audio_augmentation import SpectrogramMasks, take_random_window
from .media.audio_recipe import INPUT_NAMES, AudioArguments, AudioModelArguments, AudioRecipe
from .media.label_recipe import LabelArguments, LabelRecipe
from .rows import TEST, TRAIN, Split
from .task_arguments import flag


@dataclass
class AudioClassificationArguments(LabelArguments, AudioArguments):
    """The recordings, their labels, and the windows."""

    max_length_seconds: float = flag(20.0, "Training: take a random window of this length from longer recordings.")
    spec_augment: bool = flag(
        False,
        "Training: mask bands of time and frequency, for models that read spectrograms. Others have masks of "
        "their own: --config_overrides mask_time_prob=0.05.",
    )


@dataclass
class AudioClassificationModelArguments(AudioModelArguments):
    """The model, and what it hears."""

    attention_mask: bool = flag(True, "Tell the model where a recording ends, by an attention mask.")


class AudioClassification(LabelRecipe, AudioRecipe):
    """Recipe that predicts a label for every recording."""

    name = "audio-classification"
    summary = "Classify recordings: one label for each."
    model_class = "AutoModelForAudioClassification"
    arguments_class = AudioClassificationArguments
    model_arguments_class = AudioClassificationModelArguments

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        processor = super().load_processor(arguments, splits)
        if hasattr(self.config, "conv_kernel"):  # it reads samples; others have no use for a mask, or make it
            processor.return_attention_mask = arguments.attention_mask
        if self.arguments.spec_augment:
            self.spectrogram_masks = self._build_masks()
        return processor

    def _build_masks(self) -> SpectrogramMasks:
        made = self.extract_features(np.zeros(self.rate or 1, np.float32), TEST)
        if not any(name in made and made[name].ndim == 2 for name in INPUT_NAMES):
            raise ConfigError(
                what="--spec_augment without a spectrogram",
                why=f"{type(self.feature_extractor).__name__} passes samples to the model",
                fix="use the masks of the model: --config_overrides mask_time_prob=0.05,mask_feature_prob=0.05",
            )
        return SpectrogramMasks()

    @property
    def shortest_window(self) -> float:
        return self.arguments.max_length_seconds

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        samples = self.open_row(row, purpose)
        if purpose == TRAIN:
            samples = take_random_window(samples, round(self.arguments.max_length_seconds * (self.rate or 1)))
        return {**self.extract_features(samples, purpose), **self.encode_label(row, purpose)}

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "audio-classification"}
