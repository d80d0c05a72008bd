"""Describe one row for people: the text of its tokens, the names of its classes, what was predicted."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.tree import numpify
from .model_heads import IGNORED

_TEXT, _MANY = 70, 12
Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Reader:
    """What turns numbers into text: a tokenizer, class names, and the meaning of logits."""

    tokenizer: Any = None  # anything with `decode`
    class_names: Mapping[Any, str] | None = None  # config.id2label
    classes: int | None = None  # config.num_labels
    vocabulary: int | None = None  # config.vocab_size
    several: bool = False  # any number of classes per row
    shifts: bool = False  # what is predicted at a place is the next token
    tags: bool = False  # one class per token


def describe_row(inputs: Mapping[str, Any], predictions: Any, labels: Any, reader: Reader) -> Lines:
    """Describe the first row of a batch, its label, and what was predicted for it.

    >>> describe_row({}, np.array([[0.1, 0.9]]), np.array([0]), Reader(class_names={0: "no", 1: "yes"}))
    (('label', '0 (no)'), ('prediction', '1 (yes)'))
    """
    lines = []
    ids = numpify(inputs.get("input_ids"))
    if isinstance(ids, np.ndarray) and ids.ndim == 2:
        lines.append(("input", _text(_unpadded(ids[0], numpify(inputs.get("attention_mask"))), reader)))
    logits, label = _first(predictions), _first(labels) if _is_one(labels) else None
    if isinstance(label, np.ndarray) and label.ndim > 0 and len(label):
        logits = logits if isinstance(logits, np.ndarray) and logits.ndim > 0 and len(logits) else None
        if logits is not None and logits.ndim == 3:
            reader = replace(reader, tags=reader.classes == logits.shape[-1] != reader.vocabulary)
        row = np.asarray(label[0])
        lines.append(("label", _of_label(row[1:] if reader.shifts and row.ndim == 1 else row, reader)))
        if logits is not None:
            lines.append(("prediction", _of_logits(np.asarray(logits[0]), row, reader)))
    return tuple(line for line in lines if line[1])


def _is_one(labels: Any) -> bool:
    return not isinstance(labels, (tuple, list)) or len(labels) == 1


def _first(parts: Any) -> Any:
    return parts[0] if isinstance(parts, (tuple, list)) and parts else parts


def _unpadded(ids: np.ndarray, mask: Any) -> np.ndarray:
    fits = isinstance(mask, np.ndarray) and mask.ndim == 2 and mask.shape[1] == len(ids)
    return ids[mask[0] != 0] if fits else ids


def _of_label(label: Any, reader: Reader) -> str:
    label = np.asarray(label)
    if reader.several and label.ndim == 1:
        return _names(np.flatnonzero(label > 0), reader) or "none"
    if label.dtype.kind not in "iu" or label.ndim > 1:
        return _numbers(label)
    return _class(label, reader) if label.ndim == 0 else _sequence(label[label != IGNORED], reader)


def _of_logits(logits: np.ndarray, label: Any, reader: Reader) -> str:
    """Describe logits in the form of the label."""
    label = np.asarray(label)
    if logits.dtype.kind in "iu":  # classes, not logits
        return _of_label(logits, reader)
    if reader.several and label.ndim == 1:
        return _names(np.flatnonzero(logits > 0), reader) or "none"
    if label.dtype.kind not in "iu" or logits.ndim != label.ndim + 1:
        return _numbers(logits)
    best = logits.argmax(-1)
    if label.ndim == 0:
        return _class(best, reader)
    if label.ndim > 1:
        return ""
    if reader.shifts:
        label, best = label[1:], best[:-1]
    return _sequence(best[: len(label)][label[: len(best)] != IGNORED], reader)


def _sequence(numbers: np.ndarray, reader: Reader) -> str:
    return _names(numbers, reader) if reader.tags else _text(numbers, reader)


def _text(ids: np.ndarray, reader: Reader) -> str:
    """Return tokens as text, or as numbers without a tokenizer."""
    if reader.tokenizer is None:
        return _numbers(ids)
    try:
        text = reader.tokenizer.decode([int(one) for one in ids if one >= 0])
    except Exception:  # whatever a tokenizer of one's own does not know
        return _numbers(ids)
    return repr(textwrap.shorten(str(text), _TEXT, placeholder=" ..."))


def _names(numbers: Any, reader: Reader) -> str:
    names = [_class(number, reader) for number in list(numbers)[:_MANY]]
    return ", ".join(names) + (", ..." if len(numbers) > _MANY else "")


def _class(number: Any, reader: Reader) -> str:
    number = int(number)
    name = (reader.class_names or {}).get(number)
    return str(number) if name is None or name == f"LABEL_{number}" else f"{number} ({name})"


def _numbers(values: Any) -> str:
    flat = np.asarray(values).reshape(-1)
    shown = [f"{one:.3g}" if flat.dtype.kind == "f" else str(one) for one in flat[:_MANY].tolist()]
    return ", ".join(shown) + (", ..." if flat.size > _MANY else "")
