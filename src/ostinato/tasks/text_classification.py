"""Text classification: one label, several or a number for a text or a pair of texts; GLUE and XNLI among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ostinato import ConfigError, DataCollatorWithPadding, default_data_collator
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from .label_names import Labels
from .max_length import CUT_COLUMN, report_padding, report_truncation
from .recipe import Columns, Recipe
from .rows import TEST, TRAIN, Split, format_names
from .task_arguments import TextArguments, flag

GLUE = {  # the columns of each task, and its metric
    "cola": (("sentence",), ("matthews_correlation",)),
    "mnli": (("premise", "hypothesis"), ("accuracy",)),
    "mrpc": (("sentence1", "sentence2"), ("accuracy", "f1")),
    "qnli": (("question", "sentence"), ("accuracy",)),
    "qqp": (("question1", "question2"), ("accuracy", "f1")),
    "rte": (("sentence1", "sentence2"), ("accuracy",)),
    "sst2": (("sentence",), ("accuracy",)),
    "stsb": (("sentence1", "sentence2"), ("pearson", "spearmanr")),
    "wnli": (("sentence1", "sentence2"), ("accuracy",)),
}
PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"))


@dataclass
class TextClassificationArguments(TextArguments):
    """What is classified, and the labels."""

    pad_to_max_length: bool = flag(
        True, "Pad every row to --max_seq_length. `false` is faster: it pads every batch to its longest row."
    )
    task_name: str | None = flag(None, "A task of GLUE: its columns and metrics, and its rows if no file is named.")
    language: str | None = flag(None, "XNLI in this language, if no file is named.")
    train_language: str | None = flag(None, "XNLI: the language of the training rows, if not --language.")
    text_column_names: str | None = flag(
        None, "The columns with the text, separated by commas; several are joined into one text."
    )
    text_column_delimiter: str = flag(" ", "The separator between the texts of several columns.")
    label_column_name: str | None = flag(None, "The column with the label, if not 'label' or 'labels'.")
    do_regression: bool | None = flag(
        None, "Whether labels are numbers to predict. By default the column's type decides."
    )
    metric_name: str | None = flag(None, "The metrics, separated by commas: accuracy, f1_macro, mcc, roc_auc, mse, …")

    def __post_init__(self) -> None:
        if self.task_name is not None:
            self.task_name = self.task_name.lower().replace("-", "").replace("_", "")
            if self.task_name not in GLUE:
                raise ConfigError(f"GLUE has no task {self.task_name!r}", "", f"its tasks are {', '.join(GLUE)}")


class TextClassification(Recipe):
    """Recipe that predicts one label, several or a number for every text or pair of texts."""

    name = "text-classification"
    summary = "Classify texts or pairs of texts: one label, several, or a number."
    model_class = "AutoModelForSequenceClassification"
    arguments_class = TextClassificationArguments

    text_columns: tuple[str, ...]  # the columns that are read, one or a pair
    label_column: str
    labels: Labels | None = None  # None for regression

    def list_purposes(self) -> list[str]:
        self._name_dataset()
        return super().list_purposes()

    def _name_dataset(self) -> None:
        """Name the dataset that --task_name or --language stands for, if no file or dataset is named."""
        arguments = self.arguments
        if not any((arguments.dataset_name, arguments.train_file, arguments.validation_file, arguments.test_file)):
            if arguments.task_name is not None:
                arguments.dataset_name, arguments.dataset_config_name = "nyu-mll/glue", arguments.task_name
            elif arguments.language is not None:
                arguments.dataset_name, arguments.dataset_config_name = "facebook/xnli", arguments.language

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        self._name_dataset()
        arguments = self.arguments
        splits = super().read(wanted)
        if arguments.train_language not in (None, arguments.language) and arguments.dataset_name == "facebook/xnli":
            arguments.dataset_config_name = arguments.train_language
            splits |= super().read([TRAIN]) if TRAIN in wanted else {}
        return splits

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        arguments, first = self.arguments, next(iter(splits.values()))
        self.label_column = arguments.label_column_name or ("labels" if "labels" in first.columns else "label")
        self.text_columns = self._find_text_columns(first)
        labelled = [split for split in splits.values() if not split.name.startswith(TEST)]
        for split in splits.values():
            split.require(self.text_columns, dict.fromkeys(self.text_columns, "--text_column_names"))
            split.check_texts(*self.text_columns)
        for split in labelled:
            split.require([self.label_column], {self.label_column: "--label_column_name"})
        if labelled and not self._is_regression(labelled[0]):
            self.labels = Labels.from_splits(labelled, self.label_column)
        kind = f", one of {len(self.labels.names)}: {format_names(self.labels.names)}" if self.labels else ", a number"
        target = f"predicts {self.label_column}{kind if labelled else ''}"
        get_logger().info(f"reads {' and '.join(self.text_columns)}; {target}")

    def _find_text_columns(self, split: Split) -> tuple[str, ...]:
        arguments, columns = self.arguments, split.columns
        if arguments.text_column_names:
            return tuple(name.strip() for name in arguments.text_column_names.split(","))
        if arguments.task_name:
            return GLUE[arguments.task_name][0]
        for pair in PAIRS:
            if set(pair) <= set(columns):
                return pair
        texts = [name for name in columns if name != self.label_column and isinstance(split.rows[0][name], str)]
        if not texts:
            split.require(["sentence"], {"sentence": "--text_column_names"})
        return tuple(texts[:2])

    def _is_regression(self, split: Split) -> bool:
        arguments = self.arguments
        if arguments.task_name:
            return arguments.task_name == "stsb"
        if arguments.do_regression is not None:
            return arguments.do_regression
        return isinstance(split.rows[0][self.label_column], float)

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (text for column in self.text_columns for text in rows[column])

    def prepare_config(self, config: Any) -> None:
        if self.labels is None and not self.training.do_train and _is_classifier(config):
            # Rows for prediction alone: the labels are those of the model.
            several = config.problem_type == "multi_label_classification"
            self.labels = replace(Labels.from_config(config), is_multilabel=several)
        if self.labels is None:
            config.num_labels, config.problem_type = 1, "regression"
            return
        self.labels = self.labels.match_model(config)
        self.labels.write_config(config)
        several = self.labels.is_multilabel
        config.problem_type = "multi_label_classification" if several else "single_label_classification"

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        arguments = self.arguments
        if arguments.text_column_names:
            joined = zip(*(rows[name] for name in self.text_columns), strict=True)
            texts: list[list[str]] = [[arguments.text_column_delimiter.join(each) for each in joined]]
        else:
            texts = [rows[name] for name in self.text_columns]
        features = self.tokenizer(
            *texts,
            padding="max_length" if arguments.pad_to_max_length else False,
            max_length=self._max_length,
            truncation=True,
        )
        if features.encodings is not None:  # a tokenizer written in Python does not report what it cut
            features[CUT_COLUMN] = [bool(one.overflowing) for one in features.encodings]
        given = rows.get(self.label_column)
        if given is not None and not (split == TEST and self._has_hidden_labels(given)):
            features["labels"] = self.labels.encode(given) if self.labels else [float(value) for value in given]
        return features

    @property
    def _max_length(self) -> int:
        return min(self.arguments.max_seq_length, self.tokenizer.model_max_length)

    def transform_features(self, features: Any, split: str, encode: Any) -> Any:
        if self.arguments.pad_to_max_length and split == TRAIN:
            report_padding(features, split)
        return report_truncation(features, split, self._max_length)

    def _has_hidden_labels(self, values: Sequence[Any]) -> bool:
        """Return whether a test set hides its labels, as GLUE's do with -1."""
        return any(
            value is None or value == -1 or (self.labels and not self.labels.is_known(value)) for value in values
        )

    def build_collator(self, model: Any) -> Any:
        if self.arguments.pad_to_max_length:
            return default_data_collator
        return DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        arguments = self.arguments
        if arguments.metric_name:
            names: Sequence[Any] = [name.strip() for name in arguments.metric_name.split(",")]
        elif arguments.task_name:
            names = GLUE[arguments.task_name][1]
        elif self.labels is None:
            names = ["mse"]
        else:
            names = (
                [("multilabel_f1", {"average": "micro", "name": "f1"})] if self.labels.is_multilabel else ["accuracy"]
            )
        measure = metrics(names)

        def compute(prediction: Any) -> dict[str, float]:
            result = dict(measure(prediction))
            if len(result) > 1:
                result["combined_score"] = float(np.mean(list(result.values())))
            return result

        return {"compute_metrics": compute}

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        for row, scores in zip(rows, logits, strict=True):
            fields = {name: row[name] for name in self.text_columns}
            if self.labels is None:
                yield {**fields, "prediction": float(scores.squeeze())}
            else:
                yield {**fields, **self.labels.format_prediction(scores)}


def _is_classifier(config: Any) -> bool:
    return config.num_labels > 1 and config.problem_type != "regression"
