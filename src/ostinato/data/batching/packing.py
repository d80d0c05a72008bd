"""Packing: concatenate the rows of a batch, so that nothing is padded and no row sees another.

Joined rows are separated by positions that start again with each row, and by any other input of a model's forward that
marks where a row begins. The signature does not show whether the model uses them: `packing_check.py` tests it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ...core.errors import ConfigError, DataError
from ...core.notices import note_once
from ..collate_errors import build_misaligned_labels_error, find_non_row
from ..columns import list_forward_parameters, quote_names, unwrap_model
from ..dataset_errors import (
    MissingColumnError,
    RaggedError,
    RowNames,
    RowsError,
    WrongValueError,
    build_no_rows_error,
    build_rows_error,
    shorten,
)
from .split_by_length import SplitBatch

Mask = Literal["causal", "full"]

IGNORED = -100
LIMITS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")  # the names that flash attention uses
SEPARATORS = ("position_ids", "seq_idx", *LIMITS, "use_cache")

_LABELS = ("labels", "label_ids", "label")
_REBUILT = ("attention_mask", *SEPARATORS)  # the values in rows are valid for a single row only
_ALTERNATIVE = "use split_by_length=True, which saves padding and keeps rows separate"


class PackedBatch(SplitBatch):
    """Several packed rows, each a micro-batch; `places` are the positions of the batch's rows in each of them."""

    def __init__(self, batches: Sequence[dict[str, Any]] = (), places: Sequence[Sequence[int]] = ()) -> None:
        super().__init__(batches)
        self.places = [list(each) for each in places]


