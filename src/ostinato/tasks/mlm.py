"""Masked language modeling: predict the hidden tokens of a text, as BERT does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ostinato import DataCollatorForLanguageModeling

from .hidden_tokens import HiddenArguments, HiddenTokens
from .task_arguments import flag


@dataclass
class MaskedArguments(HiddenArguments):
    """Texts, the length of their rows, and how much of them is hidden."""

    mlm_probability: float = flag(0.15, "The share of tokens that are masked, drawn again each time a row is read.")


class MaskedLanguageModeling(HiddenTokens):
    """Recipe that predicts tokens hidden at random from the rest of the text."""

    name = "mlm"
    summary = "Train a masked language model, which predicts tokens that are hidden."
    model_class = "AutoModelForMaskedLM"
    arguments_class = MaskedArguments

    def build_collator(self, model: Any) -> Any:
        arguments = self.arguments
        is_ragged = arguments.line_by_line and not arguments.pad_to_max_length
        return DataCollatorForLanguageModeling(
            self.tokenizer,
            mlm_probability=arguments.mlm_probability,
            pad_to_multiple_of=8 if is_ragged and self.training.fp16 else None,
        )
