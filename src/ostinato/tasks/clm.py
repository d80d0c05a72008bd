"""Causal language modeling: predict every next token of a text, as GPT does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ostinato import DataCollatorForLanguageModeling, default_data_collator

from .language_models import LanguageArguments, LanguageModel
from .task_arguments import flag
from .text_blocks import RowCutter, RowJoiner


@dataclass
class CausalArguments(LanguageArguments):
    """Texts, and the length of their blocks."""

    block_size: int | None = flag(
        None,
        "The tokens of a block: texts are joined and cut into blocks. By default the model's maximum, at most 1024.",
    )
    keep_linebreaks: bool = flag(True, "Whether the lines of a text file keep their line break.")


class CausalLanguageModeling(LanguageModel):
    """Recipe that predicts every next token; with --packing, within each row alone."""

    name = "clm"
    summary = "Train a causal language model, which predicts every next token of a text."
    model_class = "AutoModelForCausalLM"
    arguments_class = CausalArguments

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.keeps_rows_apart = bool(training.packing)
        self.needs_padding = self.keeps_rows_apart  # in evaluation, where rows differ in length

    def get_reader_arguments(self) -> dict[str, Any]:
        return {"keep_linebreaks": self.arguments.keep_linebreaks}

    def build_block_function(self) -> RowJoiner | RowCutter:
        return RowCutter(self.length) if self.keeps_rows_apart else RowJoiner(self.length, labelled=True)

    def build_collator(self, model: Any) -> Any:
        if self.keeps_rows_apart:
            return DataCollatorForLanguageModeling(self.tokenizer, mlm=False)
        return default_data_collator
