"""The collator for rows with one label per token: inputs and labels are padded to the same length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .tokens import (
    DataCollatorMixin,
    filled,
    label_column,
    label_lists,
    pad_rows,
    padding_side,
    whole_numbers,
    without,
)


@dataclass
class DataCollatorForTokenClassification(DataCollatorMixin):
    """Let the tokenizer pad the inputs, and fill up `label` or `labels` on the same side with `label_pad_token_id`.

    >>> collator = DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=8)  # doctest: +SKIP
    """

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    def torch_call(self, examples: Any) -> Any:
        """Collate to torch tensors."""
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> Any:
        """Collate to numpy arrays."""
        return self._collate(examples, "np")

    def _collate(self, rows: Any, kind: str) -> Any:
        name = label_column(rows[0])
        labels = label_lists(rows, name) if name in rows[0] else None
        batch = pad_rows(
            self.tokenizer,
            without(rows, name),
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=kind,
        )
        if labels is not None:
            length, side = batch["input_ids"].shape[1], padding_side(self.tokenizer)
            batch[name] = whole_numbers(
                [filled(row, length, self.label_pad_token_id, side) for row in labels],
                kind,
                what=f"{name!r} has more labels than there are tokens",
                fix="align the labels with the tokens: one label per token, -100 for tokens that do not count",
            )
        return batch
