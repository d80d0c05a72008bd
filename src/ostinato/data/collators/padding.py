"""The collator for rows of different lengths that a tokenizer knows how to pad."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...core.errors import DataError
from ..collate_errors import unpaddable
from ..dataset_errors import Rows, told

_PAD_ADVICE = "Asking-to-pad-a-fast-tokenizer"
_OPTIONS = {"padding", "max_length", "pad_to_multiple_of", "return_tensors"}  # that the collator passes to `pad`


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


def pads_rows(processing_class: Any) -> bool:
    """Tell whether `pad` pads rows, as that of a tokenizer or a feature extractor does.

    That of an image processor takes images and sizes, and one that takes just anything (`*args`) hands it to a part
    of its own: rows for these are of one shape already.
    """
    pad = getattr(processing_class, "pad", None)
    try:
        signature = inspect.signature(pad)  # type: ignore[arg-type]
        signature.bind([], **dict.fromkeys(_OPTIONS))
    except (TypeError, ValueError):
        return False
    rows, *others = signature.parameters.values()
    named = {other.name for other in others if other.kind is not other.VAR_KEYWORD}
    return rows.kind is not rows.VAR_POSITIONAL and ("padding" in named or named <= _OPTIONS)


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
