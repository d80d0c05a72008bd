"""Shared parts of the collators for token rows: padding, labels of different lengths, special tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ...core.errors import ConfigError, NotSupportedError
from ..collate_errors import (
    ONLY_NUMBERS,
    build_no_input_error,
    build_not_a_row_error,
    build_unlisted_labels_error,
    find_non_row,
    find_odd_leaf,
)
from ..dataset_errors import RowNames, RowsError, build_no_pad_token_error, build_no_rows_error, build_rows_error
from .padding import pad_quietly

_UNPADDED = (False, "do_not_pad")


class DataCollatorMixin:
    """A collator with one method for torch tensors and one for numpy arrays.

    >>> class Lengths(DataCollatorMixin):
    ...     def torch_call(self, examples):
    ...         return {"lengths": torch.tensor([len(row) for row in examples])}
    >>> Lengths()([[1, 2], [3]])
    {'lengths': tensor([2, 1])}
    """

    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        kind = check_kind(return_tensors or self.return_tensors)
        if len(features) == 0:
            raise build_no_rows_error()
        return self.torch_call(features) if kind == "pt" else self.numpy_call(features)

    def torch_call(self, examples: Any) -> Any:
        """Collate to torch tensors.

        Args:
            examples: The rows.

        Returns:
            The batch.

        Raises:
            NotSupportedError: The collator does not override it.
        """
        raise NotSupportedError(
            what=f"{type(self).__name__} does not make torch tensors",
            why="it has no torch_call",
            fix="define torch_call(self, examples), or use return_tensors='np'",
        )

    def numpy_call(self, examples: Any) -> Any:
        """Collate to numpy arrays.

        Args:
            examples: The rows.

        Returns:
            The batch.

        Raises:
            NotSupportedError: The collator does not override it.
        """
        raise NotSupportedError(
            what=f"{type(self).__name__} does not make numpy arrays",
            why="it has no numpy_call",
            fix="define numpy_call(self, examples), or use return_tensors='pt'",
        )


class TokenCollator(DataCollatorMixin):
    """A collator whose torch and numpy batches differ only in the kind of their tensors.

    A subclass defines `_collate(rows, kind)`, and the options for padding its rows.
    """

    tokenizer: Any
    padding: Any = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None

    def torch_call(self, examples: Any) -> Any:
        """Collate to torch tensors."""
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> Any:
        """Collate to numpy arrays."""
        return self._collate(examples, "np")

    def _collate(self, rows: Any, kind: str) -> Any:
        raise NotImplementedError

    def _pad(self, rows: Any, kind: str, **more: Any) -> Any:
        """Return the inputs of the rows, padded to one length."""
        return pad_rows(
            self.tokenizer,
            rows,
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=kind,
            **more,
        )


def check_kind(return_tensors: str) -> str:
    """Return 'pt' or 'np'; raise for anything else."""
    if return_tensors not in ("pt", "np"):
        raise NotSupportedError(
            what=f"return_tensors={return_tensors!r} is not available",
            why="batches are made of torch tensors or numpy arrays",
            fix="use return_tensors='pt' or return_tensors='np'",
        )
    return return_tensors


# Padding -------------------------------------------------------------------------------------------------------------


def pad_rows(tokenizer: Any, rows: Any, *, padding: Any = True, **options: Any) -> Any:
    """Pad with the tokenizer, after a check that it can."""
    if not is_unpadded(padding):
        check_pad_token(tokenizer)
    return pad_quietly(tokenizer, rows, padding=padding, **options)


def is_unpadded(padding: Any) -> bool:
    """Return whether `padding` turns padding off: False, "do_not_pad" or the enum member of that value."""
    return getattr(padding, "value", padding) in _UNPADDED


def check_pad_token(tokenizer: Any) -> None:
    """Raise if a tokenizer has the attribute `pad_token` but no pad token; one without the attribute may still pad."""
    if getattr(tokenizer, "pad_token", "") is None:
        raise build_no_pad_token_error(tokenizer)


def check_mask_token(tokenizer: Any, *, fix: str) -> None:
    """Raise if a tokenizer has no mask token to replace the masked ones."""
    if getattr(tokenizer, "mask_token", None) is None:
        raise ConfigError(
            what=f"{type(tokenizer).__name__} has no mask token",
            why="tokens to predict are replaced by the mask token",
            fix=fix,
        )


def find_padding_side(tokenizer: Any) -> str:
    """Return the side on which the tokenizer pads short rows."""
    return getattr(tokenizer, "padding_side", "right")


def pad_list(values: list[Any], length: int, filler: Any, side: str) -> list[Any]:
    """Return the values, filled up to a length on one side."""
    gap = [filler] * (length - len(values))
    return values + gap if side == "right" else gap + values


def round_up(length: int, multiple: int | None) -> int:
    """Return the length, or the next multiple above it."""
    return length if not multiple else -(-length // multiple) * multiple


def stack_ids(tokenizer: Any, rows: Sequence[Any], kind: str, multiple: int | None = None) -> tuple[Any, np.ndarray]:
    """Return plain rows of ids as one matrix, and which of its positions are not padding."""
    try:
        lengths = [len(row) for row in rows]
    except TypeError as error:
        raise build_rows_error(partial(_build_no_sequence_error, rows)) from error
    if isinstance(rows[0], str):  # numpy would convert text to a number
        raise build_rows_error(partial(_build_no_sequence_error, rows))
    length = round_up(max(lengths), multiple)
    side = find_padding_side(tokenizer)
    real = np.array([pad_list([True] * own, length, False, side) for own in lengths])
    if not real.all():
        check_pad_token(tokenizer)
    ids = np.full(real.shape, 0 if real.all() else tokenizer.pad_token_id, dtype=_choose_id_type(rows[0], kind))
    try:
        for line, place, row in zip(ids, real, rows, strict=True):
            line[place] = np.asarray(row)
    except (TypeError, ValueError) as error:
        raise build_rows_error(partial(_build_no_sequence_error, rows)) from error
    return (torch.from_numpy(ids) if kind == "pt" else ids), real


def read_ids(rows: Sequence[Any], place: int) -> Any:
    """Return the ids of a row that is a mapping."""
    try:
        return rows[place]["input_ids"]
    except (KeyError, TypeError) as error:
        raise build_rows_error(partial(_build_no_ids_error, rows, place)) from error


def _build_no_ids_error(found: Sequence[Any], place: int, rows: RowNames) -> RowsError:
    return find_non_row(found, rows) or build_no_input_error(found[place], place, rows, "input_ids")


def _build_no_sequence_error(found: Sequence[Any], rows: RowNames) -> RowsError:
    """Return the error for the first row that is not a sequence of ids."""
    odd = [place for place, row in enumerate(found) if np.ndim(row) != 1 or find_odd_leaf(row) is not ONLY_NUMBERS]
    place = odd[0] if odd else 0
    return build_not_a_row_error(found[place], place, rows)


def _choose_id_type(row: Any, kind: str) -> Any:
    """Return the type of ids: int64, but torch tensors keep theirs in a torch batch, and arrays in a numpy batch."""
    if isinstance(row, torch.Tensor) and kind == "pt":
        return row.numpy().dtype
    return row.dtype if isinstance(row, np.ndarray) and kind == "np" else np.int64


# Labels --------------------------------------------------------------------------------------------------------------


def find_label_column(rows: Sequence[Any]) -> str:
    """Return the column that holds the labels: `label` where there is one, otherwise `labels`."""
    if not isinstance(rows[0], Mapping):
        check_rows(rows)
    return "label" if "label" in rows[0] else "labels"


def remove_columns(rows: Sequence[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Return the rows without some columns."""
    try:
        return [{name: value for name, value in row.items() if name not in names} for row in rows]
    except AttributeError:
        check_rows(rows)
        raise


