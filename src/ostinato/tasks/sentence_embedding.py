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
from .text_retrieval import NOT_A_CANDIDATE, Candidates, retrieval
from .towers import CosineToScore, InBatchNegatives, TowerCollator, TwoTowerTrainer

COSINE, IN_BATCH = "cosine", "in-batch-negatives"
TEXTS = (("sentence1", "sentence2"), ("anchor", "positive"), ("query", "positive"), ("query", "answer"),
         ("question", "answer"))  # fmt: skip
NEGATIVE = "negative"
SCORES = ("score", "similarity_score", "label", "labels")


@dataclass
class SentenceEmbeddingArguments(TextArguments):
    """The texts that are compared, and the computation of their vectors."""

    loss: str | None = flag(
        None,
        "cosine: the cosine of two texts is to be their score. in-batch-negatives: the second text is to be nearer to "
        "the first than those of other rows. Without it: cosine if there is a column of scores.",
        choices=[COSINE, IN_BATCH],
    )
    text_column_names: str | None = flag(
        None, "The columns with the texts, by commas: two, or three with a hard negative."
    )
    score_column_name: str | None = flag(None, "The column with the scores, if not 'score' or 'label'.")
    score_scale: float | None = flag(
        None, "Scores are divided by this; without it, by the largest if that is above 1."
    )
    scale: float = flag(20.0, "In-batch negatives: cosines are multiplied by this; 20 is a temperature of 0.05.")
    symmetric: bool = flag(False, "In-batch negatives: the first text is to be found by the second as well.")
    pooling: str | None = flag(
        None, "The vector of a text: the mean of its tokens' (the default of a new model), the first, the largest.",
        choices=list(MODES),
    )  # fmt: skip
    normalize: bool | None = flag(
        None, "Whether vectors have length 1; cosines are the same either way.", nargs="?", const=True
    )
    top_k: int = flag(5, "In-batch negatives: how many of the texts found are written for each prediction.")


