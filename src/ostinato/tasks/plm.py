"""Permutation language modeling: predict spans of a text in a random order, as XLNet does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato import DataCollatorForPermutationLanguageModeling
from ostinato.logging import get_logger

from .hidden_tokens import HiddenArguments, HiddenTokens
from .recipe import Columns
from .task_arguments import flag


@dataclass
class PermutedArguments(HiddenArguments):
    """Texts, the length of their rows, and how much of them is predicted."""

    max_seq_length: int | None = flag(512, "The tokens of a block, or the maximum of a line; an even number.")
    plm_probability: float = flag(1 / 6, "The length of a predicted span divided by the length of its context.")
    max_span_length: int = flag(5, "The maximum number of tokens in a predicted span.")


class PermutationLanguageModeling(HiddenTokens):
    """Recipe that predicts spans of tokens in a random order, each from those before it in that order."""

    name = "plm"
    summary = "Train a permutation language model (XLNet), which predicts spans in a random order."
    model_class = "XLNetLMHeadModel"
    arguments_class = PermutedArguments

    def prepare_model(self, model: Any) -> None:
        super().prepare_model(model)
        if self.length % 2:
            self.length -= 1
            get_logger().info(
                f"blocks have {self.length} tokens, an even number: their second half is permuted like the first"
            )

    def encode(self, rows: Columns, split: str) -> Mapping[str, Any]:
        features = super().encode(rows, split)
        if not self.arguments.line_by_line:
            return features
        return {"input_ids": [self._pad_to_even(ids) for ids in features["input_ids"]]}

    def _pad_to_even(self, ids: list[int]) -> list[int]:
        padding = [self.tokenizer.pad_token_id] * (len(ids) % 2)
        return padding + ids if self.tokenizer.padding_side == "left" else ids + padding

    def build_collator(self, model: Any) -> Any:
        arguments = self.arguments
        return DataCollatorForPermutationLanguageModeling(
            self.tokenizer, plm_probability=arguments.plm_probability, max_span_length=arguments.max_span_length
        )
