"""The collator for rows with several choices: every column holds one sequence per choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..collate_errors import build_no_input_error, find_column_fault, find_odd_leaf
from ..dataset_errors import MissingColumnError, RaggedError, RowNames, RowsError, build_rows_error
from .token_rows import TokenCollator, find_label_column, remove_columns, to_int64


@dataclass
class DataCollatorForMultipleChoice(TokenCollator):
    """Pad all choices of all rows to one length: tensors of (rows, choices, length). `label` becomes `labels`.

    Args:
        tokenizer: Pads the choices.
        padding: True (to the longest choice), "max_length" or False.
        max_length: The length for `padding="max_length"`.
        pad_to_multiple_of: The multiple to which lengths are rounded up.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

    >>> collator = DataCollatorForMultipleChoice(tokenizer)  # doctest: +SKIP
    """

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def _collate(self, rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
        name = find_label_column(rows)
        bare = remove_columns(rows, name)
        choices = _count_entries(bare[0].get("input_ids")) or 0
        each = [choice for place in range(len(bare)) for choice in _split_choices(bare, place, choices)]
        padded = self._pad(each, kind, choices=choices)
        batch = {column: values.reshape(len(rows), choices, -1) for column, values in padded.items()}
        if name in rows[0]:
            batch["labels"] = to_int64(
                _read_labels(rows, name), kind, build_error=partial(_build_label_error, rows, name)
            )
        return batch


def _split_choices(rows: list[dict[str, Any]], place: int, choices: int) -> list[dict[str, Any]]:
    """Return one row per choice."""
    row = rows[place]
    if "input_ids" not in row:
        raise build_rows_error(partial(_build_no_choices_error, rows, place))
    for name, values in row.items():
        if _count_entries(values) != choices:
            raise build_rows_error(partial(_build_choice_count_error, values, name, choices, place))
    if choices == 0 or np.ndim(row["input_ids"][0]) == 0:
        raise build_rows_error(partial(_build_no_choices_error, rows, place))
    return [{name: values[number] for name, values in row.items()} for number in range(choices)]


def _build_no_choices_error(found: list[dict[str, Any]], place: int, rows: RowNames) -> RowsError:
    """Return the error for a row that holds one sequence, or none, instead of several."""
    row = found[place]
    if "input_ids" not in row:
        return build_no_input_error(row, place, rows, "input_ids")
    text = isinstance(find_odd_leaf(row["input_ids"]), str)
    has = "text that was never tokenized" if text else f"one sequence of {len(row['input_ids'])} tokens"
    return RaggedError(
        what=f"{rows.full_name(place)} has no choices: it has {has}",
        why="'input_ids' holds one list of tokens for every choice: [[5, 6], [5, 7], ...]",
        fix="tokenize the question with each choice, or use DataCollatorWithPadding for rows without choices",
    )


def _build_choice_count_error(values: Any, name: str, choices: int, place: int, rows: RowNames) -> RowsError:
    """Return the error for a column that does not have one entry for every choice."""
    count = _count_entries(values)
    entries = "a single value" if count is None else f"{count} entries"
    return RaggedError(
        what=f"column {name!r} of {rows.full_name(place)} has {entries} where {rows.name(0)} has {choices} choices",
        why="every column holds one entry per choice, and all rows of a batch have equally many choices",
        fix=f"leave {name!r} out, or give every row {choices} choices",
    )


def _build_label_error(found: Sequence[Mapping[str, Any]], name: str, rows: RowNames) -> RowsError:
    """Return the error for labels that are not numbers."""
    return find_column_fault(found, rows, [name], collator="DataCollatorForMultipleChoice") or RaggedError(
        what=f"the {name!r} of the {rows.source} are not one number each", fix="number the right choices from 0"
    )


def _count_entries(values: Any) -> int | None:
    """Return the number of entries; None for a single value."""
    try:
        return len(values)
    except TypeError:
        return None


def _read_labels(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the labels of the rows; raise unless every row has one."""
    lacking = [number for number, row in enumerate(rows) if row.get(name) is None]
    if lacking:
        raise build_rows_error(
            lambda names: MissingColumnError(
                what=f"{names.full_name(lacking[0])} has no {name!r}",
                why=f"{names.name(0)}, the first of the batch, has one",
                fix=f"give every row the number of its right choice in {name!r}, or none of them",
            )
        )
    return [np.asarray(row[name]).tolist() for row in rows]
