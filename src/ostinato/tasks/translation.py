"""Translation from one language into another, measured by BLEU and chrF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ostinato import ConfigError, DataError
from ostinato.logging import get_logger
from ostinato.metrics import metrics

from .recipe import Columns
from .rows import Split, format_names
from .task_arguments import flag
from .texts_to_texts import TextToText, TextToTextArguments

TRANSLATION_COLUMN = "translation"  # of rows that hold all languages in one place: {"en": ..., "de": ...}


@dataclass
class TranslationArguments(TextToTextArguments):
    """Source and target language, the lengths of texts, and the generation options."""

    source_lang: str | None = flag(
        None, "The language to translate from, as named in the rows or by the tokenizer: en, en_XX."
    )
    target_lang: str | None = flag(None, "The language to translate into.")


class Translation(TextToText):
    """Recipe that translates every text."""

    name = "translation"
    summary = "Translate texts from one language into another."
    arguments_class = TranslationArguments
    language_flags = ("--source_lang", "--target_lang")

    def find_sides(self, split: Split) -> None:
        arguments, known = self.arguments, _list_languages(split)
        for code, option in ((arguments.source_lang, "--source_lang"), (arguments.target_lang, "--target_lang")):
            if code is None:
                raise ConfigError(
                    what=f"{option} is missing",
                    why="the rows do not show which language is the source",
                    fix=f"add --source_lang and --target_lang; {split.source} has {format_names(known)}",
                )
        if arguments.source_lang == arguments.target_lang:
            raise ConfigError(
                what=f"--source_lang and --target_lang are both {arguments.source_lang!r}",
                why="source and target must differ",
                fix=f"name two of {format_names(known)}",
            )
        self.source_name, self.target_name = (_find_row_language(code, known) for code in self.get_languages())

    def require_sides(self, split: Split, *sides: str) -> None:
        if TRANSLATION_COLUMN in split.columns:
            example = '{"translation": {"en": "...", "de": "..."}}'
            split.check_column(
                TRANSLATION_COLUMN, _is_translation, "this is not a text for each language", f"write {example}"
            )
        for side, option in zip(sides, self.language_flags, strict=False):
            if side in _list_languages(split):
                continue
            held = (
                "column"
                if TRANSLATION_COLUMN not in split.columns
                else f"language in its column {TRANSLATION_COLUMN!r}"
            )
            raise DataError(
                what=f"{split.source} has no {held} {side!r}",
                why=f"it has {format_names(_list_languages(split))}",
                fix=f"name one of these with {option}",
            )

    def get_column(self, split: Split, side: str) -> str:
        return TRANSLATION_COLUMN if TRANSLATION_COLUMN in split.columns else side

    def read_side(self, rows: Columns, name: str) -> Sequence[Any]:
        if TRANSLATION_COLUMN in rows:
            return [(row or {}).get(name) for row in rows[TRANSLATION_COLUMN]]
        return super().read_side(rows, name)

    def get_languages(self) -> tuple[str, str]:
        return self.arguments.source_lang, self.arguments.target_lang

    def build_metric(self) -> Callable[[list[str], list[str]], dict[str, float]]:
        names = ["bleu", "chrf"]
        if find_spec("sacrebleu") is None:
            get_logger().info("BLEU is not measured: sacrebleu is not installed (pip install 'ostinato[text]')")
            names = ["chrf"]
        judge = metrics(names)
        return lambda written, expected: dict(judge((written, expected)))

    def get_card_arguments(self) -> dict[str, Any]:
        return {**super().get_card_arguments(), "language": list(self.get_languages())}


def _is_translation(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _list_languages(split: Split) -> list[str]:
    """Return the languages under `translation`, or else the columns."""
    if TRANSLATION_COLUMN not in split.columns:
        return split.columns
    first = (row for row in split.rows[:100][TRANSLATION_COLUMN] if isinstance(row, dict))
    return list(dict.fromkeys(code for row in first for code in row))


def _find_row_language(code: str, known: Sequence[str]) -> str:
    """Return the name in rows of a language that a tokenizer calls en_XX: the same, or what precedes the "_"."""
    return code if code in known else code.partition("_")[0]
