"""Audio classification: one label for a recording, from folders by label, tables of paths or datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import ConfigError
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from .label_names import Labels
from .media.audio_augmentation import SpectrogramMasks, take_random_window
from .media.audio_pictures import draw_recording
from .media.audio_recipe import INPUT_NAMES, AudioArguments, AudioModelArguments, AudioRecipe
from .media.gallery import Picture, write_gallery
from .rows import TEST, TRAIN, Split, format_names
from .task_arguments import flag

_SHOWN_PICTURES, _SHOWN_LINES, _SHOWN_LABELS = 24, 3, 5


@dataclass
class AudioClassificationArguments(AudioArguments):
    """The labels, the windows, and what is measured."""

    label_column_name: str | None = flag(None, "The column with the label, if not 'label' or 'labels'.")
    max_length_seconds: float = flag(20.0, "Training: take a random window of this length from longer recordings.")
    spec_augment: bool = flag(
        False,
        "Training: mask bands of time and frequency, for models that read spectrograms. Others have masks of "
        "their own: --config_overrides mask_time_prob=0.05.",
    )
    metric_name: str | None = flag(None, "The metrics, separated by commas, if not accuracy and f1_macro.")


@dataclass
class AudioClassificationModelArguments(AudioModelArguments):
    """The model, and what it hears."""

    attention_mask: bool = flag(True, "Tell the model where a recording ends, by an attention mask.")


class AudioClassification(AudioRecipe):
    """Recipe that predicts a label for every recording."""

    name = "audio-classification"
    summary = "Classify recordings: one label for each."
    model_class = "AutoModelForAudioClassification"
    arguments_class = AudioClassificationArguments
    model_arguments_class = AudioClassificationModelArguments
    label_flag = "label_column_name"

    label_column: str
    labels: Labels
    predicted: list[dict[str, Any]]

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        first = next(iter(splits.values()))
        self.label_column = self.arguments.label_column_name or ("labels" if "labels" in first.columns else "label")
        labelled = [split for split in splits.values() if not split.name.startswith(TEST)]
        for split in labelled:
            split.require([self.label_column], {self.label_column: "--label_column_name"})
        if labelled:
            self.labels = Labels.from_splits(labelled, self.label_column)
            kind = f", one of {len(self.labels.names)}: {format_names(self.labels.names)}"
            get_logger().info(f"reads {self.media_column}; predicts {self.label_column}{kind}")

    # ---- model -----------------------------------------------------------------------------------------------

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

    def prepare_config(self, config: Any) -> None:
        super().prepare_config(config)
        if not self.training.do_train and not self.training.do_eval:
            self.labels = Labels.from_config(config)
            return
        self.labels = self.labels.match_model(config)
        if len(self.labels.names) < 2:
            raise ConfigError(
                what=f"there is one label: {format_names(self.labels.names)}",
                why="a classifier chooses between at least two",
                fix="add recordings of another label",
            )
        self.labels.write_config(config)

    @property
    def shortest_window(self) -> float:
        return self.arguments.max_length_seconds

    # ---- features --------------------------------------------------------------------------------------------

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        samples = self.open_row(row, purpose)
        if purpose == TRAIN:
            samples = take_random_window(samples, round(self.arguments.max_length_seconds * (self.rate or 1)))
        features = self.extract_features(samples, purpose)
        label = row.get(self.label_column)
        if purpose != TEST or self.labels.is_known(label):
            features["labels"] = self.labels.encode([label])[0]
        return features

    def build_features(self, split: Split) -> Any:
        known = split.rows[self.label_column] if self.label_column in split.columns else []
        if split.name.startswith(TEST) and known and not all(map(self.labels.is_known, known)):
            get_logger().info(f"{split.source}: not all labels are known, so none is used")
            split = replace(split, rows=split.rows.remove_columns(self.label_column))
        return super().build_features(split)

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        names = (self.arguments.metric_name or "accuracy,f1_macro").split(",")
        return {"compute_metrics": metrics([name.strip() for name in names])}

    # ---- results ---------------------------------------------------------------------------------------------

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        self.predicted = []
        for row, scores in zip(rows, logits, strict=True):
            best = np.argsort(-scores, kind="stable")[:_SHOWN_LABELS]
            probabilities = np.exp(scores.astype(np.float64) - scores.max())
            probabilities /= probabilities.sum()
            top = {self.labels.names[number]: round(float(probabilities[number]), 4) for number in best}
            line = {"audio": self.find_name(row), **self.labels.format_prediction(scores), "probabilities": top}
            if self.labels.is_known(label := row.get(self.label_column)):
                line["label"] = self.labels.names[self.labels.encode([label])[0]]
            self.predicted.append(line)
            yield line

    def preview_predictions(self) -> Iterator[str]:
        for line in self.predicted[:_SHOWN_LINES]:
            truth = f" (is {line['label']})" if line.get("label", line["prediction"]) != line["prediction"] else ""
            yield f"{line['audio']}: {line['prediction']} {line['score']:.0%}{truth}"

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Draw the recordings that were predicted wrongly with the most confidence, and some that were right."""
        is_wrong = [line.get("label", line["prediction"]) != line["prediction"] for line in self.predicted]
        numbers = sorted(range(len(rows)), key=lambda n: -self.predicted[n]["score"])
        wrong = [number for number in numbers if is_wrong[number]][: _SHOWN_PICTURES // 2]
        right = [number for number in range(len(rows)) if not is_wrong[number]][: _SHOWN_PICTURES - len(wrong)]
        pictures = [self._draw(rows[number], self.predicted[number]) for number in (*wrong, *right)]
        note = f"{len(wrong)} of those that are wrong, the surest first" if wrong else ""
        write_gallery(directory, "predictions", "Predictions", pictures, note)

    def _draw(self, row: Mapping[str, Any], line: Mapping[str, Any]) -> Picture:
        mark = "" if "label" not in line else "right" if line["label"] == line["prediction"] else "wrong"
        truth = f", is {line['label']}" if mark == "wrong" else ""
        picture = draw_recording(self.open_row(row, TEST), self.rate or 1)
        return Picture(picture, f"{line['prediction']} {line['score']:.0%}{truth}", line["audio"], mark)

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "audio-classification"}
