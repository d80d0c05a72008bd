"""Common part of masked and permuted language models: blocks or single lines, and a token that hides others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ostinato import ConfigError

from .language_models import LanguageArguments, LanguageModel
from .recipe import Columns
from .rows import Split
from .task_arguments import flag
from .text_blocks import RowJoiner


@dataclass
class HiddenArguments(LanguageArguments):
    """Texts, and the length of their rows."""

    max_seq_length: int | None = flag(
        None, "The tokens of a block, or the maximum of a line. By default the model's maximum, at most 1024."
    )
    line_by_line: bool = flag(
        False, "Encode every row separately, instead of joining rows and cutting them into blocks."
    )
    pad_to_max_length: bool = flag(
        False, "With --line_by_line: pad every row to --max_seq_length, not every batch to its longest row."
    )


class HiddenTokens(LanguageModel):
    """Recipe that predicts hidden tokens in their place."""

    predicts_next = False
    defaults: ClassVar[Mapping[str, Any]] = {"isolate_rng": False}  # hides the tokens that transformers would hide
    needs_padding = True  # lines differ in length
    length_flag = "max_seq_length"

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        if self.training.packing:
            raise ConfigError(
                what=f"--packing with {self.name}",
                why="the labels of packed rows are their own tokens, so no token would be hidden",
                fix="remove --packing: blocks have no padding either",
            )
        super().inspect_splits(splits)

    def prepare_config(self, config: Any) -> None:
        if self.tokenizer.mask_token is None:
            raise ConfigError(
                what=f"the tokenizer of {config.name_or_path or config.model_type} has no mask token",
                why=f"{self.name} hides tokens behind it; its special tokens are "
                f"{', '.join(self.tokenizer.all_special_tokens) or 'none'}",
                fix="use a tokenizer with a mask token: --tokenizer_name PATH; or train a causal model: clm",
            )

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        arguments, texts = self.arguments, rows[self.text_column]
        if not arguments.line_by_line:
            return super().encode(rows, split)
        texts = [text for text in texts if text.strip()]
        if not texts:
            return {"input_ids": []}
        return self.tokenizer(
            texts,
            padding="max_length" if arguments.pad_to_max_length else False,
            truncation=True,
            max_length=self.length,
        )

    def build_block_function(self) -> RowJoiner | None:
        return None if self.arguments.line_by_line else RowJoiner(self.length)
