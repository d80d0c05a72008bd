"""Multiple choice: which of several endings belongs to a beginning, as in SWAG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ostinato import DataCollatorForMultipleChoice, DataError, default_data_collator
from ostinato.logging import get_logger
from ostinato.metrics import metric

from .label_names import find_likeliest
from .max_length import CUT_COLUMN, choose_padding, compute_row_limit, get_tokenizer_limit, report_truncation
from .recipe import Columns, Recipe
from .rows import TEST, Split
from .task_arguments import TextArguments, flag

CONTEXT, BEGINNING, LABEL = "sent1", "sent2", "label"
DEFAULT_MAX_LENGTH = 1024  # tokens of a row by default, for models that take more


@dataclass
class MultipleChoiceArguments(TextArguments):
    """The tokenization of a beginning and its endings."""

    max_seq_length: int | None = flag(
        None, "The maximum length of a choice in tokens. By default the model's maximum, at most 1024."
    )


class MultipleChoice(Recipe):
    """Recipe that picks the right ending (`ending0`, `ending1`, …) for the text of `sent1`.

    The text of `sent2`, if any, begins every ending.
    """

    name = "multiple-choice"
    summary = "Choose the right one of several endings for a text."
    model_class = "AutoModelForMultipleChoice"
    arguments_class = MultipleChoiceArguments

    endings: tuple[str, ...]  # their columns
    has_beginning: bool  # whether there is a column for the beginning of the endings
    test_has_labels: bool = False
    limit: int | None = None

    # ---- rows ------------------------------------------------------------------------------------------------

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        first = next(iter(splits.values()))
        self.endings, self.has_beginning = _find_ending_columns(first), BEGINNING in first.columns
        if len(self.endings) < 2:
            raise DataError(
                what=f"{first.source} has {'one ending' if self.endings else 'no endings'} to choose from",
                why=f"its columns are {', '.join(map(repr, first.columns))}",
                fix="give every row two endings or more, in columns 'ending0', 'ending1', …",
            )
        for split in splits.values():
            self._check_texts(split)
            if not split.name.startswith(TEST):
                split.require([LABEL])
                self._check_labels(split)
            elif LABEL in split.columns and all(value not in (None, -1) for value in split.read_column(LABEL)):
                self._check_labels(split)
                self.test_has_labels = True
        texts = f"{CONTEXT} and {BEGINNING}" if self.has_beginning else CONTEXT
        get_logger().info(f"reads {texts}; predicts {LABEL}, one of {len(self.endings)} endings")

    def _check_texts(self, split: Split) -> None:
        split.require([CONTEXT, *([BEGINNING] if self.has_beginning else []), *self.endings])
        if len(_find_ending_columns(split)) != len(self.endings):
            raise DataError(
                what=f"{split.source} has {len(_find_ending_columns(split))} endings for a row",
                why=f"the rows before it have {len(self.endings)}",
                fix="give every row of every file the same number of endings",
            )
        split.check_texts(CONTEXT, *([BEGINNING] if self.has_beginning else []))
        for column in self.endings:
            split.check_column(
                column,
                lambda value: isinstance(value, str),
                f"there is no ending; every row has {len(self.endings)} of them",
                "add the ending, or remove the row",
            )

    def _check_labels(self, split: Split) -> None:
        split.check_column(
            LABEL,
            lambda value: value in range(len(self.endings)),
            f"this is not the number of an ending; the numbers are 0 to {len(self.endings) - 1}",
            "set the number of the right ending, counted from 0",
        )

    # ---- model -----------------------------------------------------------------------------------------------

    def prepare_config(self, config: Any) -> None:
        requested, known = self.arguments.max_seq_length, get_tokenizer_limit(self.tokenizer)
        if requested is not None and known is not None:
            requested = min(requested, known)
        self.limit = compute_row_limit(requested, min(known or DEFAULT_MAX_LENGTH, DEFAULT_MAX_LENGTH), config)

    # ---- features --------------------------------------------------------------------------------------------

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        count = len(self.endings)
        contexts = [text for text in rows[CONTEXT] for _ in range(count)]
        beginnings = [f"{text} " for text in rows[BEGINNING]] if self.has_beginning else [""] * len(rows[CONTEXT])
        endings = zip(beginnings, *(rows[name] for name in self.endings), strict=True)
        pieces = self.tokenizer(
            contexts,
            [beginning + ending for beginning, *each in endings for ending in each],
            padding=choose_padding(self.limit, is_wanted=self.arguments.pad_to_max_length),
            truncation=True,
            max_length=self.limit,
        )
        features: dict[str, list[Any]] = {name: _group(values, count) for name, values in pieces.items()}
        if pieces.encodings is not None:
            features[CUT_COLUMN] = [any(each) for each in _group([one.overflowing for one in pieces.encodings], count)]
        if split != TEST or self.test_has_labels:
            features["labels"] = [int(value) for value in rows[LABEL]]
        return features

    def transform_features(self, features: Any, split: str, encode: Any) -> Any:
        return report_truncation(features, split, self.limit)

    def build_collator(self, model: Any) -> Any:
        if self.arguments.pad_to_max_length:
            return default_data_collator
        return DataCollatorForMultipleChoice(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {"compute_metrics": metric("accuracy")}

    # ---- results ---------------------------------------------------------------------------------------------

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        logits = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        for row, scores in zip(rows, logits, strict=True):
            best, probability = find_likeliest(scores)
            texts = {name: row[name] for name in (CONTEXT, BEGINNING) if name in row}
            yield {**texts, "prediction": best, "ending": row[self.endings[best]], "score": round(probability, 4)}


def _find_ending_columns(split: Split) -> tuple[str, ...]:
    """Return the columns `ending0`, `ending1`, … up to the first gap in their numbers."""
    numbered = {int(found[1]): found[0] for name in split.columns if (found := re.fullmatch(r"ending(\d+)", name))}
    return tuple(numbered[number] for number in range(len(numbered)) if number in numbered)


def _group(values: Any, count: int) -> list[list[Any]]:
    return [list(values[start : start + count]) for start in range(0, len(values), count)]
