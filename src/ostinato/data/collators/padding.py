"""The collator for rows of different lengths, which a tokenizer pads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...core.errors import DataError
from ..collate_errors import find_padding_fault
from ..dataset_errors import RowNames, build_rows_error

_PAD_ADVICE = "Asking-to-pad-a-fast-tokenizer"
_OPTIONS = {"padding", "max_length", "pad_to_multiple_of", "return_tensors"}  # what the collator passes to `pad`


@dataclass
class DataCollatorWithPadding:
    """Pad the rows of a batch to one length with the tokenizer. `label` and `label_ids` become `labels`.

    Args:
        tokenizer: Any object with transformers' `pad`.
        padding: True (to the longest row), "max_length" or False.
        max_length: The length for `padding="max_length"`.
        pad_to_multiple_of: The multiple to which lengths are rounded up.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

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


def can_pad_rows(processing_class: Any) -> bool:
    """Return whether `pad` pads rows, as that of a tokenizer or a feature extractor does.

    The `pad` of an image processor takes images and sizes, and a `pad` that takes any arguments (`*args`) passes them
    to an inner part: rows for these have one shape already. A `pad(rows, **options)`, which names no option, pads rows
    if the object names the columns that it makes, as a tokenizer does (`model_input_names`).
    """
    pad = getattr(processing_class, "pad", None)
    try:
        signature = inspect.signature(pad)  # type: ignore[arg-type]
        signature.bind([], **dict.fromkeys(_OPTIONS))
    except (TypeError, ValueError):
        return False
    rows, *others = signature.parameters.values()
    named = {other.name for other in others if other.kind is not other.VAR_KEYWORD}
    if rows.kind is rows.VAR_POSITIONAL or not ("padding" in named or named <= _OPTIONS):
        return False
    return bool(named) or bool(getattr(processing_class, "model_input_names", None))


def pad_quietly(
    tokenizer: Any, rows: Any, *, collator: str = "the tokenizer", choices: int = 1, **options: Any
) -> Any:
    """Call `tokenizer.pad` without its advice to tokenize and pad in one call, which a collator cannot follow.

    If it fails, and the rows or the tokenizer show the reason, the error states it. With `choices`, so many
    neighbours make one row of the batch.
    """
    try:
        with _suppress_pad_advice(tokenizer):
            return tokenizer.pad(rows, **options)
    except Exception as error:

        def build_error(names: RowNames) -> DataError | None:
            names = names if choices == 1 else names.repeat(choices)
            return find_padding_fault(tokenizer, rows, names, collator=collator, padding=options.get("padding", True))

        known = build_rows_error(build_error)
        if known is None:
            raise
        raise known from error


@contextmanager
def _suppress_pad_advice(tokenizer: Any) -> Iterator[None]:
    """Mark the tokenizer's advice as given during the call, which suppresses it; restore the mark at the end."""
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
