"""Summarization: a long text becomes a short one, measured by ROUGE."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ostinato import ConfigError
from ostinato.logging import get_logger
from ostinato.metrics import metric

from .rows import Split
from .task_arguments import flag
from .texts_to_texts import TextToText, TextToTextArguments

# Columns of well-known datasets, which have other columns before or between them.
PAIRS = (
    ("article", "highlights"),
    ("document", "summary"),
    ("dialogue", "summary"),
    ("article", "summary"),
    ("body", "summary"),
    ("text", "summary"),
    ("extract_text", "summary_text"),
    ("news_body", "news_title"),
    ("review_body", "review_title"),
    ("description", "abstract"),
)
_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)\]]))\s+|(?<=[。！？])")


@dataclass
class SummarizationArguments(TextToTextArguments):
    """Columns, the lengths of texts, and the generation options."""

    text_column: str | None = flag(None, "The column with the long text, if its name or position does not show it.")
    summary_column: str | None = flag(None, "The column with the summary.")
    lang: str | None = flag(None, "The language, for a multilingual tokenizer, such as en_XX.")
    resize_position_embeddings: bool | None = flag(
        None,
        "If --max_source_length exceeds the positions of the model: `true` adds positions, `false` is an error. "
        "By default positions are added if the model allows it, else texts are truncated.",
    )


class Summarization(TextToText):
    """Recipe that writes a summary of every text."""

    name = "summarization"
    summary = "Write a summary of every text."
    arguments_class = SummarizationArguments
    language_flags = ("--lang", "--lang")

    def find_sides(self, split: Split) -> None:
        arguments, columns = self.arguments, split.columns
        known = next((pair for pair in PAIRS if set(pair) <= set(columns)), None)
        named = (arguments.text_column, arguments.summary_column)
        texts = [name for name in columns if _is_text_feature(split.rows.features[name]) and name not in named]
        free = iter(texts)
        self.source_name = arguments.text_column or (known[0] if known else next(free, "text"))
        self.target_name = arguments.summary_column or (known[1] if known else next(free, "summary"))

    def require_sides(self, split: Split, *sides: str) -> None:
        split.require(sides, {self.source_name: "--text_column", self.target_name: "--summary_column"})

    def get_languages(self) -> tuple[str | None, str | None]:
        return self.arguments.lang, self.arguments.lang

    def extend_positions(self, model: Any, positions: int) -> bool:
        arguments = self.arguments
        if arguments.resize_position_embeddings is False:
            raise ConfigError(
                what=f"--max_source_length {arguments.max_source_length} is more than the model can read",
                why=f"{type(model).__name__} has {positions} positions, and --resize_position_embeddings is false",
                fix=f"--max_source_length {positions}, or --resize_position_embeddings true",
            )
        try:
            model.resize_position_embeddings(arguments.max_source_length)
        except NotImplementedError:
            if arguments.resize_position_embeddings is None:
                return False
            raise ConfigError(
                what="--resize_position_embeddings true",
                why=f"{type(model).__name__} has {positions} positions and cannot be extended",
                fix=f"--max_source_length {positions}",
            ) from None
        get_logger().info(f"the model was extended from {positions} to {arguments.max_source_length} positions")
        return True

    def build_metric(self) -> Callable[[list[str], list[str]], dict[str, float]]:
        can_stem = find_spec("nltk") is not None
        if not can_stem:
            get_logger().info("ROUGE compares words, not their stems: nltk is not installed")
        rouge, split = metric("rouge", stemmer=can_stem), build_sentence_splitter()

        def compute(written: list[str], expected: list[str]) -> dict[str, float]:
            sides = [["\n".join(split(text)) for text in texts] for texts in (written, expected)]
            return {name: value * 100 for name, value in rouge(tuple(sides)).items()}

        return compute

    def get_card_arguments(self) -> dict[str, Any]:
        language = self.arguments.lang
        return {**super().get_card_arguments(), **({"language": language} if language else {})}


def _is_text_feature(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")


def build_sentence_splitter() -> Callable[[str], list[str]]:
    """Return a function that splits a text into sentences, for ROUGE-Lsum: nltk's Punkt, if its data are installed."""
    try:
        from nltk import sent_tokenize  # noqa: PLC0415

        sent_tokenize("Yes. No.")
    except (ImportError, LookupError):
        get_logger().info("rougeLsum: sentences end at . ! ? before a space; nltk's sentence model is not installed")
        return split_sentences
    return sent_tokenize


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, as far as punctuation shows them.

    >>> split_sentences("He left. (She stayed.) 'Why?' 3.5 of them")
    ['He left.', '(She stayed.)', "'Why?'", '3.5 of them']
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]
