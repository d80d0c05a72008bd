"""The base of recipes that choose a label: the labels of rows, metrics, probabilities, pictures of right and wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ostinato import ConfigError, DataError
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from ..label_names import Labels, is_label
from ..rows import TEST, Split, format_names
from ..task_arguments import flag
from .gallery import Picture, write_gallery
from .media_reader import MediaReader
from .media_recipe import MediaRecipe

_LABEL_COLUMNS = ("labels", "label")
_SHOWN_PICTURES, _SHOWN_LINES, _SHOWN_LABELS = 24, 3, 5


@dataclass
class LabelArguments:
    """The labels, and what is measured: an addition to the arguments of images or sound."""

    label_column_name: str | None = flag(None, "The column with the label, if not 'label' or 'labels'.")
    metric_name: str | None = flag(
        None, "The metrics, separated by commas, if not accuracy, top_5_accuracy (of more than five labels), f1_macro."
    )


class LabelRecipe(MediaRecipe):
    """A task with one label for each row. A recipe adds it to the model's input, by `encode_label`."""

    label_column: str
    labels: Labels
    predicted: list[dict[str, Any]]

    # ---- rows ------------------------------------------------------------------------------------------------

    def build_reader(self) -> MediaReader:
        """Return what reads the rows; it knows the column of labels, to hold back rows of each."""
        named = self.arguments.label_column_name
        columns = _LABEL_COLUMNS if named is None else (named,)
        return MediaReader(self.kind, columns, skips_bad_rows=bool(self.training.skip_bad_rows))

    def find_columns(self, splits: Mapping[str, Split]) -> None:
        super().find_columns(splits)
        first = next(iter(splits.values()))
        found = (name for name in _LABEL_COLUMNS if name in first.columns)
        self.label_column = self.arguments.label_column_name or next(found, _LABEL_COLUMNS[-1])
        for name, split in splits.items():
            if not name.startswith(TEST):
                split.require([self.label_column], {self.label_column: "--label_column_name"})

    def find_bad_values(self, split: Split) -> Iterator[tuple[int, DataError]]:
        if not split.name.startswith(TEST):
            yield from split.find_wrong(
                self.label_column, is_label, "there is no label", "add the label, or remove the row"
            )

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        labelled = [split for name, split in splits.items() if not name.startswith(TEST)]
        if labelled:
            self.labels = Labels.from_splits(labelled, self.label_column)
            kind = f", one of {len(self.labels.names)}: {format_names(self.labels.names)}"
            get_logger().info(f"reads {self.media_column}; predicts {self.label_column}{kind}")

    # ---- model -----------------------------------------------------------------------------------------------

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
                fix="add files of another label",
            )
        self.labels.write_config(config)

    # ---- features --------------------------------------------------------------------------------------------

    def encode_label(self, row: Mapping[str, Any], purpose: str) -> dict[str, int]:
        """Return the number of a row's label, as the model takes it; nothing if a row to predict has none."""
        label = row.get(self.label_column)
        return {"labels": self.labels.get_number(label)} if purpose != TEST or self.labels.is_known(label) else {}

    def build_features(self, split: Split) -> Any:
        known = split.rows[self.label_column] if self.label_column in split.columns else []
        if split.name.startswith(TEST) and known and not all(map(self.labels.is_known, known)):
            get_logger().info(f"{split.source}: not all labels are known, so none is used")
            split = replace(split, rows=split.rows.remove_columns(self.label_column))
        return super().build_features(split)

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        usual = "accuracy,top_5_accuracy,f1_macro" if len(self.labels.names) > _SHOWN_LABELS else "accuracy,f1_macro"
        names = (self.arguments.metric_name or usual).split(",")
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
            line = {self.kind.name: self.find_file(row), **self.labels.format_prediction(scores), "probabilities": top}
            if self.labels.is_known(label := row.get(self.label_column)):
                line["label"] = self.labels.names[self.labels.get_number(label)]
            self.predicted.append(line)
            yield line

    def preview_predictions(self) -> Iterator[str]:
        for line in self.predicted[:_SHOWN_LINES]:
            yield f"{line[self.kind.name]}: {_describe_prediction(line, ' (is {})')}"

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Draw the rows that were predicted wrongly with the most confidence, and some that were right."""
        wrong = [number for number, line in enumerate(self.predicted) if not _is_right(line)]
        wrong = sorted(wrong, key=lambda number: -self.predicted[number]["score"])[: _SHOWN_PICTURES // 2]
        right = [number for number, line in enumerate(self.predicted) if _is_right(line)]
        pictures = [self._build_picture(rows[n], self.predicted[n]) for n in (*wrong, *_spread(right, len(wrong)))]
        note = f"{len(wrong)} of those that are wrong, the surest first" if wrong else ""
        write_gallery(directory, "predictions", "Predictions", pictures, note)

    def _build_picture(self, row: Mapping[str, Any], line: Mapping[str, Any]) -> Picture:
        mark = "" if "label" not in line else "right" if _is_right(line) else "wrong"
        return Picture(self.draw_row(row), _describe_prediction(line, ", is {}"), line[self.kind.name], mark)


def _is_right(line: Mapping[str, Any]) -> bool:
    return line.get("label", line["prediction"]) == line["prediction"]


def _describe_prediction(line: Mapping[str, Any], truth: str) -> str:
    return f"{line['prediction']} {line['score']:.0%}" + ("" if _is_right(line) else truth.format(line["label"]))


def _spread(right: Sequence[int], taken: int) -> Sequence[int]:
    """Return some of the right ones, of all labels: files in folders are sorted by label."""
    count = _SHOWN_PICTURES - taken
    return right[:: max(1, len(right) // count)][:count]
