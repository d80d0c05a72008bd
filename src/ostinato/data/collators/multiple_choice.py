"""The collator for rows with several choices: every column holds one sequence per choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import DataError
from .tokens import DataCollatorMixin, label_column, pad_rows, whole_numbers, without


@dataclass
class DataCollatorForMultipleChoice(DataCollatorMixin):
    """Pad all choices of all rows to one length: tensors of (rows, choices, length). `label` becomes `labels`.

    >>> collator = DataCollatorForMultipleChoice(tokenizer)  # doctest: +SKIP
    """

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def torch_call(self, examples: Any) -> dict[str, Any]:
        """Collate to torch tensors."""
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate to numpy arrays."""
        return self._collate(examples, "np")

    def _collate(self, rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
        name = label_column(rows[0])
        choices = len(rows[0]["input_ids"])
        padded = pad_rows(
            self.tokenizer,
            [choice for row in without(rows, name) for choice in _choices_of(row, choices)],
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=kind,
        )
        batch = {column: values.reshape(len(rows), choices, -1) for column, values in padded.items()}
        if name in rows[0]:
            batch["labels"] = whole_numbers(_labels_of(rows, name), kind, what="the labels differ", fix="number them")
        return batch


def _choices_of(row: dict[str, Any], choices: int) -> list[dict[str, Any]]:
    """One row per choice."""
    for name, values in row.items():
        count = _count(values)
        if count != choices:
            found = "a single value" if count is None else f"{count} entries"
            raise DataError(
                what=f"column {name!r} has {found} where the first row of the batch has {choices} choices",
                why="every column holds one entry per choice, and all rows of a batch have equally many choices",
                fix=f"leave {name!r} out, or give every row {choices} choices",
            )
    return [{name: values[number] for name, values in row.items()} for number in range(choices)]


def _count(values: Any) -> int | None:
    """How many entries there are; None for a single value."""
    try:
        return len(values)
    except TypeError:
        return None


def _labels_of(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """The labels of the rows; all of them have one."""
    lacking = [number for number, row in enumerate(rows) if row.get(name) is None]
    if lacking:
        raise DataError(
            what=f"row {lacking[0]} of the batch has no {name!r}",
            why="the first row has one",
            fix=f"give every row the number of its right choice in {name!r}, or none of them",
        )
    return [np.asarray(row[name]).tolist() for row in rows]
