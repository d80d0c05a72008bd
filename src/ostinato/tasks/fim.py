"""Fill in the middle: a causal language model that has seen the end of a text before its middle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import ConfigError, DataCollatorForLanguageModeling

from .clm import CausalArguments, CausalLanguageModeling
from .task_arguments import flag
from .text_blocks import RowCutter, RowJoiner

ADDED_TOKENS = 3  # tokens: one before each part of a text
_PURPOSES = ("train", "validation", "test")


@dataclass
class FillInTheMiddleArguments(CausalArguments):
    """Texts, the length of their blocks, and how many blocks are rearranged."""

    fim_rate: float = flag(0.5, "The share of blocks that are rearranged; the others stay as they are.")
    fim_spm_rate: float = flag(
        0.5, "The share of rearranged blocks that begin with the suffix; the others begin with the prefix."
    )
    truncate_or_pad: bool = flag(
        True, "Keep the length of a block: its last tokens are dropped for those that are added."
    )
    fim_prefix_token: str = flag("<fim_prefix>", "The token before the beginning of a text.")
    fim_middle_token: str = flag("<fim_middle>", "The token before its middle, which comes last.")
    fim_suffix_token: str = flag("<fim_suffix>", "The token before its end.")

    def __post_init__(self) -> None:
        for name in ("fim_rate", "fim_spm_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"--{name} {getattr(self, name):g}", "it is a share of blocks", "choose a value from 0 to 1"
                )


class FillInTheMiddle(CausalLanguageModeling):
    """Recipe that predicts every next token, in texts whose middle was moved to the end."""

    name = "fim"
    summary = "Train a causal language model to fill in the middle of a text."
    arguments_class = FillInTheMiddleArguments

    def __init__(self, arguments: Any, training: Any) -> None:
        super().__init__(arguments, training)
        self.seed = int(training.seed)  # the cached features depend on it
        self.keeps_length = bool(arguments.truncate_or_pad) and not self.keeps_rows_apart
        self.needs_padding = not self.keeps_length

    def prepare_config(self, config: Any) -> None:
        """Add the tokens, which are new to most tokenizers; the model is resized for them."""
        self.tokenizer.add_tokens(self._get_marker_tokens(), special_tokens=True)

    def _get_marker_tokens(self) -> list[str]:
        arguments = self.arguments
        return [arguments.fim_prefix_token, arguments.fim_middle_token, arguments.fim_suffix_token]

    def count_added_tokens(self) -> int:
        return 0 if self.keeps_length else ADDED_TOKENS

    def build_block_function(self) -> RowJoiner | RowCutter:
        return RowCutter(self.length) if self.keeps_rows_apart else RowJoiner(self.length)

    def transform_features(self, features: Any, split: str, encode: Callable[..., Any]) -> Any:
        arguments = self.arguments
        move = MoveMiddle(
            tuple(self.tokenizer.convert_tokens_to_ids(self._get_marker_tokens())),
            rate=arguments.fim_rate,
            spm_rate=arguments.fim_spm_rate,
            keeps_length=self.keeps_length,
            seed=(self.seed, _PURPOSES.index(split)),
        )
        return encode(super().transform_features(features, split, encode), move, with_indices=True)

    def build_collator(self, model: Any) -> Any:
        return (
            super().build_collator(model)
            if self.keeps_length
            else DataCollatorForLanguageModeling(self.tokenizer, mlm=False)
        )


class MoveMiddle:
    """Rearrange some blocks. Which ones and where they are split follows from the seed and a block's number alone.

    >>> move = MoveMiddle((97, 98, 99), rate=1, spm_rate=0, keeps_length=True, seed=(2,))
    >>> move({"input_ids": [[1, 2, 3, 4, 5, 6, 7, 8, 9]]}, [0])["input_ids"]
    [[97, 1, 2, 99, 6, 98, 3, 4, 5]]
    """

    def __init__(
        self, marks: tuple[int, ...], *, rate: float, spm_rate: float, keeps_length: bool, seed: Sequence[int]
    ) -> None:
        self.marks, self.rate, self.spm_rate = marks, rate, spm_rate
        self.keeps_length, self.seed = keeps_length, tuple(seed)

    def __call__(self, rows: Mapping[str, list[Any]], numbers: Sequence[int]) -> dict[str, list[Any]]:
        blocks = [self._move(ids, number) for ids, number in zip(rows["input_ids"], numbers, strict=True)]
        made = {"input_ids": blocks, "attention_mask": [[1] * len(block) for block in blocks]}
        return {**made, "labels": [list(block) for block in blocks]} if self.keeps_length else made

    def _move(self, ids: list[int], number: int) -> list[int]:
        generator = np.random.default_rng((*self.seed, number))
        draw, suffix_draw = generator.random(2)
        if draw >= self.rate or len(ids) <= ADDED_TOKENS:
            return ids
        text = ids[: len(ids) - ADDED_TOKENS] if self.keeps_length else ids
        first, second = sorted(generator.integers(0, len(text) + 1, size=2))
        prefix, middle, suffix = text[:first], text[first:second], text[second:]
        before, between, behind = self.marks
        if suffix_draw < self.spm_rate:
            return [before, behind, *suffix, between, *prefix, *middle]
        return [before, *prefix, behind, *suffix, between, *middle]
