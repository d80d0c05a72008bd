"""The collator for rows of different lengths that a tokenizer knows how to pad."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...core.errors import DataError
from ..diagnosis import unpaddable
from ..mistakes import Rows, told

_PAD_ADVICE = "Asking-to-pad-a-fast-tokenizer"


@dataclass
class DataCollatorWithPadding:
    """Let the tokenizer pad the rows of a batch to one length. `label` and `label_ids` become `labels`.

    The tokenizer is anything with transformers' `pad`. `padding` is True (to the longest row), "max_length" or False.

    >>> collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)  # doctest: +SKIP
    """

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def __call__(self, features: list[Any]) -> Any:
        batch = pad_quietly(
            self.tokenizer,
            features,
            collator=type(self).__name__,
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=self.return_tensors,
        )
        for name in ("label", "label_ids"):
            if name in batch:
                batch["labels"] = batch[name]
                del batch[name]
        return batch


def pad_quietly(
    tokenizer: Any, rows: Any, *, collator: str = "the tokenizer", choices: int = 1, **options: Any
) -> Any:
    """`tokenizer.pad` without the advice to tokenize and pad in one call: a collator cannot follow it.

    If it fails, and the reason can be seen from the rows or the tokenizer, the error tells it. With `choices` so many
    neighbours make one row of the batch.
    """
    try:
        with _advice_given(tokenizer):
            return tokenizer.pad(rows, **options)
    except Exception as error:

        def tell(names: Rows) -> DataError | None:
            names = names if choices == 1 else names.repeated(choices)
            return unpaddable(tokenizer, rows, names, collator=collator, padding=options.get("padding", True))

        known = told(tell)
        if known is None:
            raise
        raise known from error


@contextmanager
def _advice_given(tokenizer: Any) -> Iterator[None]:
    """Tokenizers that advise note that they did; say so for the time of the call, then put the note back."""
    notes = getattr(tokenizer, "deprecation_warnings", None)
    if not isinstance(notes, dict):
        yield
        return
    before = notes.get(_PAD_ADVICE, False)
    notes[_PAD_ADVICE] = True
    try:
        yield
    finally:
        notes[_PAD_ADVICE] = before
