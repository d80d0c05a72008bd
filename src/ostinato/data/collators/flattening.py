"""The collator without padding: all rows of a batch in one long row, for attention that knows where rows begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ...core.notices import note_once
from ..collate_errors import build_misaligned_labels_error
from ..dataset_errors import MissingColumnError, RowNames, RowsError, build_no_rows_error, build_rows_error
from .default import DefaultDataCollator
from .token_rows import check_kind, check_rows, read_label_lists

_USED = {"input_ids", "labels"}
_UNNEEDED = {"attention_mask", "position_ids"}  # there is no padding; positions are numbered again


class DataCollatorWithFlattening(DefaultDataCollator):
    """Join the rows of a batch to one of shape (1, tokens), without padding.

    The first label of every row becomes `separator_id`: it would be predicted from the previous row.

    Args:
        return_position_ids: Whether the batch has `position_ids`, which start again with every row.
        separator_id: The value of the first label of every row.
        return_flash_attn_kwargs: Whether the batch has the limits of rows that flash attention takes:
            `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q` and `max_length_k`.
        return_seq_idx: Whether the batch has `seq_idx`, the row of each token.
        position_ids_start: The first position of every row.

    >>> DataCollatorWithFlattening()([{"input_ids": [5, 6]}, {"input_ids": [7]}])
    {'input_ids': tensor([[5, 6, 7]]), 'labels': tensor([[-100,    6, -100]]), 'position_ids': tensor([[0, 1, 0]])}
    """

    def __init__(
        self,
        *args: Any,
        return_position_ids: bool = True,
        separator_id: int = -100,
        return_flash_attn_kwargs: bool = False,
        return_seq_idx: bool = False,
        position_ids_start: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.return_position_ids = return_position_ids
        self.separator_id = separator_id
        self.return_flash_attn_kwargs = return_flash_attn_kwargs
        self.return_seq_idx = return_seq_idx
        self.position_ids_start = position_ids_start

    def __call__(
        self, features: list[Any], return_tensors: str | None = None, separator_id: int | None = None
    ) -> dict[str, Any]:
        kind = check_kind(return_tensors or self.return_tensors)
        separator = self.separator_id if separator_id is None else separator_id
        ids = _read_column(features, "input_ids")
        _report_left_out(features[0])
        batch: dict[str, Any] = {
            "input_ids": _concatenate(ids),
            "labels": _concatenate(_build_labels(features, ids, separator)),
        }
        batch |= self._build_positions([len(row) for row in ids])
        if kind == "np":
            return batch
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()
        }

    def _build_positions(self, lengths: list[int]) -> dict[str, Any]:
        """Return where each row begins, in the forms that were requested."""
        found: dict[str, Any] = {}
        if self.return_position_ids:
            found["position_ids"] = _concatenate([np.arange(length) + self.position_ids_start for length in lengths])
        if self.return_seq_idx:
            found["seq_idx"] = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)[None]
        if self.return_flash_attn_kwargs:
            limits = np.cumsum([0, *lengths]).astype(np.int32)
            found |= {"cu_seq_lens_q": limits, "cu_seq_lens_k": limits.copy()}
            found |= {"max_length_q": max(lengths), "max_length_k": max(lengths)}
        return found


def _read_column(rows: Sequence[Mapping[str, Any]], name: str) -> list[np.ndarray]:
    """Return one column of all rows, each as an array."""
    if len(rows) == 0:
        raise build_no_rows_error()
    if not isinstance(rows[0], Mapping):
        check_rows(rows)
    for place, row in enumerate(rows):
        if row.get(name) is None:
            raise build_rows_error(partial(_build_missing_error, name, place))
    return [np.asarray(row[name]) for row in rows]


def _build_missing_error(name: str, place: int, rows: RowNames) -> RowsError:
    return MissingColumnError(
        what=f"{rows.full_name(place)} has no {name!r}",
        why="the rows of a batch are concatenated, so all of them need the same columns",
        fix=f"tokenize the data set so that every row has {name!r}",
    )


def _build_labels(rows: Sequence[Mapping[str, Any]], ids: list[np.ndarray], separator: int) -> list[np.ndarray]:
    """Return the labels, or else the ids, with a separator in place of each row's first."""
    labels = [np.asarray(own) for own in read_label_lists(rows, "labels")] if "labels" in rows[0] else ids
    for number, (own, row) in enumerate(zip(labels, ids, strict=True)):
        if len(own) != len(row):
            raise build_rows_error(partial(_build_misaligned_error, number, len(row), len(own)))
    return [np.concatenate([np.full(min(1, len(own)), separator), own[1:]]) for own in labels]


def _build_misaligned_error(place: int, tokens: int, labels: int, rows: RowNames) -> RowsError:
    return build_misaligned_labels_error(rows, place, "labels", tokens, labels)


def _concatenate(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts).astype(np.int64)[None]


def _report_left_out(row: Mapping[str, Any]) -> None:
    left_out = sorted(set(row) - _USED - _UNNEEDED)
    if left_out:
        note_once(f"flattening keeps input_ids and labels; left out: {', '.join(left_out)}", key="flattening left out")