@dataclass(frozen=True)
class PackingCollator:
    """Join the rows of a batch to one of shape (1, tokens), without padding. Without labels, the ids are the labels.

    `separators` are the inputs that separate rows, out of `SEPARATORS`; `for_model` chooses those that a model's forward takes.
    The first label of every row becomes -100 where the loss is `shifted`, that is, where each position predicts the
    next label: it would be predicted from the previous row. Other columns with a value for every token are joined as
    well. Positions where a row's `attention_mask` is 0 are padding, and left out.

    With `max_length` the result is a `PackedBatch`: best fit makes as few batches as it can, of at most so many tokens
    each, and no row is divided.

    >>> PackingCollator()([{"input_ids": [5, 6]}, {"input_ids": [7, 8]}])
    {'input_ids': tensor([[5, 6, 7, 8]]), 'labels': tensor([[-100,    6, -100,    8]]), 'position_ids': tensor([[0, 1, 0, 1]])}
    >>> rows = [{"input_ids": [1] * length} for length in (3, 6, 4, 2)]
    >>> PackingCollator(max_length=8)(rows).places
    [[0, 2], [1, 3]]
    """  # noqa: E501

    splits_batches: ClassVar[bool] = True  # returns lists of micro-batches

    max_length: int | None = None
    shifted: bool = True
    separators: Collection[str] = ("position_ids",)
    # A mask of tokens x tokens, for models that separate rows by nothing else: added to the attention scores.
    mask: Mask | None = None
    mask_dtype: torch.dtype = torch.float32
    first_position: int = 0  # of every row: RoBERTa and similar models count from the padding's id + 1
    takes: Collection[str] | None = None  # the named inputs of the model's forward, where they are known

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(
                what=f"max_length={self.max_length} leaves no room for a token",
                why="it is the number of tokens that a packed row may have",
                fix="leave it out for one packed row per batch, or set a value such as max_length=4096",
            )
        unknown = [name for name in self.separators if name not in SEPARATORS]
        if unknown:
            raise ConfigError(
                what=f"separators names {quote_names(unknown)}, which packing cannot compute",
                why=f"rows can be separated by {', '.join(SEPARATORS)}",
                fix="leave it out, or use PackingCollator.for_model(model)",
            )

    @classmethod
    def for_model(
        cls, model: Any, *, max_length: int | None = None, shifted: bool | None = None, mask: Mask | None = None
    ) -> PackingCollator:
        """Return a collator that makes what the model's forward takes, by name or as `**kwargs`.

        With `shifted=None` the model's `loss_type` decides; a model without one is treated as a language model.

        >>> class Model(torch.nn.Module):
        ...     def forward(self, input_ids, position_ids=None, labels=None): ...
        >>> PackingCollator.for_model(Model()).separators
        ('position_ids',)
        """
        named, anything = list_forward_parameters(model), takes_any_keyword(model)
        # Only models that name use_cache keep a cache for generation: to others it is not a mark but one more keyword.
        separators = tuple(name for name in SEPARATORS if name in named or (anything and name != "use_cache"))
        if shifted is None:
            shifted = getattr(unwrap_model(model), "loss_type", None) in (None, "ForCausalLM")
        return cls(max_length, shifted, separators, mask, dtype_of(model), takes=tuple(named))

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any] | PackedBatch:
        tables = self._build_tables(features)
        if self.max_length is None:
            return self._join([table for table in tables if table])
        lengths = [len(table["input_ids"]) if table else 0 for table in tables]
        for place, length in enumerate(lengths):
            if length > self.max_length:
                raise build_rows_error(partial(_build_too_long_error, place, length, self.max_length))
        places = [place for place, table in enumerate(tables) if table]
        bins = best_fit([lengths[place] for place in places], self.max_length)
        chosen = [[places[each] for each in one] for one in bins]
        return PackedBatch([self._join([tables[place] for place in one]) for one in chosen], chosen)

    # ---- rows ----------------------------------------------------------------------------------

    def _build_tables(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, np.ndarray]]:
        """Return the columns of every row that have a value for each of its tokens; none for a row without tokens."""
        if len(rows) == 0:
            raise build_no_rows_error()
        known = build_rows_error(partial(find_non_row, rows))
        if known is not None:
            raise known
        ids = [_read_column(rows, place, "input_ids") for place in range(len(rows))]
        name = next((name for name in _LABELS if any(name in row for row in rows)), None)
        labels = [self._read_labels(rows, place, own, name) for place, own in enumerate(ids)]
        columns = {"input_ids": ids, "labels": labels, **self._read_columns(rows, ids)}
        tables = [
            self._trim_row(row, {name: values[place] for name, values in columns.items()})
            for place, row in enumerate(rows)
        ]
        if not any(tables):
            raise DataError(
                what="no row of the batch has a token",
                why="all input_ids are empty, or the attention_mask is 0 everywhere",
                fix="leave empty rows out of the data set",
            )
        if not all(tables):
            note_once("packing drops rows that have no token", key="packing without tokens")
        return tables

    def _trim_row(self, row: Mapping[str, Any], table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the columns of a row without its padding, and without the label that nothing predicts."""
        real = _find_real_tokens(row, len(table["input_ids"]))
        if real is not None:
            note_once("packing drops tokens whose attention_mask is 0", key="packing unpads")
            table = {name: values[real] for name, values in table.items()}
        if len(table["input_ids"]) == 0:
            return {}
        if self.shifted:
            table["labels"] = np.concatenate([[IGNORED], table["labels"][1:]])
        return table

    def _read_labels(self, rows: Sequence[Any], place: int, ids: np.ndarray, name: str | None) -> np.ndarray:
        if name is None:
            if not self.shifted:
                raise DataError(
                    what="the rows have no 'labels', and the model does not predict the next token",
                    why="input_ids are labels for a language model only; another model would learn to copy them",
                    fix=f"give every row labels, one for each token; to mask tokens at random, {_ALTERNATIVE}",
                )
            return ids
        value = rows[place].get(name)
        if value is not None and not isinstance(value, (list, tuple)) and np.ndim(value) == 0:
            raise build_rows_error(partial(_build_single_label_error, place, name, value))
        labels = _read_column(rows, place, name)
        if len(labels) != len(ids):
            raise build_rows_error(partial(_build_misaligned_error, place, name, len(ids), len(labels)))
        return labels

    def _read_columns(self, rows: Sequence[Mapping[str, Any]], ids: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
        """Return the further columns that can be joined: a number for every token of every row."""
        names = dict.fromkeys(name for row in rows for name in row)
        kept: dict[str, list[np.ndarray]] = {}
        left_out: list[str] = []
        for name in names:
            if name in ("input_ids", *_LABELS, *_REBUILT):
                continue
            arrays = [_to_array(row.get(name)) for row in rows]
            odd = [
                at
                for at, (own, each) in enumerate(zip(ids, arrays, strict=True))
                if each is None or each.shape != own.shape
            ]
            if not odd:
                kept[name] = [each for each in arrays if each is not None]
            elif name in (self.takes or ()):
                raise build_rows_error(
                    partial(_build_per_row_error, odd[0], name, rows[odd[0]].get(name), len(ids[odd[0]]))
                )
            else:
                left_out.append(str(name))
        if left_out:
            note_once(
                f"packing keeps columns with a number for every token; left out: {', '.join(left_out)}",
                key="packing left out",
            )
        return kept

    # ---- batches -------------------------------------------------------------------------------

    def _join(self, tables: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        lengths = [len(table["input_ids"]) for table in tables]
        batch: dict[str, Any] = {
            name: _concatenate([table[name] for table in tables]) for name in tables[0]
        } | self._build_separators(lengths)
        if self.mask is not None:
            batch["attention_mask"] = build_block_mask(lengths, self.mask, self.mask_dtype)
        return batch

    def _build_separators(self, lengths: list[int]) -> dict[str, Any]:
        """Return the requested inputs that separate rows of these lengths."""
        make: dict[str, Callable[[], Any]] = {
            "position_ids": lambda: _concatenate([np.arange(length) + self.first_position for length in lengths]),
            "seq_idx": lambda: torch.from_numpy(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[None]),
            "cu_seq_lens_q": lambda: _build_limits(lengths),
            "cu_seq_lens_k": lambda: _build_limits(lengths),
            "max_length_q": lambda: max(lengths),
            "max_length_k": lambda: max(lengths),
            # With a cache, models read positions that start again as a continued conversation.
            "use_cache": lambda: False,
        }
        return {name: make[name]() for name in SEPARATORS if name in self.separators}


def best_fit(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Return which rows share at most `limit` tokens: from long to short, each row is put where it fits best.

    >>> best_fit([3, 6, 4, 2], 8)
    [[0, 2], [1, 3]]
    """
    bins: list[list[int]] = []
    room: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        fitting = [number for number, free in enumerate(room) if free >= lengths[place]]
        if fitting:
            tightest = min(fitting, key=room.__getitem__)
            bins[tightest].append(place)
            room[tightest] -= lengths[place]
        else:
            bins.append([place])
            room.append(limit - lengths[place])
    return sorted(
        sorted(one) for one in bins
    )  # rows keep their order, so that a run does not depend on how sorting breaks ties


def build_block_mask(lengths: Sequence[int], kind: Mask, dtype: torch.dtype) -> torch.Tensor:
    """Return a mask of tokens x tokens: 0 within a row, very negative between rows and, if causal, for later tokens.

    >>> build_block_mask([1, 2], "full", torch.float32)[0, 0].eq(0).int()
    tensor([[1, 0, 0],
            [0, 1, 1],
            [0, 1, 1]], dtype=torch.int32)
    """
    rows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    together = rows[:, None] == rows[None]
    if kind == "causal":
        together = together.tril()
    mask = torch.full(together.shape, torch.finfo(dtype).min, dtype=dtype)
    return mask.masked_fill_(together, 0.0)[None, None]


# The model -----------------------------------------------------------------------------------------------------------


def takes_any_keyword(model: Any) -> bool:
    """Return whether a model's forward has `**kwargs`."""
    parameters = inspect.signature(unwrap_model(model).forward).parameters.values()
    return any(each.kind is each.VAR_KEYWORD for each in parameters)


def dtype_of(model: Any) -> torch.dtype:
    """Return the number format of a model's weights."""
    floats = (each.dtype for each in model.parameters() if each.is_floating_point())
    return next((each for each in floats if each.itemsize > 1), torch.float32)


# Rows ----------------------------------------------------------------------------------------------------------------


def _to_array(value: Any) -> np.ndarray | None:
    """Return a list, an array or a tensor of numbers as an array; None for anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _read_column(rows: Sequence[Mapping[str, Any]], place: int, name: str) -> np.ndarray:
    """Return a column of one row, which must be a list of numbers."""
    value = rows[place].get(name)
    array = _to_array(value)
    if array is not None and array.size == 0:
        array = array.astype(np.int64)  # numpy makes an empty list an array of floats
    if array is None:
        raise build_rows_error(partial(_build_no_numbers_error, name, place, value))
    if array.ndim != 1:
        raise build_rows_error(partial(_build_shape_error, name, place, array.shape))
    return array


def _find_real_tokens(row: Mapping[str, Any], length: int) -> np.ndarray | None:
    """Return which positions of a row are not padding; None if all are."""
    mask = _to_array(row.get("attention_mask"))
    if mask is None or mask.shape != (length,) or mask.all():
        return None
    return mask.astype(bool)


def _concatenate(parts: Sequence[np.ndarray]) -> torch.Tensor:
    joined = np.concatenate(parts)[None]
    if joined.dtype.kind in "iu":
        joined = joined.astype(np.int64)
    elif joined.dtype == np.float64:
        joined = joined.astype(np.float32)  # Python's floats are float64; models compute in torch's default
    return torch.from_numpy(joined)


def _build_limits(lengths: Sequence[int]) -> torch.Tensor:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)


# Errors --------------------------------------------------------------------------------------------------------------


def _build_no_numbers_error(name: str, place: int, value: Any, rows: RowNames) -> RowsError:
    if value is None:
        return MissingColumnError(
            what=f"{rows.full_name(place)} has no {name!r}",
            why="the rows of a batch are concatenated, so all of them need the same columns",
            fix=f"tokenize the data set so that every row has {name!r}",
        )
    return WrongValueError(
        what=f"{name!r} of {rows.full_name(place)} is {shorten(value)}, not a list of numbers",
        why="packing concatenates tokens, which are numbers",
        fix="tokenize the texts: tokenizer(text, truncation=True)",
    )


def _build_shape_error(name: str, place: int, shape: tuple[int, ...], rows: RowNames) -> RowsError:
    return RaggedError(
        what=f"{name!r} of {rows.full_name(place)} has the shape {shape} instead of (tokens,)",
        why='packing concatenates rows of tokens; tokenizer(text, return_tensors="pt") returns batches of one',
        fix=f"leave return_tensors out of the tokenizer call in the data set, or take row[{name!r}][0]",
    )


def _build_single_label_error(place: int, name: str, value: Any, rows: RowNames) -> RowsError:
    where = f"{name!r} of {rows.full_name(place)}"
    return RaggedError(
        what=f"{where} is one value for the whole row ({shorten(value)}), which cannot be packed",
        why="packing concatenates rows, and the model has one output for every token, none for a row",
        fix=_ALTERNATIVE,
    )


def _build_misaligned_error(place: int, name: str, tokens: int, labels: int, rows: RowNames) -> RowsError:
    known = build_misaligned_labels_error(rows, place, name, tokens, labels)
    return RaggedError(
        what=known.what,
        why="packed rows need a label for every token",
        fix=f"align them, with -100 for tokens that do not count; for labels of another kind {_ALTERNATIVE}",
    )


def _build_per_row_error(place: int, name: str, value: Any, tokens: int, rows: RowNames) -> RowsError:
    has = "is missing" if value is None else f"is {shorten(value)}"
    return RaggedError(
        what=f"{name!r} of {rows.full_name(place)} {has}, for {tokens} tokens: it cannot be packed",
        why="the model takes it, and packing needs a number for every token",
        fix=f"leave the column out, or {_ALTERNATIVE}",
    )


def _build_too_long_error(place: int, length: int, limit: int, rows: RowNames) -> RowsError:
    return RaggedError(
        what=f"{rows.full_name(place)} has {length} tokens, and a packed row may have {limit}",
        why="packing never splits a row",
        fix=f"tokenize with truncation=True, max_length={limit}, or raise the packing's max_length to {length}",
    )
