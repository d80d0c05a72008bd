"""The collator for language modeling: the targets are all next tokens (causal), or hidden tokens (masked)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from ...core.errors import ConfigError
from ...core.notices import note_once
from ..dataset_errors import RowsError, build_rows_error
from .token_rows import (
    TokenCollator,
    check_mask_token,
    find_padding_side,
    find_special_tokens,
    pad_list,
    remove_columns,
    stack_ids,
)

_IGNORED = -100


@dataclass
class DataCollatorForLanguageModeling(TokenCollator):
    """Pad the rows and make `labels` from their tokens. Rows are mappings, or plain sequences of ids.

    With `mlm=False` the labels are the tokens, and -100 where a row was padded. Padding is recognised by its position,
    not by its id: where the pad token is also the end-of-text token, the end of a text is learned.

    With `mlm=True` a share of the tokens is predicted: some become the mask token, some a random one, the rest stay.

    Args:
        tokenizer: Pads the rows.
        mlm: Whether hidden tokens are predicted (masked), and not every next token (causal).
        whole_word_mask: Whether all tokens of a word are hidden together; the rows then need an `offset_mapping`.
        mlm_probability: The share of tokens that are predicted.
        mask_replace_prob: The share of these that become the mask token.
        random_replace_prob: The share of these that become a random token. The rest are not changed.
        pad_to_multiple_of: The multiple to which lengths are rounded up.
        return_tensors: "pt" for torch tensors, "np" for numpy arrays.
        seed: The seed of a generator that belongs to the collator (in a worker process: `seed` plus the number of the
            worker). None: random numbers come from the global generator of torch or numpy.

    Raises:
        ConfigError: The tokenizer has no mask token for `mlm=True`, a share is not between 0 and 1, the two
            replacement shares exceed 1 together, or `whole_word_mask` is set with `mlm=False`.

    >>> collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)  # doctest: +SKIP
    """

    tokenizer: Any
    mlm: bool = True
    whole_word_mask: bool = False
    mlm_probability: float | None = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None
    _own_generators: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mlm:
            check_mask_token(
                self.tokenizer,
                fix="pass mlm=False for causal language modeling, or add one: "
                "tokenizer.add_special_tokens({'mask_token': '[MASK]'})",
            )
            _check_share("mlm_probability", self.mlm_probability)
        self._check_replacements()

    def _check_replacements(self) -> None:
        _check_share("mask_replace_prob", self.mask_replace_prob)
        _check_share("random_replace_prob", self.random_replace_prob)
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise ConfigError(
                what=f"mask_replace_prob={self.mask_replace_prob} and random_replace_prob={self.random_replace_prob} "
                "exceed 1 together",
                why="they are shares of the same tokens",
                fix="lower one of them; BERT used 0.8 and 0.1",
            )
        if not self.whole_word_mask:
            return
        if not self.mlm:
            raise ConfigError(
                what="whole_word_mask=True has no effect with mlm=False",
                why="causal language modeling masks no tokens",
                fix="set mlm=True, or leave whole_word_mask out",
            )
        if self.mask_replace_prob < 1:
            note_once("whole_word_mask replaces every chosen token by the mask token: mask_replace_prob is set to 1")
        self.mask_replace_prob, self.random_replace_prob = 1.0, 0.0

    def torch_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any = None, offset_mapping: Any = None
    ) -> tuple[Any, Any]:
        """Hide tokens of `inputs` (in place), and return the inputs and the labels.

        Args:
            inputs: The ids of a batch, as a tensor; changed in place.
            special_tokens_mask: What is never hidden; by default the special tokens of the tokenizer.
            offset_mapping: The offsets of the tokens, from which words follow; only for `whole_word_mask=True`.

        Returns:
            The inputs and the labels, which are -100 wherever nothing was hidden.
        """
        return self._mask_tokens(inputs, special_tokens_mask, offset_mapping, _TorchRandom(self._get_generator("pt")))

    def numpy_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any = None, offset_mapping: Any = None
    ) -> tuple[Any, Any]:
        """Hide tokens of an array (in place), and return the inputs and the labels.

        Args:
            inputs: The ids of a batch, as an array; changed in place.
            special_tokens_mask: What is never hidden; by default the special tokens of the tokenizer.
            offset_mapping: The offsets of the tokens, from which words follow; only for `whole_word_mask=True`.

        Returns:
            The inputs and the labels, which are -100 wherever nothing was hidden.
        """
        return self._mask_tokens(inputs, special_tokens_mask, offset_mapping, _NumpyRandom(self._get_generator("np")))

    # Rows to a batch -------------------------------------------------------------------------------------------------

    def _collate(self, rows: Sequence[Any], kind: str) -> Any:
        if not isinstance(rows[0], Mapping):
            ids, real = stack_ids(self.tokenizer, rows, kind, self.pad_to_multiple_of)
            return self._add_labels({"input_ids": ids}, self._exclude_tail(np.asarray(ids), real), None, kind)
        offsets = [row.get("offset_mapping") for row in rows]
        rows = remove_columns(rows, "offset_mapping")  # tokenizers do not pad it, models do not take it
        if "labels" in rows[0]:
            note_once(
                "DataCollatorForLanguageModeling uses the tokens as labels: the labels of the rows are not used "
                "(DataCollatorForSeq2Seq and DataCollatorForTokenClassification keep them)"
            )
            rows = [{**row, "labels": 0} for row in rows]  # keeps the place of the column; lengths may differ
        batch = self._pad(rows, kind)
        return self._add_labels(batch, self._find_real_positions(batch, rows), offsets, kind)

    def _add_labels(self, batch: Any, real: np.ndarray, offsets: Any, kind: str) -> Any:
        """Return the batch with labels, and with hidden tokens if there are any."""
        special = batch.pop("special_tokens_mask", None)
        if not self.mlm:
            batch["labels"] = self._build_causal_labels(batch["input_ids"], real)
            return batch
        if self.whole_word_mask:
            offsets = _pad_offsets(offsets, batch["input_ids"].shape[1], find_padding_side(self.tokenizer))
        hide = self.torch_mask_tokens if kind == "pt" else self.numpy_mask_tokens
        batch["input_ids"], batch["labels"] = hide(
            batch["input_ids"], special_tokens_mask=special, offset_mapping=offsets if self.whole_word_mask else None
        )
        return batch

    # Causal ----------------------------------------------------------------------------------------------------------

    def _find_real_positions(self, batch: Any, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return which positions of the batch are not padding."""
        ids = np.asarray(batch["input_ids"])
        if "attention_mask" in batch:
            real = np.asarray(batch["attention_mask"]) != 0
        else:
            side = find_padding_side(self.tokenizer)
            real = np.array([pad_list([True] * len(row["input_ids"]), ids.shape[1], False, side) for row in rows])
        return real if "attention_mask" in rows[0] else self._exclude_tail(ids, real)

    def _is_pad_end_of_text(self) -> bool:
        pad = getattr(self.tokenizer, "pad_token_id", None)
        return pad is not None and pad == getattr(self.tokenizer, "eos_token_id", None)

    def _exclude_tail(self, ids: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Remove padding that rows without an attention mask may hold: one of a run of pad tokens ends the text."""
        if self.mlm or not self._is_pad_end_of_text():
            return real
        tail = _find_tail(ids == self.tokenizer.pad_token_id, find_padding_side(self.tokenizer))
        if (tail & real).any():
            note_once(
                "rows without attention_mask end in several pad tokens, which are also the end-of-text token: all but "
                "one are treated as padding. Keep the attention_mask of the tokenizer to make this explicit"
            )
        return real & ~tail

    def _build_causal_labels(self, ids: Any, real: np.ndarray) -> Any:
        """Return the tokens as labels; padding does not count."""
        ignored = ~real
        pad = getattr(self.tokenizer, "pad_token_id", None)
        if pad is not None and not self._is_pad_end_of_text():
            ignored = ignored | (np.asarray(ids) == pad)
        labels = ids.clone() if isinstance(ids, torch.Tensor) else ids.copy()
        labels[torch.from_numpy(ignored) if isinstance(ids, torch.Tensor) else ignored] = _IGNORED
        return labels

    # Masked ----------------------------------------------------------------------------------------------------------

    def _mask_tokens(
        self, inputs: Any, special: Any, offsets: Any, draws: _TorchRandom | _NumpyRandom
    ) -> tuple[Any, Any]:
        """Choose tokens, make labels of them, replace most of them. The order of the draws is that of transformers."""
        special = find_special_tokens(self.tokenizer, inputs) if special is None else np.asarray(special).astype(bool)
        labels, shape = draws.copy(inputs), tuple(inputs.shape)
        if self.whole_word_mask:
            starts = _find_word_starts(special, offsets)
            hidden = draws.convert(_extend_to_words(draws.draw_where(starts, self.mlm_probability), starts, special))
        else:
            hidden = draws.draw_where(~special, self.mlm_probability)
        labels[~hidden] = _IGNORED

        masked = draws.draw_everywhere(shape, self.mask_replace_prob) & hidden
        inputs[masked] = self.tokenizer.mask_token_id
        if self.mask_replace_prob >= 1 or self.random_replace_prob <= 0:
            return inputs, labels

        share = self.random_replace_prob / (1 - self.mask_replace_prob)
        replaced = draws.draw_everywhere(shape, share) & hidden & ~masked
        inputs[replaced] = draws.draw_tokens(replaced, len(self.tokenizer))
        return inputs, labels

    def _get_generator(self, kind: str) -> Any:
        """Return the generator for `seed`, one per process; None for the global one."""
        if self.seed is None:
            return None
        if kind not in self._own_generators:
            worker = get_worker_info()
            seed = self.seed + (0 if worker is None else worker.id)
            own = torch.Generator().manual_seed(seed) if kind == "pt" else np.random.default_rng(seed)
            self._own_generators[kind] = own
        return self._own_generators[kind]


def _check_share(name: str, value: float | None) -> None:
    if value is None or not 0 <= value <= 1:
        raise ConfigError(
            what=f"{name}={value} is not a share",
            why="it is a share of the tokens",
            fix=f"use a number from 0 to 1 for {name}",
        )


def _find_tail(pads: np.ndarray, side: str) -> np.ndarray:
    """Return the run of pads at the end (or the start) of each row, without the one next to the text."""
    pads = pads[:, ::-1] if side == "right" else pads
    run = np.logical_and.accumulate(pads, axis=1)
    run[:, :-1] &= run[:, 1:].copy()
    run[:, -1] = False
    return run[:, ::-1] if side == "right" else run


# Whole words ---------------------------------------------------------------------------------------------------------


def _pad_offsets(offsets: list[Any] | None, length: int, side: str) -> np.ndarray:
    """Return the limits of every token in its text; padding has (0, 0)."""
    if offsets is None or any(row is None for row in offsets):
        lacking = 0 if offsets is None else offsets.index(None)
        raise build_rows_error(
            lambda names: RowsError(
                what=f"{names.full_name(lacking)} has no 'offset_mapping'",
                why="whole_word_mask=True finds the tokens of a word by their offsets",
                fix="tokenize with return_offsets_mapping=True and keep the column (remove_unused_columns=False)",
            )
        )
    return np.array([pad_list([tuple(pair) for pair in row], length, (0, 0), side) for row in offsets])


def _find_word_starts(special: np.ndarray, offsets: Any) -> np.ndarray:
    """Return where words start: after a special token or a gap in the text."""
    limits = np.asarray(offsets)
    after_break = np.ones(special.shape, dtype=bool)
    after_break[:, 1:] = special[:, :-1] | (limits[:, 1:, 0] != limits[:, :-1, 1])
    return after_break & ~special


def _extend_to_words(chosen: Any, starts: np.ndarray, special: np.ndarray) -> np.ndarray:
    """Return the draws with the value at the start of a word repeated for the whole word."""
    places = np.arange(starts.shape[1])
    start_of = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    return np.take_along_axis(np.asarray(chosen), start_of, axis=1) & ~special


# Random numbers ------------------------------------------------------------------------------------------------------


class _TorchRandom:
    """Draw from a generator of torch."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator

    def copy(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.clone()

    def convert(self, places: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(places)

    def draw_where(self, allowed: np.ndarray, share: Any) -> torch.Tensor:
        """Return True for a share of the allowed positions."""
        chances = torch.full(allowed.shape, float(share))
        chances[torch.from_numpy(~allowed)] = 0.0
        return torch.bernoulli(chances, generator=self._generator).bool()

    def draw_everywhere(self, shape: tuple[int, ...], share: float) -> torch.Tensor:
        """Return True for a share of all positions."""
        return torch.bernoulli(torch.full(shape, float(share)), generator=self._generator).bool()

    def draw_tokens(self, places: Any, vocabulary: int) -> torch.Tensor:
        """Return random tokens for some positions; one is drawn for every position of the batch."""
        return torch.randint(vocabulary, tuple(places.shape), dtype=torch.long, generator=self._generator)[places]


class _NumpyRandom:
    """Draw from a generator of numpy."""

    def __init__(self, generator: np.random.Generator | None) -> None:
        self._binomial = np.random.binomial if generator is None else generator.binomial
        self._integers = np.random.randint if generator is None else generator.integers

    def copy(self, ids: np.ndarray) -> np.ndarray:
        return ids.copy()

    def convert(self, places: np.ndarray) -> np.ndarray:
        return places

    def draw_where(self, allowed: np.ndarray, share: Any) -> np.ndarray:
        """Return True for a share of the allowed positions."""
        return self._binomial(1, np.where(allowed, float(share), 0.0), size=allowed.shape).astype(bool)

    def draw_everywhere(self, shape: tuple[int, ...], share: float) -> np.ndarray:
        """Return True for a share of all positions."""
        return self._binomial(1, float(share), size=shape).astype(bool)

    def draw_tokens(self, places: Any, vocabulary: int) -> np.ndarray:
        """Return random tokens for some positions."""
        return self._integers(0, vocabulary, size=int(places.sum()), dtype=np.int64)