class SentenceEmbedding(Recipe):
    """Recipe for vectors of texts: two towers that share an encoder."""

    name = "sentence-embedding"
    summary = "Embed texts so that near vectors mean near texts: scored pairs, or pairs with in-batch negatives."
    model_class = "AutoModel"
    arguments_class = SentenceEmbeddingArguments
    trainer_class = TwoTowerTrainer

    texts_in: tuple[str, ...]  # the columns: first, second and optionally a hard negative
    score_column: str | None = None  # None: in-batch negatives
    score_scale: float = 1.0
    pooling: Pooling

    # ---- rows ------------------------------------------------------------------------------------------------

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        first = next(iter(splits.values()))
        self.texts_in = self._text_columns(first)
        for split in splits.values():
            split.require(self.texts_in, dict.fromkeys(self.texts_in, "--text_column_names"))
            for column in self.texts_in:
                split.check(column, _is_said, "there is no text", "add the text, or leave the row out")
        score = self.arguments.score_column_name or next((name for name in SCORES if name in first.columns), None)
        if (self.arguments.loss or (COSINE if score else IN_BATCH)) == COSINE:
            self._inspect_scores(splits, score or SCORES[0])
        else:
            self._inspect_negatives(splits, score)

    def _text_columns(self, split: Split) -> tuple[str, ...]:
        asked = self.arguments.text_column_names
        if asked:
            names = tuple(name.strip() for name in asked.split(","))
            if len(names) not in (2, 3):
                raise ConfigError(
                    what=f"--text_column_names {asked}",
                    why="a row is a pair of texts, with a hard negative perhaps",
                    fix="name two columns or three",
                )
            return names
        pair = next((pair for pair in TEXTS if set(pair) <= set(split.columns)), None)
        if pair is None:
            split.require(TEXTS[0], dict.fromkeys(TEXTS[0], "--text_column_names"))
        assert pair is not None
        return (*pair, NEGATIVE) if NEGATIVE in split.columns and self.arguments.loss != COSINE else pair

    def _inspect_scores(self, splits: Mapping[str, Split], score: str) -> None:
        if len(self.texts_in) != 2:
            raise ConfigError(
                what=f"--loss {COSINE} with the texts {', '.join(self.texts_in)}",
                why="a score is of two texts",
                fix=f"name two columns with --text_column_names, or add --loss {IN_BATCH}",
            )
        self.score_column = score
        scored = [split for split in splits.values() if not split.name.startswith(TEST)]
        for split in scored:
            split.require([score], {score: "--score_column_name"})
            split.check(score, _is_number, "this is not a number", "mend the score, or leave the row out")
        told = f"reads {' and '.join(self.texts_in)}; their cosine is to be {score}"
        if scored:
            largest = max(abs(float(value)) for value in scored[0].column(score))
            self.score_scale = self.arguments.score_scale or max(largest, 1.0)
            if self.score_scale != 1:
                why = "--score_scale" if self.arguments.score_scale else f"the largest in {scored[0].source}"
                told += f" / {self.score_scale:g} ({why})"
        get_logger().info(told)

    def _inspect_negatives(self, splits: Mapping[str, Split], score: str | None) -> None:
        if score is not None:
            get_logger().info(f"column {score!r} is not read: every pair counts as one that belongs together")
        size, told = self.training.per_device_train_batch_size, ""
        if TRAIN in splits:
            if size * (len(self.texts_in) - 1) == 1:
                raise ConfigError(
                    what=f"--loss {IN_BATCH} with --per_device_train_batch_size 1",
                    why="the negatives of a row are texts of the other rows of its micro-batch, and there are none",
                    fix="choose a larger batch; --gradient_accumulation_steps does not add negatives",
                )
            told = f"; negatives are the texts of the other rows in a micro-batch of {size}"
            told += " and all hard negatives in it" if len(self.texts_in) == 3 else ""
            if self.training.gradient_accumulation_steps > 1:
                told += ": accumulating gradients adds none"
            if self.training.world_size > 1:
                told += "; every process has its own"
        first, second = self.texts_in[:2]
        get_logger().info(f"reads {', '.join(self.texts_in)}; {second} is to be found by {first}{told}")

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return (text for column in self.texts_in for text in rows[column])

    # ---- model -----------------------------------------------------------------------------------------------

    def prepare_config(self, config: Any) -> None:
        if getattr(config, "is_encoder_decoder", False):
            raise ConfigError(
                what=f"{config.model_type} is an encoder with a decoder",
                why="the vector of a text is made by an encoder alone",
                fix="name an encoder, such as a bert, roberta or mpnet",
            )

    def load_model(self, asked: ModelArguments) -> Any:
        saved = Pooling.saved_with(lambda file: find_file(asked, file)) or Pooling()
        mode, normalize = self.arguments.pooling, self.arguments.normalize
        self.pooling = Pooling(mode or saved.mode, saved.normalize if normalize is None else normalize)
        get_logger().info(f"the vector of a text: {self.pooling}")
        return super().load_model(asked)

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        towers = [
            self.tokenizer(
                rows[column],
                padding="max_length" if self.arguments.pad_to_max_length else False,
                max_length=self._max_length,
                truncation=True,
            )
            for column in self.texts_in
        ]
        features: dict[str, Any] = {
            name: [list(each) for each in zip(*(tower[name] for tower in towers), strict=True)] for name in towers[0]
        }
        if self.score_column is None:
            features["labels"] = [
                list(map(number_of, each)) for each in zip(*(rows[column] for column in self.texts_in), strict=True)
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
        asked = self.arguments
        negatives = InBatchNegatives(asked.scale, asked.symmetric)
        return {
            "pooling": self.pooling,
            "comparison": CosineToScore() if self.score_column else negatives,
            "max_length": self._max_length,
            "compute_metrics": metrics(["spearman", "pearson"]) if self.score_column else _retrieval,
        }

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        texts = [rows[column] for column in self.texts_in]
        if self.score_column is not None:
            for row, cosine in zip(rows, output.predictions, strict=True):
                yield {**row, "cosine": round(float(cosine), 4)}
            return
        candidates = Candidates(output.predictions, output.label_ids)
        for found in candidates.search():
            best = np.argsort(-found.cosines, axis=1, kind="stable")[:, : self.arguments.top_k]
            for number, rank in enumerate(found.ranks):
                told = {name: texts[tower][found.start + number] for tower, name in enumerate(self.texts_in)}
                places = [(candidates.origin_of(place), found.cosines[number, place]) for place in best[number]]
                near = [
                    {"text": texts[tower][row], "cosine": round(float(score), 4)}
                    for (row, tower), score in places
                    if score > NOT_A_CANDIDATE
                ]
                yield {**told, "rank": int(rank), "found": near}

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "sentence-similarity", "tags": ["sentence-transformers"]}


def _retrieval(prediction: Any) -> dict[str, float]:
    return retrieval(prediction.predictions, prediction.label_ids)


def number_of(text: str) -> int:
    """Return a number that identifies a text: 63 bits, the same on every machine.

    >>> number_of("a") == number_of("a"), number_of("a") == number_of("b")
    (True, False)
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _is_said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and value == value
