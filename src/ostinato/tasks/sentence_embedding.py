"""Sentence embedding: vectors that are close if their texts mean the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import ConfigError
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from .models import find_file
from .pooling import MODES, Pooling
from .recipe import Columns, Recipe
from .rows import TEST, TRAIN, Split
from .task_arguments import ModelArguments, TextArguments, flag
from .text_retrieval import NOT_A_CANDIDATE, Candidates, measure_retrieval
from .towers import CosineToScore, InBatchNegatives, TowerCollator, TwoTowerTrainer

COSINE, IN_BATCH = "cosine", "in-batch-negatives"
TEXT_COLUMN_PAIRS = (("sentence1", "sentence2"), ("anchor", "positive"), ("query", "positive"), ("query", "answer"),
         ("question", "answer"))  # fmt: skip
NEGATIVE_COLUMN = "negative"
SCORE_COLUMNS = ("score", "similarity_score", "label", "labels")


@dataclass
class SentenceEmbeddingArguments(TextArguments):
    """The texts that are compared, and the computation of their vectors."""

    loss: str | None = flag(
        None,
        "cosine: fit the cosine of two texts to their score. in-batch-negatives: move the second text nearer to the "
        "first than the texts of other rows. By default cosine if there is a column of scores.",
        choices=[COSINE, IN_BATCH],
    )
    text_column_names: str | None = flag(
        None, "The columns with the texts, separated by commas: two, or three with a hard negative."
    )
    score_column_name: str | None = flag(None, "The column with the scores, if not 'score' or 'label'.")
    score_scale: float | None = flag(
        None, "Scores are divided by this. By default by the largest, if that is above 1."
    )
    scale: float = flag(20.0, "In-batch negatives: cosines are multiplied by this; 20 is a temperature of 0.05.")
    symmetric: bool = flag(False, "In-batch negatives: retrieve the first text by the second as well.")
    pooling: str | None = flag(
        None, "The vector of a text: the mean of its tokens (the default of a new model), the first, the maximum.",
        choices=list(MODES),
    )  # fmt: skip
    normalize: bool | None = flag(
        None, "Whether vectors are normalized to length 1; cosines are the same either way.", nargs="?", const=True
    )
    top_k: int = flag(5, "In-batch negatives: the number of retrieved texts in each prediction.")


class SentenceEmbedding(Recipe):
    """Recipe for vectors of texts: two towers that share an encoder."""

    name = "sentence-embedding"
    summary = "Embed texts so that near vectors mean near texts: scored pairs, or pairs with in-batch negatives."
    model_class = "AutoModel"
    arguments_class = SentenceEmbeddingArguments
    trainer_class = TwoTowerTrainer

    text_columns: tuple[str, ...]  # the columns: first, second and optionally a hard negative
    score_column: str | None = None  # None: in-batch negatives
    score_scale: float = 1.0
    pooling: Pooling

    # ---- rows ------------------------------------------------------------------------------------------------

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        first = next(iter(splits.values()))
        self.text_columns = self._find_text_columns(first)
        for split in splits.values():
            split.require(self.text_columns, dict.fromkeys(self.text_columns, "--text_column_names"))
            for column in self.text_columns:
                split.check_column(column, _has_text, "there is no text", "add the text, or remove the row")
        score = self.arguments.score_column_name or next(
            (name for name in SCORE_COLUMNS if name in first.columns), None
        )
        if (self.arguments.loss or (COSINE if score else IN_BATCH)) == COSINE:
            self._inspect_scores(splits, score or SCORE_COLUMNS[0])
        else:
            self._inspect_negatives(splits, score)

    def _find_text_columns(self, split: Split) -> tuple[str, ...]:
        given = self.arguments.text_column_names
        if given:
            names = tuple(name.strip() for name in given.split(","))
            if len(names) not in (2, 3):
                raise ConfigError(
                    what=f"--text_column_names {given}",
                    why="a row is a pair of texts, optionally with a hard negative",
                    fix="name two columns or three",
                )
            return names
        pair = next((pair for pair in TEXT_COLUMN_PAIRS if set(pair) <= set(split.columns)), None)
        if pair is None:
            split.require(TEXT_COLUMN_PAIRS[0], dict.fromkeys(TEXT_COLUMN_PAIRS[0], "--text_column_names"))
        assert pair is not None
        return (*pair, NEGATIVE_COLUMN) if NEGATIVE_COLUMN in split.columns and self.arguments.loss != COSINE else pair

    def _inspect_scores(self, splits: Mapping[str, Split], score: str) -> None:
        if len(self.text_columns) != 2:
            raise ConfigError(
                what=f"--loss {COSINE} with the texts {', '.join(self.text_columns)}",
                why="a score compares two texts",
                fix=f"name two columns with --text_column_names, or add --loss {IN_BATCH}",
            )
        self.score_column = score
        scored = [split for split in splits.values() if not split.name.startswith(TEST)]
        for split in scored:
            split.require([score], {score: "--score_column_name"})
            split.check_column(score, _is_number, "this is not a number", "correct the score, or remove the row")
        message = f"reads {' and '.join(self.text_columns)}; fits their cosine to {score}"
        if scored:
            largest = max(abs(float(value)) for value in scored[0].read_column(score))
            self.score_scale = self.arguments.score_scale or max(largest, 1.0)
            if self.score_scale != 1:
                why = "--score_scale" if self.arguments.score_scale else f"the largest in {scored[0].source}"
                message += f" / {self.score_scale:g} ({why})"
        get_logger().info(message)

    def _inspect_negatives(self, splits: Mapping[str, Split], score: str | None) -> None:
        if score is not None:
            get_logger().info(f"column {score!r} is not read: every pair counts as a positive pair")
        size, message = self.training.per_device_train_batch_size, ""
        if TRAIN in splits:
            if size * (len(self.text_columns) - 1) == 1:
                raise ConfigError(
                    what=f"--loss {IN_BATCH} with --per_device_train_batch_size 1",
                    why="the negatives of a row are texts of the other rows of its micro-batch, and there are none",
                    fix="choose a larger batch; --gradient_accumulation_steps does not add negatives",
                )
            message = f"; negatives are the texts of the other rows in a micro-batch of {size}"
            message += " and all hard negatives in it" if len(self.text_columns) == 3 else ""
            if self.training.gradient_accumulation_steps > 1:
                message += ": gradient accumulation adds none"
            if self.training.world_size > 1:
                message += "; every process has its own"
        first, second = self.text_columns[:2]
        get_logger().info(f"reads {', '.join(self.text_columns)}; retrieves {second} by {first}{message}")

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (text for column in self.text_columns for text in rows[column])

    # ---- model -----------------------------------------------------------------------------------------------

    def prepare_config(self, config: Any) -> None:
        if getattr(config, "is_encoder_decoder", False):
            raise ConfigError(
                what=f"{config.model_type} is an encoder-decoder model",
                why="the vector of a text comes from an encoder alone",
                fix="name an encoder, such as a bert, roberta or mpnet",
            )

    def load_model(self, arguments: ModelArguments) -> Any:
        saved = Pooling.load(lambda file: find_file(arguments, file)) or Pooling()
        mode, normalize = self.arguments.pooling, self.arguments.normalize
        self.pooling = Pooling(mode or saved.mode, saved.normalize if normalize is None else normalize)
        get_logger().info(f"the vector of a text: {self.pooling}")
        return super().load_model(arguments)

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        towers = [
            self.tokenizer(
                rows[column],
                padding="max_length" if self.arguments.pad_to_max_length else False,
                max_length=self._max_length,
                truncation=True,
            )
            for column in self.text_columns
        ]
        features: dict[str, Any] = {
            name: [list(each) for each in zip(*(tower[name] for tower in towers), strict=True)] for name in towers[0]
        }
        if self.score_column is None:
            features["labels"] = [
                list(map(hash_text, each))
                for each in zip(*(rows[column] for column in self.text_columns), strict=True)
            ]
        elif all(map(_is_number, rows.get(self.score_column, [None]))):
            features["labels"] = [float(value) / self.score_scale for value in rows[self.score_column]]
        return features

    @property
    def _max_length(self) -> int:
        return min(self.arguments.max_seq_length, self.tokenizer.model_max_length)

    def build_collator(self, model: Any) -> Any:
        return TowerCollator(self.tokenizer, pad_to_multiple_of=8 if self.training.fp16 else None)

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        arguments = self.arguments
        negatives = InBatchNegatives(arguments.scale, arguments.symmetric)
        return {
            "pooling": self.pooling,
            "comparison": CosineToScore() if self.score_column else negatives,
            "max_length": self._max_length,
            "compute_metrics": metrics(["spearman", "pearson"]) if self.score_column else _compute_retrieval_metrics,
        }

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        texts = [rows[column] for column in self.text_columns]
        if self.score_column is not None:
            for row, cosine in zip(rows, output.predictions, strict=True):
                yield {**row, "cosine": round(float(cosine), 4)}
            return
        candidates = Candidates(output.predictions, output.label_ids)
        for found in candidates.search():
            best = np.argsort(-found.cosines, axis=1, kind="stable")[:, : self.arguments.top_k]
            for number, rank in enumerate(found.ranks):
                fields = {name: texts[tower][found.start + number] for tower, name in enumerate(self.text_columns)}
                places = [(candidates.find_origin(place), found.cosines[number, place]) for place in best[number]]
                near = [
                    {"text": texts[tower][row], "cosine": round(float(score), 4)}
                    for (row, tower), score in places
                    if score > NOT_A_CANDIDATE
                ]
                yield {**fields, "rank": int(rank), "found": near}

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "sentence-similarity", "tags": ["sentence-transformers"]}


def _compute_retrieval_metrics(prediction: Any) -> dict[str, float]:
    return measure_retrieval(prediction.predictions, prediction.label_ids)


def hash_text(text: str) -> int:
    """Return a number that identifies a text: 63 bits, the same on every machine.

    >>> hash_text("a") == hash_text("a"), hash_text("a") == hash_text("b")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _has_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == value
