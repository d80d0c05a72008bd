"""The collator for pairs of sequences: inputs and labels are each padded to their own length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..collate_errors import find_column_fault
from ..dataset_errors import RaggedError, RowNames, RowsError
from .token_rows import (
    TokenCollator,
    find_label_column,
    find_padding_side,
    is_unpadded,
    pad_list,
    read_label_lists,
    remove_columns,
    round_up,
    to_int64,
)


@dataclass
class DataCollatorForSeq2Seq(TokenCollator):
    """Pad the inputs with the tokenizer, and the labels with `label_pad_token_id`. `label` becomes `labels`.

    A model that can make decoder inputs from labels (`prepare_decoder_input_ids_from_labels`) makes them: label
    smoothing needs them, because it removes the labels from the model's inputs.

    Args:
        tokenizer: Pads the inputs.
        model: The model that may make decoder inputs.
        padding: True (to the longest row), "max_length" or False.
        max_length: The length for `padding="max_length"`, also of labels. Otherwise labels get the length of the
            longest.
        pad_to_multiple_of: The multiple to which lengths are rounded up.
        label_pad_token_id: The value with which labels are padded.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

    >>> collator = DataCollatorForSeq2Seq(tokenizer, model=model, pad_to_multiple_of=8)  # doctest: +SKIP
    """

    tokenizer: Any
    model: Any = None
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = -100
    return_tensors: str = "pt"

    def _collate(self, rows: Sequence[Mapping[str, Any]], kind: str) -> Any:
        name = find_label_column(rows)
        labels = self._pad_labels(rows, name, kind)
        batch = self._pad(remove_columns(rows, name), kind)
        batch["labels"] = labels  # None if rows have no labels: the model is then called with labels=None
        prepare = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        if labels is not None and prepare is not None:
            batch["decoder_input_ids"] = prepare(labels=labels)
        return batch

    def _pad_labels(self, rows: Sequence[Mapping[str, Any]], name: str, kind: str) -> Any:
        """Return the labels in one tensor, or None if the rows have none."""
        if all(row.get(name) is None for row in rows) or name not in rows[0]:
            return None
        labels = read_label_lists(rows, name)
        if not is_unpadded(self.padding):
            length, side = self._find_label_length(labels), find_padding_side(self.tokenizer)
            labels = [pad_list(row, length, self.label_pad_token_id, side) for row in labels]
        return to_int64(labels, kind, build_error=partial(_build_label_error, rows, labels, name))

    def _find_label_length(self, labels: list[list[Any]]) -> int:
        """Return the length to which labels are padded."""
        if getattr(self.padding, "value", self.padding) == "max_length" and self.max_length is not None:
            return round_up(self.max_length, self.pad_to_multiple_of)
        return round_up(max(len(row) for row in labels), self.pad_to_multiple_of)


def _build_label_error(
    found: Sequence[Mapping[str, Any]], labels: list[list[Any]], name: str, rows: RowNames
) -> RowsError:
    """Return the error for labels that are not numbers, or differ in length."""
    known = find_column_fault(found, rows, [name], collator="DataCollatorForSeq2Seq", padded=[name])
    longest = max(range(len(labels)), key=lambda number: len(labels[number]))
    shortest = min(range(len(labels)), key=lambda number: len(labels[number]))
    return known or RaggedError(
        what=f"the {name!r} of the {rows.source} differ in length after padding",
        why=f"{rows.name(longest)} has {len(labels[longest])}, {rows.name(shortest)} has {len(labels[shortest])}",
        fix="truncate the labels to max_length in the data set, or use padding=True",
    )
