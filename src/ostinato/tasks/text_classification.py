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
from .max_length import CUT, tell_cut, tell_padding
from .recipe import Columns, Recipe
from .rows import TEST, TRAIN, Split, shortened
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
        True, "Pad every row to --max_seq_length; `false` pads every batch to its longest row, which is faster."
    )
    task_name: str | None = flag(None, "A task of GLUE: its columns and metrics, and its rows if no file is named.")
    language: str | None = flag(None, "XNLI in this language, if no file is named.")
    train_language: str | None = flag(None, "XNLI: train in another language than --language.")
    text_column_names: str | None = flag(None, "The columns with the text, by commas; several are joined to one text.")
    text_column_delimiter: str = flag(" ", "What stands between the texts of several columns.")
    label_column_name: str | None = flag(None, "The column with the label, if not 'label' or 'labels'.")
    do_regression: bool | None = flag(None, "Whether labels are numbers to predict; else the column's type decides.")
    metric_name: str | None = flag(None, "Measure by these, by commas: accuracy, f1_macro, mcc, roc_auc, mse, …")

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

    texts_in: tuple[str, ...]  # the columns that are read, one or a pair
    label_column: str
    labels: Labels | None = None  # None for regression

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        asked = self.arguments
        if not any((asked.dataset_name, asked.train_file, asked.validation_file, asked.test_file)):
            if asked.task_name is not None:
                asked.dataset_name, asked.dataset_config_name = "nyu-mll/glue", asked.task_name
            elif asked.language is not None:
                asked.dataset_name, asked.dataset_config_name = "facebook/xnli", asked.language
        splits = super().read(wanted)
        if asked.train_language not in (None, asked.language) and asked.dataset_name == "facebook/xnli":
            asked.dataset_config_name = asked.train_language
            splits |= super().read([TRAIN]) if TRAIN in wanted else {}
        return splits

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        asked, first = self.arguments, next(iter(splits.values()))
        self.label_column = asked.label_column_name or ("labels" if "labels" in first.columns else "label")
        self.texts_in = self._text_columns(first)
        labelled = [split for split in splits.values() if not split.name.startswith(TEST)]
        for split in splits.values():
            split.require(self.texts_in, dict.fromkeys(self.texts_in, "--text_column_names"))
            split.check_texts(*self.texts_in)
        for split in labelled:
            split.require([self.label_column], {self.label_column: "--label_column_name"})
        if labelled and not self._is_regression(labelled[0]):
            self.labels = Labels.of(labelled, self.label_column)
        kind = f", one of {len(self.labels.names)}: {shortened(self.labels.names)}" if self.labels else ", a number"
        told = f"predicts {self.label_column}{kind if labelled else ''}"
        get_logger().info(f"reads {' and '.join(self.texts_in)}; {told}")

    def _text_columns(self, split: Split) -> tuple[str, ...]:
        asked, columns = self.arguments, split.columns
        if asked.text_column_names:
            return tuple(name.strip() for name in asked.text_column_names.split(","))
        if asked.task_name:
            return GLUE[asked.task_name][0]
        for pair in PAIRS:
            if set(pair) <= set(columns):
                return pair
        texts = [name for name in columns if name != self.label_column and isinstance(split.rows[0][name], str)]
        if not texts:
            split.require(["sentence"], {"sentence": "--text_column_names"})
        return tuple(texts[:2])

    def _is_regression(self, split: Split) -> bool:
        asked = self.arguments
        if asked.task_name:
            return asked.task_name == "stsb"
        if asked.do_regression is not None:
            return asked.do_regression
        return isinstance(split.rows[0][self.label_column], float)

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (text for column in self.texts_in for text in rows[column])

    def prepare_config(self, config: Any) -> None:
        if self.labels is None and not self.training.do_train and _classifies(config):
            # Rows for prediction alone: the labels are those of the model.
            several = config.problem_type == "multi_label_classification"
            self.labels = replace(Labels.of_model(config), are_several=several)
        if self.labels is None:
            config.num_labels, config.problem_type = 1, "regression"
            return
        self.labels = self.labels.as_in(config)
        self.labels.tell(config)
        several = self.labels.are_several
        config.problem_type = "multi_label_classification" if several else "single_label_classification"

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        asked = self.arguments
        if asked.text_column_names:
            joined = zip(*(rows[name] for name in self.texts_in), strict=True)
            texts: list[list[str]] = [[asked.text_column_delimiter.join(each) for each in joined]]
        else:
            texts = [rows[name] for name in self.texts_in]
        features = self.tokenizer(
            *texts,
            padding="max_length" if asked.pad_to_max_length else False,
            max_length=self._limit,
            truncation=True,
        )
        if features.encodings is not None:  # a tokenizer written in Python does not report what it cut
            features[CUT] = [bool(one.overflowing) for one in features.encodings]
        given = rows.get(self.label_column)
        if given is not None and not (split == TEST and self._are_hidden(given)):
            features["labels"] = self.labels.ids(given) if self.labels else [float(value) for value in given]
        return features

    @property
    def _limit(self) -> int:
        return min(self.arguments.max_seq_length, self.tokenizer.model_max_length)

    def transform_features(self, features: Any, split: str, encode: Any) -> Any:
        if self.arguments.pad_to_max_length and split == TRAIN:
            tell_padding(features, split)
        return tell_cut(features, split, self._limit)

    def _are_hidden(self, values: Sequence[Any]) -> bool:
        """Return whether a test set hides its labels, as GLUE's do with -1."""
        return any(value is None or value == -1 or (self.labels and not self.labels.knows(value)) for value in values)

    def build_collator(self, model: Any) -> Any:
        if self.arguments.pad_to_max_length:
            return default_data_collator
        return DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        asked = self.arguments
        if asked.metric_name:
            names: Sequence[Any] = [name.strip() for name in asked.metric_name.split(",")]
        elif asked.task_name:
            names = GLUE[asked.task_name][1]
        elif self.labels is None:
            names = ["mse"]
        else:
            names = (
                [("multilabel_f1", {"average": "micro", "name": "f1"})] if self.labels.are_several else ["accuracy"]
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
            told = {name: row[name] for name in self.texts_in}
            if self.labels is None:
                yield {**told, "prediction": float(scores.squeeze())}
            else:
                yield {**told, **self.labels.readable(scores)}


def _classifies(config: Any) -> bool:
    return config.num_labels > 1 and config.problem_type != "regression"
