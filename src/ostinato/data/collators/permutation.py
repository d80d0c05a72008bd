"""The collator for permutation language modeling (XLNet): which tokens are predicted, and which tokens see which.

Spans are chosen as XLNet does: a span of 1 to `max_span_length` tokens at a random offset inside a stretch of
`span / plm_probability` tokens, stretch after stretch. The factorization order is drawn for the first half of the row,
and the second half repeats it, so that a row used as its own memory reveals nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...core.errors import ConfigError
from ..dataset_errors import RowsError, build_rows_error
from .token_rows import DataCollatorMixin, check_mask_token, find_special_tokens, read_ids, stack_ids


@dataclass(frozen=True)
class _RandomSource:
    """The sources of random numbers."""

    span: Callable[[int], int]
    """From 1 to the longest span."""
    offset: Callable[[int], int]
    """From 0 to the number of places, excluded."""
    order: Callable[[int], np.ndarray]
    """A permutation of so many."""


def _shuffle_numbers(size: int) -> np.ndarray:
    # A matrix with one row per number: the draws depend on the number of dimensions.
    numbers = np.arange(size).reshape(-1, 1).repeat(2, axis=1)
    np.random.shuffle(numbers)
    return numbers[:, 0]


_TORCH = _RandomSource(
    span=lambda longest: int(torch.randint(1, longest + 1, (1,))),
    offset=lambda places: int(torch.randint(places, (1,))),
    order=lambda size: torch.randperm(size).numpy(),
)
# random.randint includes its upper end. transformers draws from these ranges, and seeded runs should be equal.
_NUMPY = _RandomSource(
    span=lambda longest: random.randint(1, longest + 1),
    offset=lambda places: random.randint(0, places),
    order=_shuffle_numbers,
)


@dataclass
class DataCollatorForPermutationLanguageModeling(DataCollatorMixin):
    """Hide spans of tokens and draw the order in which they are predicted. Rows need an even length.

    The batch has `input_ids`, `perm_mask` (1: may not be seen), `target_mapping` and `labels`.

    Args:
        tokenizer: Must have a mask token.
        plm_probability: The share of tokens that are predicted.
        max_span_length: The largest number of tokens in a span.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.

    Raises:
        ConfigError: `plm_probability` or `max_span_length` is out of range.

    >>> collator = DataCollatorForPermutationLanguageModeling(tokenizer, plm_probability=1 / 6)  # doctest: +SKIP
    """

    tokenizer: Any
    plm_probability: float = 1 / 6
    max_span_length: int = 5
    return_tensors: str = "pt"

    def __post_init__(self) -> None:
        if not 0 < self.plm_probability <= 1:
            raise ConfigError(
                what=f"plm_probability={self.plm_probability} is not a share of tokens",
                why="it is the share of tokens that are predicted",
                fix="use a number above 0 and up to 1; XLNet used 1/6",
            )
        if self.max_span_length < 1:
            raise ConfigError(
                what=f"max_span_length={self.max_span_length} is not a length",
                why="a span has at least one token",
                fix="use 1 or more; XLNet used 5",
            )

    def torch_call(self, examples: Any) -> dict[str, Any]:
        """Collate to torch tensors."""
        return self._name_parts(self.torch_mask_tokens(self._stack_ids(examples, "pt")))

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate to numpy arrays."""
        return self._name_parts(self.numpy_mask_tokens(self._stack_ids(examples, "np")))

    def torch_mask_tokens(self, inputs: Any) -> tuple[Any, Any, Any, Any]:
        """Return the inputs with hidden spans, perm_mask, target_mapping and labels. Draws from torch's generator.

        Args:
            inputs: The ids of a batch, as a tensor.

        Returns:
            The inputs, `perm_mask`, `target_mapping` and the labels.
        """
        inputs, *others = self._mask_spans(inputs.numpy(), _TORCH)
        return torch.from_numpy(inputs), *(torch.from_numpy(other) for other in others)  # type: ignore[return-value]

    def numpy_mask_tokens(self, inputs: Any) -> tuple[Any, Any, Any, Any]:
        """Return the same for arrays. Draws from `random` (spans) and `numpy.random` (orders).

        Args:
            inputs: The ids of a batch, as an array.

        Returns:
            The inputs, `perm_mask`, `target_mapping` and the labels.
        """
        return self._mask_spans(inputs, _NUMPY)

    def _stack_ids(self, rows: Any, kind: str) -> Any:
        if isinstance(rows[0], Mapping):
            rows = [read_ids(rows, place) for place in range(len(rows))]
        ids, _ = stack_ids(self.tokenizer, rows, kind)
        return ids.long() if kind == "pt" else ids.astype(np.int64)

    @staticmethod
    def _name_parts(parts: tuple[Any, Any, Any, Any]) -> dict[str, Any]:
        return dict(zip(("input_ids", "perm_mask", "target_mapping", "labels"), parts, strict=True))

    def _mask_spans(
        self, ids: np.ndarray, draws: _RandomSource
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        check_mask_token(self.tokenizer, fix="add one: tokenizer.add_special_tokens({'mask_token': '[MASK]'})")
        rows, length = ids.shape
        if length % 2:
            raise build_rows_error(
                lambda names: RowsError(
                    what=f"rows of the {names.source} have {length} tokens in their batch, an odd number",
                    why="the second half of a row repeats the order of its first half, so the halves must be equal",
                    fix="truncate or pad the rows to an even length in the data set",
                )
            )
        special = find_special_tokens(self.tokenizer, ids)
        if self.tokenizer.pad_token_id is not None:
            special |= ids == self.tokenizer.pad_token_id
        chosen = np.array([self._draw_spans(length, draws) for _ in range(rows)]) & ~special
        labels = np.where(chosen, ids, -100).astype(ids.dtype)
        ids[chosen] = self.tokenizer.mask_token_id
        perm_mask = np.stack(
            [_build_perm_mask(hidden, apart, draws) for hidden, apart in zip(chosen, special, strict=True)]
        )
        target_mapping = np.broadcast_to(np.eye(length, dtype=np.float32), (rows, length, length)).copy()
        return ids, perm_mask, target_mapping, labels

    def _draw_spans(self, length: int, draws: _RandomSource) -> np.ndarray:
        """Return which positions of a row are in a span."""
        chosen = np.zeros(length, dtype=bool)
        begin = 0
        while begin < length:
            span = draws.span(self.max_span_length)
            stretch = int(span / self.plm_probability)
            start = begin + draws.offset(stretch - span + 1)
            chosen[start : start + span] = True
            begin += stretch
        return chosen


def _build_perm_mask(hidden: np.ndarray, special: np.ndarray, draws: _RandomSource) -> np.ndarray:
    """Return a matrix with 1 at [i, j] where i may not see j: j is hidden and does not come before i in the order."""
    half = draws.order(len(hidden) // 2)
    order = np.concatenate([half, half + len(half)])
    order[~hidden & ~special] = -1  # visible tokens come first: they see no hidden token
    return ((order[:, None] <= order[None, :]) & hidden[None, :]).astype(np.float32)
