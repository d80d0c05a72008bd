"""Image classification: one label for an image, from folders by label, tables of paths or datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import ConfigError
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from .label_names import Labels
from .media.gallery import Picture, write_gallery
from .media.image_recipe import ImageArguments, ImageRecipe
from .rows import TEST, Split, format_names
from .task_arguments import flag

_SHOWN_PICTURES, _SHOWN_LINES, _SHOWN_LABELS = 24, 3, 5


@dataclass
class ImageClassificationArguments(ImageArguments):
    """The labels, and what is measured."""

    label_column_name: str | None = flag(None, "The column with the label, if not 'label' or 'labels'.")
    metric_name: str | None = flag(
        None, "The metrics, separated by commas, if not accuracy, top_5_accuracy (of more than five labels), f1_macro."
    )


class ImageClassification(ImageRecipe):
    """Recipe that predicts a label for every image."""

    name = "image-classification"
    summary = "Classify images: one label for each."
    model_class = "AutoModelForImageClassification"
    arguments_class = ImageClassificationArguments
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

    def prepare_config(self, config: Any) -> None:
        if not self.training.do_train and not self.training.do_eval:
            self.labels = Labels.from_config(config)
            return
        self.labels = self.labels.match_model(config)
        if len(self.labels.names) < 2:
            raise ConfigError(
                what=f"there is one label: {format_names(self.labels.names)}",
                why="a classifier chooses between at least two",
                fix="add images of another label",
            )
        self.labels.write_config(config)

    # ---- features --------------------------------------------------------------------------------------------

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        features: dict[str, Any] = {"pixel_values": self.compute_pixels(self.open_row(row, purpose), purpose)}
        label = row.get(self.label_column)
        if purpose != TEST or self.labels.is_known(label):
            features["labels"] = self.labels.get_number(label)
        return features

    def build_features(self, split: Split) -> Any:
        known = split.rows[self.label_column] if self.label_column in split.columns else []
        if split.name.startswith(TEST) and known and not all(map(self.labels.is_known, known)):
            get_logger().info(f"{split.source}: not all labels are known, so none is used")
            split = Split(split.name, split.rows.remove_columns(self.label_column), split.source, split.directory)
        return super().build_features(split)

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        names: Sequence[str] = ["accuracy", "f1_macro"]
        if len(self.labels.names) > _SHOWN_LABELS:
            names = ["accuracy", "top_5_accuracy", "f1_macro"]
        if self.arguments.metric_name:
            names = [name.strip() for name in self.arguments.metric_name.split(",")]
        return {"compute_metrics": metrics(names)}

    # ---- results ---------------------------------------------------------------------------------------------

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        self.predicted = []
        for row, scores in zip(rows, logits, strict=True):
            best = np.argsort(-scores, kind="stable")[:_SHOWN_LABELS]
            probabilities = np.exp(scores.astype(np.float64) - scores.max())
            probabilities /= probabilities.sum()
            top = {self.labels.names[number]: round(float(probabilities[number]), 4) for number in best}
            line = {"image": self.find_file(row), **self.labels.format_prediction(scores), "probabilities": top}
            if self.labels.is_known(label := row.get(self.label_column)):
                line["label"] = self.labels.names[self.labels.get_number(label)]
            self.predicted.append(line)
            yield line

    def preview_predictions(self) -> Iterator[str]:
        for line in self.predicted[:_SHOWN_LINES]:
            truth = f" (is {line['label']})" if line.get("label", line["prediction"]) != line["prediction"] else ""
            yield f"{line['image']}: {line['prediction']} {line['score']:.0%}{truth}"

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Draw the images that were predicted wrongly with the most confidence, and some that were right."""
        wrong = [
            n for n, line in enumerate(self.predicted) if line.get("label", line["prediction"]) != line["prediction"]
        ]
        wrong = sorted(wrong, key=lambda n: -self.predicted[n]["score"])[: _SHOWN_PICTURES // 2]
        right = [
            n for n, line in enumerate(self.predicted) if line.get("label", line["prediction"]) == line["prediction"]
        ]
        step = max(1, len(right) // (_SHOWN_PICTURES - len(wrong)))
        chosen = [*wrong, *right[::step][: _SHOWN_PICTURES - len(wrong)]]
        pictures = [self._build_picture(rows[number], self.predicted[number]) for number in chosen]
        note = f"{len(wrong)} of those that are wrong, the surest first" if wrong else ""
        write_gallery(directory, "predictions", "Predictions", pictures, note)

    def _build_picture(self, row: Mapping[str, Any], line: Mapping[str, Any]) -> Picture:
        mark, truth = "", ""
        if "label" in line:
            mark = "right" if line["label"] == line["prediction"] else "wrong"
            truth = "" if mark == "right" else f", is {line['label']}"
        return Picture(
            self.open_row(row, TEST), f"{line['prediction']} {line['score']:.0%}{truth}", line["image"], mark
        )

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "image-classification", "tags": ["vision"]}
