"""Features of a question and its context: as many windows over the context as needed, and where the answer is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ostinato import ConfigError, DataError

from .questions import Answers


@dataclass(frozen=True)
class WindowSettings:
    """The length and the overlap of windows."""

    max_length: int
    stride: int  # the number of tokens of the context that two windows share
    pad: bool

    def check(self, tokenizer: Any) -> None:
        """Raise for a tokenizer without the positions of its tokens, and for windows that would not advance."""
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                what=f"{type(tokenizer).__name__} does not return the positions of its tokens in a text",
                why="answers are cut out of the context by these positions; only fast tokenizers return them",
                fix="use a model with a tokenizer.json, and keep --use_fast_tokenizer",
            )
        if self.stride >= self.max_length - tokenizer.num_special_tokens_to_add(pair=True):
            raise ConfigError(
                what=f"--doc_stride {self.stride} with windows of {self.max_length} tokens",
                why="neighbouring windows share --doc_stride tokens, so they would not advance",
                fix=f"--doc_stride {self.max_length // 3}, or a longer --max_seq_length",
            )


@dataclass(frozen=True)
class Windows:
    """Features of some questions. Several may belong to one question: `row_numbers` says to which."""

    columns: dict[str, Any]  # the output of the tokenizer
    row_numbers: Sequence[int]
    offsets: Sequence[Sequence[tuple[int, int]]]
    is_context: Sequence[np.ndarray]  # for each window, the tokens of the context
    cls_index: Sequence[int]  # for each window, the token that stands for "no answer here"

    def get_context_offsets(self) -> list[list[tuple[int, int] | None]]:
        """Return the position of each token in the context, and None for other tokens, for post-processing."""
        return [
            [offset if is_inside else None for offset, is_inside in zip(offsets, inside, strict=True)]
            for offsets, inside in zip(self.offsets, self.is_context, strict=True)
        ]

    def locate_answers(self, answers: Sequence[Answers]) -> tuple[list[int], list[int]]:
        """Return the first and last token of the first answer in each window; without it, `cls_index` twice."""
        starts, ends = [], []
        for number, question in enumerate(self.row_numbers):
            found = self._locate_answer(number, answers[question])
            start, end = (self.cls_index[number],) * 2 if found is None else found
            starts.append(start)
            ends.append(end)
        return starts, ends

    def _locate_answer(self, number: int, answers: Answers) -> tuple[int, int] | None:
        tokens = np.flatnonzero(self.is_context[number])
        if not answers.texts or not len(tokens):
            return None
        begin, end = answers.starts[0], answers.starts[0] + len(answers.texts[0])
        begins, ends = np.array(self.offsets[number])[tokens].T
        if not begins[0] <= begin <= end <= ends[-1]:
            return None
        first = int(np.searchsorted(begins, begin, side="right")) - 1  # the last token that does not begin later
        last = int(np.searchsorted(ends, end, side="left"))  # the first that does not end sooner
        return int(tokens[first]), int(tokens[last])


def cut_windows(
    tokenizer: Any,
    questions: Sequence[str],
    contexts: Sequence[str],
    settings: WindowSettings,
    describe_row: Callable[[int], str],
) -> Windows:
    """Return windows over the contexts. `describe_row` names a question in a message."""
    questions = [question.lstrip() for question in questions]
    question_first = tokenizer.padding_side == "right"  # otherwise the end of a row belongs to the context
    _check_room(tokenizer, questions, contexts, settings, describe_row)
    made = tokenizer(
        *((questions, contexts) if question_first else (contexts, questions)),
        truncation="only_second" if question_first else "only_first",
        max_length=settings.max_length,
        stride=settings.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length" if settings.pad else False,
    )
    row_numbers, offsets = made.pop("overflow_to_sample_mapping"), made.pop("offset_mapping")
    context = int(question_first)
    sequences = [made.sequence_ids(number) for number in range(len(row_numbers))]
    is_context = [np.array([part == context for part in parts]) for parts in sequences]
    cls_index = [_find_cls_index(tokenizer, ids) for ids in made["input_ids"]]
    return Windows(dict(made), row_numbers, offsets, is_context, cls_index)


def _find_cls_index(tokenizer: Any, ids: Sequence[int]) -> int:
    """Return the position of the classification token, or of the token that rows begin with."""
    for token in (tokenizer.cls_token_id, tokenizer.bos_token_id):
        if token is not None and token in ids:
            return ids.index(token)
    return 0


def _check_room(
    tokenizer: Any,
    questions: Sequence[str],
    contexts: Sequence[str],
    settings: WindowSettings,
    describe_row: Callable[[int], str],
) -> None:
    """Raise for a question so long that windows over its context would not advance."""
    room = settings.max_length - tokenizer.num_special_tokens_to_add(pair=True)
    lengths = [len(ids) for ids in tokenizer(list(questions), add_special_tokens=False)["input_ids"]]
    for number, length in enumerate(lengths):
        left = room - length
        if left > settings.stride:
            continue
        needed = len(tokenizer(contexts[number], add_special_tokens=False)["input_ids"])
        if needed > max(left, 0):
            raise DataError(
                what=f"{describe_row(number)}: the question has {length} tokens",
                why=f"of {settings.max_length} (--max_seq_length) they leave {max(left, 0)} for the context, which "
                f"has {needed}; windows over it share {settings.stride} (--doc_stride)",
                fix="increase --max_seq_length, lower --doc_stride, or remove the row",
            )
