"""The collator for rows with one label per token: inputs and labels are padded to the same length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...core.notices import note_once
from ..collate_errors import build_misaligned_labels_error, find_column_fault
from ..dataset_errors import RowNames, RowsError
from .token_rows import (
    TokenCollator,
    find_label_column,
    find_padding_side,
    pad_list,
    read_label_lists,
    remove_columns,
    to_int64,
)


@dataclass
class DataCollatorForTokenClassification(TokenCollator):
    """Pad the inputs with the tokenizer, and `label` or `labels` on the same side with `label_pad_token_id`.

    Args:
        tokenizer: Pads the inputs.
        padding: True (to the longest row), "max_length" or False.
        max_length: The length for `padding="max_length"`.
        pad_to_multiple_of: The multiple to which lengths are rounded up.
        label_pad_token_id: The value with which labels are padded.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

    >>> collator = DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=8)  # doctest: +SKIP
    """

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    def _collate(self, rows: Any, kind: str) -> Any:
        name = find_label_column(rows)
        labels = read_label_lists(rows, name) if name in rows[0] else None
        batch = self._pad(remove_columns(rows, name), kind)
        if labels is not None:
            length, side = batch["input_ids"].shape[1], find_padding_side(self.tokenizer)
            batch[name] = to_int64(
                [pad_list(row, length, self.label_pad_token_id, side) for row in labels],
                kind,
                build_error=partial(_build_label_error, rows, labels, name, length),
            )
            _report_filled_labels(rows, labels)
        return batch


def _build_label_error(
    found: Sequence[Any], labels: list[list[Any]], name: str, length: int, rows: RowNames
) -> RowsError:
    """Return the error for labels that are not numbers, or more than there are tokens."""
    known = find_column_fault(found, rows, [name], collator="DataCollatorForTokenClassification", padded=[name])
    place = max(range(len(labels)), key=lambda number: len(labels[number]))
    return known or build_misaligned_labels_error(
        rows, place, name, len(found[place]["input_ids"]), len(labels[place])
    )


def _report_filled_labels(rows: Sequence[Any], labels: list[list[Any]]) -> None:
    """Report once that a row has more or fewer labels than tokens, which is accepted."""
    for row, own in zip(rows, labels, strict=True):
        if len(own) != len(row["input_ids"]):
            note_once(
                f"a row with {len(row['input_ids'])} tokens has {len(own)} labels: they are used in order and padded "
                "with -100. Labels of words have to be aligned with their sub-words",
                key="labels filled up",
            )
            return
