"""Common part of all language models: a column of text, blocks, the accuracy of tokens, perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ostinato import Trainer
from ostinato.logging import get_logger
from ostinato.metrics import metric

from .recipe import Columns, Recipe
from .rows import RowReader, Split, read_splits
from .task_arguments import EncodingArguments, flag
from .text_blocks import RowCutter, RowJoiner, build_no_text_error, choose_block_length, split_into_blocks

IGNORE_INDEX = -100


@dataclass
class LanguageArguments(EncodingArguments):
    """Texts, and how many blocks of them."""

    text_column_name: str | None = flag(None, "The column with the text, if not 'text' or the first column of texts.")
    validation_split_percentage: float | None = flag(
        5, "Without validation rows, evaluate on this percentage of the training rows, from their beginning."
    )
    max_train_samples: int | None = flag(None, "Train on at most this many blocks, the first ones.")
    max_eval_samples: int | None = flag(None, "Evaluate on at most this many blocks, the first ones.")
    max_predict_samples: int | None = flag(None, "Predict at most this many blocks, the first ones.")


class LanguageModel(Recipe):
    """Recipe for texts as blocks of tokens. Subclasses define what is predicted."""

    needs_padding = False  # blocks have one length
    arguments_class = LanguageArguments
    predicts_next: ClassVar[bool] = True  # the token after each position, not the one in it
    length_flag: ClassVar[str] = "block_size"

    text_column: str
    length: int  # tokens of a block
    sources: dict[str, str]
    predicted: Any = None  # the features that were predicted

    # ---- rows ------------------------------------------------------------------------------------------------

    def read(self, wanted: Sequence[str]) -> dict[str, Split]:
        whole = replace(self.arguments, max_train_samples=None, max_eval_samples=None, max_predict_samples=None)
        return read_splits(whole, wanted, RowReader(**self.get_reader_arguments()))

    def get_reader_arguments(self) -> dict[str, Any]:
        """Return options of the reader of text files."""
        return {}

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        first = next(iter(splits.values()))
        self.text_column = self.arguments.text_column_name or _find_text_column(first)
        for split in splits.values():
            split.require([self.text_column], {self.text_column: "--text_column_name"})
            split.check_texts(self.text_column)
        self.sources = {split.name: split.source for split in splits.values()}

    def iterate_texts(self, rows: Columns) -> Iterator[str]:
        return iter(rows[self.text_column])

    # ---- blocks ----------------------------------------------------------------------------------------------

    def prepare_model(self, model: Any) -> None:
        requested = getattr(self.arguments, self.length_flag)
        self.length = choose_block_length(
            requested, self.length_flag, self.tokenizer, model, extra=self.count_added_tokens()
        )

    def count_added_tokens(self) -> int:
        """Return how many tokens are added to a block after it was cut."""
        return 0

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        return self.tokenizer(rows[self.text_column], verbose=False)  # not cut yet: no warning about long rows

    def build_block_function(self) -> RowJoiner | RowCutter | None:
        """Return the function that turns rows into blocks; None leaves them as they are."""
        return RowJoiner(self.length)

    def transform_features(self, features: Any, split: str, encode: Callable[..., Any]) -> Any:
        cut, source = self.build_block_function(), self.sources.get(split, split)
        if cut is None and len(features) == 0:
            raise build_no_text_error(source)
        blocks = features if cut is None else split_into_blocks(features, encode, cut, source, self.length_flag)
        arguments = self.arguments
        limits = {"train": arguments.max_train_samples, "validation": arguments.max_eval_samples}
        most = limits.get(split, arguments.max_predict_samples)
        return blocks if most is None or most >= len(blocks) else blocks.select(range(most))

    # ---- results ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "compute_metrics": metric("token_accuracy", name="accuracy", shift=self.predicts_next),
            "preprocess_logits_for_metrics": select_likeliest_tokens,
        }

    def add_metrics(self, metrics: dict[str, float], prefix: str) -> None:
        """Add the perplexity, under the name that transformers' scripts give it."""
        loss = metrics.get(f"{prefix}_loss")
        if loss is not None:
            metrics["perplexity" if prefix == "eval" else f"{prefix}_perplexity"] = perplexity(loss)

    def predict(self, trainer: Trainer, features: Any, rows: Any) -> Any:
        """Return the output of the trainer's `predict`, with the loss of every block."""
        self.predicted = features
        usual = trainer.preprocess_logits_for_metrics, trainer.compute_metrics
        measure: Any = trainer.compute_metrics
        trainer.preprocess_logits_for_metrics = partial(select_tokens_and_losses, shift=self.predicts_next)
        if measure is not None:
            trainer.compute_metrics = lambda output: measure((output.predictions[0], output.label_ids))
        try:
            return super().predict(trainer, features, rows)
        finally:
            trainer.preprocess_logits_for_metrics, trainer.compute_metrics = usual

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        for place, (tokens, loss, labels) in enumerate(zip(*output.predictions, output.label_ids, strict=True)):
            fields = self.format_block(place, tokens, labels)
            known = None if np.isnan(loss) else float(loss)
            yield {**fields, "loss": known, "perplexity": None if known is None else perplexity(known)}

    def format_block(self, place: int, tokens: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """Return a block as text and the tokens predicted in it, given their ids and the labels."""
        there = labels != IGNORE_INDEX
        if self.predicts_next:
            right = (tokens[:-1] == labels[1:])[there[1:]]
            return {"text": self.tokenizer.decode(labels[there]), "tokens": len(right), "right": int(right.sum())}
        pairs = zip(labels[there], tokens[there], strict=True)
        return {
            "text": self.tokenizer.decode(self.predicted[place]["input_ids"]),
            "hidden": [
                {"token": self._decode_token(token), "prediction": self._decode_token(guess)} for token, guess in pairs
            ],
        }

    def _decode_token(self, token: Any) -> str:
        return self.tokenizer.decode([int(token)])


def _find_text_column(split: Split) -> str:
    if "text" in split.columns:
        return "text"
    first = split.rows[0]
    column = next((name for name in split.columns if isinstance(first[name], str)), None)
    if column is None:
        split.require(["text"], {"text": "--text_column_name"})
    get_logger().info(f"{split.source}: no column 'text'; column {column!r} is read")
    return str(column)


def perplexity(loss: float) -> float:
    """Return the perplexity of a mean loss: the number of tokens that a model hesitates between.

    >>> perplexity(0.0), perplexity(1000.0)
    (1.0, inf)
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def select_likeliest_tokens(logits: Any, labels: Any) -> Tensor:
    """Return the token of the highest score: accuracy needs no more of the logits."""
    return _get_logits(logits).argmax(dim=-1)


def select_tokens_and_losses(logits: Any, labels: Tensor, *, shift: bool) -> tuple[Tensor, Tensor]:
    """Return the most likely tokens, and the mean loss of every row (NaN where nothing is to be predicted)."""
    scores = _get_logits(logits)
    ahead = 1 if shift else 0
    losses = [
        cross_entropy(row[: len(row) - ahead].float(), right[ahead:], ignore_index=IGNORE_INDEX)
        for row, right in zip(scores, labels, strict=True)
    ]
    return scores.argmax(dim=-1), torch.stack(losses)


def _get_logits(logits: Any) -> Tensor:
    """Return the logits, without the states that some models return beside them."""
    return logits[0] if isinstance(logits, tuple) else logits
