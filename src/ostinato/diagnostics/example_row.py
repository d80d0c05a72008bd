"""Describe one row as text: its tokens, the names of its classes, and what was predicted."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.tree import numpify
from .model_heads import IGNORED

_MAX_TEXT, _MAX_NUMBERS = 70, 12
Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RowDecoder:
    """What converts numbers to text: a tokenizer, class names, and the meaning of logits."""

    tokenizer: Any = None  # anything with `decode`
    class_names: Mapping[Any, str] | None = None  # config.id2label
    classes: int | None = None  # config.num_labels
    vocabulary: int | None = None  # config.vocab_size
    several: bool = False  # any number of classes per row
    shifts: bool = False  # the prediction at a position is the next token
    tags: bool = False  # one class per token


def describe_row(inputs: Mapping[str, Any], predictions: Any, labels: Any, decoder: RowDecoder) -> Lines:
    """Describe the first row of a batch, its label, and what was predicted for it.

    >>> describe_row({}, np.array([[0.1, 0.9]]), np.array([0]), RowDecoder(class_names={0: "no", 1: "yes"}))
    (('label', '0 (no)'), ('prediction', '1 (yes)'))
    """
    lines = []
    ids = numpify(inputs.get("input_ids"))
    if isinstance(ids, np.ndarray) and ids.ndim == 2:
        lines.append(
            ("input", _decode_tokens(_remove_padding(ids[0], numpify(inputs.get("attention_mask"))), decoder))
        )
    logits, label = _get_first(predictions), _get_first(labels) if _is_single(labels) else None
    if isinstance(label, np.ndarray) and label.ndim > 0 and len(label):
        logits = logits if isinstance(logits, np.ndarray) and logits.ndim > 0 and len(logits) else None
        if logits is not None and logits.ndim == 3:
            decoder = replace(decoder, tags=decoder.classes == logits.shape[-1] != decoder.vocabulary)
        row = np.asarray(label[0])
        lines.append(("label", _describe_label(row[1:] if decoder.shifts and row.ndim == 1 else row, decoder)))
        if logits is not None:
            lines.append(("prediction", _describe_logits(np.asarray(logits[0]), row, decoder)))
    return tuple(line for line in lines if line[1])


def _is_single(labels: Any) -> bool:
    return not isinstance(labels, (tuple, list)) or len(labels) == 1


def _get_first(parts: Any) -> Any:
    return parts[0] if isinstance(parts, (tuple, list)) and parts else parts


def _remove_padding(ids: np.ndarray, mask: Any) -> np.ndarray:
    fits = isinstance(mask, np.ndarray) and mask.ndim == 2 and mask.shape[1] == len(ids)
    return ids[mask[0] != 0] if fits else ids


def _describe_label(label: Any, decoder: RowDecoder) -> str:
    label = np.asarray(label)
    if decoder.several and label.ndim == 1:
        return _format_classes(np.flatnonzero(label > 0), decoder) or "none"
    if label.dtype.kind not in "iu" or label.ndim > 1:
        return _format_numbers(label)
    return _format_class(label, decoder) if label.ndim == 0 else _describe_sequence(label[label != IGNORED], decoder)


def _describe_logits(logits: np.ndarray, label: Any, decoder: RowDecoder) -> str:
    """Describe logits in the form of the label."""
    label = np.asarray(label)
    if logits.dtype.kind in "iu":  # classes, not logits
        return _describe_label(logits, decoder)
    if decoder.several and label.ndim == 1:
        return _format_classes(np.flatnonzero(logits > 0), decoder) or "none"
    if label.dtype.kind not in "iu" or logits.ndim != label.ndim + 1:
        return _format_numbers(logits)
    best = logits.argmax(-1)
    if label.ndim == 0:
        return _format_class(best, decoder)
    if label.ndim > 1:
        return ""
    if decoder.shifts:
        label, best = label[1:], best[:-1]
    return _describe_sequence(best[: len(label)][label[: len(best)] != IGNORED], decoder)


def _describe_sequence(numbers: np.ndarray, decoder: RowDecoder) -> str:
    return _format_classes(numbers, decoder) if decoder.tags else _decode_tokens(numbers, decoder)


def _decode_tokens(ids: np.ndarray, decoder: RowDecoder) -> str:
    """Return tokens as text, or as numbers without a tokenizer."""
    if decoder.tokenizer is None:
        return _format_numbers(ids)
    try:
        text = decoder.tokenizer.decode([int(one) for one in ids if one >= 0])
    except Exception:  # a user's tokenizer may raise anything
        return _format_numbers(ids)
    return repr(textwrap.shorten(str(text), _MAX_TEXT, placeholder=" ..."))


def _format_classes(numbers: Any, decoder: RowDecoder) -> str:
    names = [_format_class(number, decoder) for number in list(numbers)[:_MAX_NUMBERS]]
    return ", ".join(names) + (", ..." if len(numbers) > _MAX_NUMBERS else "")


def _format_class(number: Any, decoder: RowDecoder) -> str:
    number = int(number)
    name = (decoder.class_names or {}).get(number)
    return str(number) if name is None or name == f"LABEL_{number}" else f"{number} ({name})"


def _format_numbers(values: Any) -> str:
    flat = np.asarray(values).reshape(-1)
    shown = [f"{one:.3g}" if flat.dtype.kind == "f" else str(one) for one in flat[:_MAX_NUMBERS].tolist()]
    return ", ".join(shown) + (", ..." if flat.size > _MAX_NUMBERS else "")