def check_rows(rows: Sequence[Any]) -> None:
    """Raise the error for the first row that is not a dict, if there is one."""
    known = build_rows_error(partial(find_non_row, rows))
    if known is not None:
        raise known


def read_label_lists(rows: Sequence[Mapping[str, Any]], name: str) -> list[list[Any]]:
    """Return the labels of every row as lists."""
    labels = []
    for number, row in enumerate(rows):
        values = row.get(name) if isinstance(row, Mapping) else None
        if values is None or np.ndim(values) == 0:
            raise build_rows_error(partial(build_unlisted_labels_error, rows, name, number))
        labels.append(values.tolist() if isinstance(values, (torch.Tensor, np.ndarray)) else list(values))
    return labels


def to_int64(values: list[Any], kind: str, *, build_error: Callable[[RowNames], RowsError]) -> Any:
    """Return lists of one length as int64; if they are not, raise the error that `build_error` returns."""
    if len({len(row) for row in values if isinstance(row, list)}) > 1:
        raise build_rows_error(build_error)
    try:
        array = np.array(values).astype(np.int64)
    except (TypeError, ValueError) as error:
        raise build_rows_error(build_error) from error
    return torch.from_numpy(array) if kind == "pt" else array


# Special tokens ------------------------------------------------------------------------------------------------------


def find_special_tokens(tokenizer: Any, ids: Any) -> np.ndarray:
    """Return where the special tokens are, padding included."""
    get_mask = getattr(tokenizer, "get_special_tokens_mask", None)
    if get_mask is None:
        return np.isin(np.asarray(ids), list(tokenizer.all_special_ids))
    return np.array([get_mask(row, already_has_special_tokens=True) for row in ids.tolist()], dtype=bool)
