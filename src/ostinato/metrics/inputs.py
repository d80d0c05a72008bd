"""Convert what a model or a trainer returns to what a metric counts: classes, values or texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.errors import MetricError
from ..core.notices import note_once
from ..core.tree import numpify

_MISSING = object()
SMALL_BATCH = 4096  # numbers for which numpy, which does one thing at a time, is faster than torch

# ------------------------------------------------------------------------------------------- as a compute_metrics call


def split_prediction(prediction: Any, name: str) -> tuple[Any, Any]:
    """Return predictions and labels of an `EvalPrediction`, or of a pair.

    >>> split_prediction(([1], [0]), "accuracy")
    ([1], [0])
    """
    predictions = getattr(prediction, "predictions", _MISSING)
    if predictions is not _MISSING:
        labels = getattr(prediction, "label_ids", None)
    elif isinstance(prediction, (tuple, list)) and len(prediction) >= 2:
        predictions, labels = prediction[0], prediction[1]
    else:
        raise MetricError(
            what=f"{name} was called with {type(prediction).__name__}",
            why="as a function it takes an EvalPrediction or a pair (predictions, labels)",
            fix=f"call it with ({type(prediction).__name__}, labels), or use update() and compute()",
        )
    if labels is None:
        raise MetricError(
            what=f"{name} was given no labels",
            why="the data set has none, or they are not called by a name in label_names",
            fix="set label_names=[...] in the training arguments to the columns that hold them",
        )
    return predictions, labels


def iterate_batches(predictions: Any, references: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pair itself, or one pair per batch for the lists of `eval_do_concat_batches=False`.

    >>> first, second = np.zeros((2, 3)), np.zeros((1, 3))
    >>> [len(labels) for _, labels in iterate_batches([first, second], [first[:, 0], second[:, 0]])]
    [2, 1]
    """
    if _is_list_of_arrays(predictions) and _is_list_of_arrays(references) and len(predictions) == len(references):
        yield from zip(predictions, references, strict=True)
    else:
        yield predictions, references


def _is_list_of_arrays(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_array(_get_first(part)) for part in value)


def _get_first(value: Any) -> Any:
    return next(iter(value), None) if isinstance(value, tuple) else value


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor)) and len(value.shape) > 0


# ------------------------------------------------------------------------------------------------------------ arrays


def get_first_output(predictions: Any, name: str) -> Any:
    """Return the logits of a model with several outputs: the first one, which is reported once.

    >>> get_first_output((np.array([1]),), "accuracy")
    array([1])
    """
    first = _get_first(predictions)
    if not isinstance(predictions, tuple) or not _is_array(first):
        return predictions
    if len(predictions) > 1:
        shapes = ", ".join(str(tuple(getattr(part, "shape", ()))) for part in predictions)
        note_once(f"{name} uses the first of {len(predictions)} model outputs (shapes {shapes})")
    return first


def read_array(value: Any, name: str, role: str) -> np.ndarray:
    """Return a rectangular numeric array on the host.

    >>> read_array(torch.tensor([1.5], dtype=torch.bfloat16), "mse", "labels")
    array([1.5], dtype=float32)
    """
    try:
        found = np.asarray(numpify(value) if isinstance(value, Tensor) else value)
    except ValueError:  # rows of different length
        found = np.empty(0, dtype=object)
    if found.dtype.kind not in "biuf":
        raise MetricError(
            what=f"{name} cannot read the {role}: {_describe(value)}",
            why="it takes numbers: an array, a tensor, or a list whose rows have one length",
            fix=f"turn the {role} into an array; fill short rows with -100",
        )
    return found


def _describe(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return f"a {type(value).__name__} of {type(value[0]).__name__}"
    return f"{type(value).__name__}"


def find_counted(references: np.ndarray, ignore_index: float | None) -> np.ndarray:
    """Return where a label counts.

    >>> find_counted(np.array([3, -100]), -100)
    array([ True, False])
    """
    return np.ones(references.shape, dtype=bool) if ignore_index is None else references != ignore_index


def find_rows(counts: np.ndarray) -> np.ndarray:
    """Return the row of every label that counts, in the order of a boolean index.

    >>> find_rows(np.array([[True, True], [False, True]]))
    array([0, 0, 1])
    """
    return np.nonzero(counts)[0]


# ----------------------------------------------------------------------------------------------------------- classes


@dataclass(frozen=True)
class Classes:
    """The labels that count, one after the other, and what was predicted for them."""

    rows: int
    row: np.ndarray  # of each of them
    truth: np.ndarray
    guess: np.ndarray
    num_classes: int  # columns of the logits; 0 where class ids were given
    one_each: bool  # no row has more than one


def condense_all(predictions: Any, references: Any, name: str) -> tuple[Any, Any] | None:
    """Return the logits of a batch on a device with its labels; None for others.

    >>> condense_all(torch.tensor([0.1]), torch.tensor([0.0]), "mse") is None
    True
    """
    logits = get_first_output(predictions, name)
    is_there = isinstance(logits, Tensor) and not logits.is_cpu and isinstance(references, Tensor)
    return (logits, references) if is_there else None


class ClassIds(NamedTuple):
    """Predicted classes that were found on a device: all that is read of a batch's logits."""

    ids: Any
    unknown: Any  # how many logits are NaN
    num_classes: int
    shape: tuple[int, ...]  # of the logits


def condense_classes(predictions: Any, references: Any, name: str) -> tuple[ClassIds, Any] | None:
    """Return what `read_classes` reads of a batch on a device, without a wait; None for others.

    >>> condense_classes(torch.tensor([[0.1, 0.9]]), torch.tensor([1]), "accuracy") is None
    True
    """
    given = condense_all(predictions, references, name)
    if given is None or given[0].dim() != references.dim() + 1 or given[0].shape[-1] == 1:
        return None
    logits, references = given
    top, best = logits.max(-1)
    return ClassIds(best, torch.isnan(top).sum(), logits.shape[-1], tuple(logits.shape)), references


def read_classes(
    predictions: Any, references: Any, name: str, ignore_index: int | None, *, class_axis: int = -1
) -> Classes:
    """Read logits (one dimension more than the labels, argmax is taken) or class ids, with labels.

    >>> read_classes([[0.1, 0.9], [0.8, 0.2]], [1, -100], "accuracy", -100)
    Classes(rows=2, row=array([0]), truth=array([1]), guess=array([1]), num_classes=2, one_each=True)
    """
    labels = read_class_labels(references, name)
    if not isinstance(predictions, ClassIds):
        predictions = get_first_output(predictions, name)
    ids, labels, num_classes = read_class_ids(predictions, labels, name, class_axis)
    mask = find_counted(labels, ignore_index)
    if labels.ndim == 1 and np.count_nonzero(mask) == len(mask):  # a class for each row: nothing to look for
        truth, guess, row = labels, ids, np.arange(len(labels))
    else:
        truth, guess, row = labels[mask], ids[mask], find_rows(mask)
    _check_range(truth, guess, num_classes, name)
    return Classes(len(labels), row, truth, guess, num_classes, labels.ndim == 1)


def read_class_labels(references: Any, name: str) -> np.ndarray:
    """Return labels as whole numbers, at least one-dimensional.

    >>> read_class_labels([1.0, 0.0], "accuracy")
    array([1, 0])
    """
    labels = np.atleast_1d(read_array(references, name, "labels"))
    if labels.dtype.kind == "f":
        whole = labels.astype(np.int64)
        if not np.array_equal(whole, labels):
            raise MetricError(
                what=f"{name}: label {labels[whole != labels].flat[0]!s} is not a class",
                why="classes are whole numbers from 0",
                fix="for values use a regression metric: 'mse', 'mae', 'pearson'",
            )
        return whole
    return labels.astype(np.int64)


def read_class_ids(
    predictions: Any, labels: np.ndarray, name: str, class_axis: int = -1
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return predicted classes, labels of the same shape, and the number of logits (0 if ids were given).

    >>> read_class_ids([[0.1, 0.9]], np.array([1]), "accuracy")
    (array([1]), array([1]), 2)
    """
    if not isinstance(predictions, (Tensor, ClassIds)):
        predictions = read_array(predictions, name, "predictions")
    shape = tuple(predictions.shape)
    if len(shape) == labels.ndim == 2 and labels.shape[1] == 1 != shape[1]:
        labels = labels[:, 0]  # labels that the data set keeps as columns of one
    if isinstance(predictions, ClassIds):
        ids, num_classes = numpify(predictions.ids), predictions.num_classes
        _note_unknown(int(predictions.unknown), name)
    elif len(shape) == labels.ndim + 1:
        ids, num_classes = argmax(predictions, class_axis, name), shape[class_axis]
    else:
        ids, num_classes = np.atleast_1d(read_array(predictions, name, "predictions")), 0
    if ids.shape != labels.shape:
        raise _build_shape_error(name, shape, labels.shape)
    return _to_whole_numbers(ids, labels, name), labels, num_classes


def argmax(logits: Any, axis: int, name: str) -> np.ndarray:
    """Return the class with the highest logit, found on the device of the logits.

    >>> argmax(torch.tensor([[0.1, 0.9]]), -1, "accuracy")
    array([1])
    """
    if logits.shape[axis] == 1:
        raise MetricError(
            what=f"{name}: the predictions {tuple(logits.shape)} have one column, so every argmax is class 0",
            why="a model with num_labels=1 predicts a value, or one logit for two classes",
            fix="for a value use 'mse' or 'pearson'; for two classes pass ids: (logits[:, 0] > 0)",
        )
    if isinstance(logits, Tensor) and logits.is_cpu and logits.numel() <= SMALL_BATCH:
        logits = numpify(logits)
    if isinstance(logits, Tensor):
        top, best = logits.max(axis)  # NaN, where there is one
        ids, unknown = numpify(best), int(torch.isnan(top).sum())
    else:
        ids, top = logits.argmax(axis), np.maximum.reduce(logits, axis)
        unknown = np.count_nonzero(top != top)
    _note_unknown(int(unknown), name)
    return ids


def _note_unknown(count: int, name: str) -> None:
    if count:
        note_once(
            f"{name}: {count} predictions of a batch are NaN; the class with the NaN is taken", key=f"{name}.nan"
        )


def _to_whole_numbers(ids: np.ndarray, labels: np.ndarray, name: str) -> np.ndarray:
    if ids.dtype.kind != "f":
        return ids.astype(np.int64, copy=False)
    whole = ids.astype(np.int64)
    if not np.array_equal(whole, ids):
        several = "; if several labels hold at once, use a multilabel_ metric" if labels.ndim == 2 else ""
        raise MetricError(
            what=f"{name}: prediction {ids[whole != ids].flat[0]!s} is not a class id",
            why=f"predictions of the labels' shape {labels.shape} are ids; logits have a further column per class",
            fix=f"turn scores into ids: (scores > 0.5){several}",
        )
    return whole


def _check_range(truth: np.ndarray, guess: np.ndarray, num_classes: int, name: str) -> None:
    if not len(truth):
        return
    # What argmax has found is in range.
    for role, ids in (("label", truth), *((("predicted class", guess),) if not num_classes else ())):
        lowest = np.minimum.reduce(ids)
        if lowest < 0:
            raise MetricError(
                what=f"{name}: {role} {lowest} is not a class",
                why="classes count from 0; only labels may be -100, which is ignored",
                fix="number the classes from 0"
                if role == "label"
                else "cut predictions and labels to the same places",
            )
    highest = np.maximum.reduce(truth)
    if num_classes and highest >= num_classes:
        raise MetricError(
            what=f"{name}: label {highest} is not among the model's {num_classes} classes",
            why=f"the logits have {num_classes} columns, for classes 0 to {num_classes - 1}",
            fix=f"set num_labels={highest + 1}, or number the labels from 0",
        )


def _build_shape_error(name: str, predictions: tuple[int, ...], labels: tuple[int, ...]) -> MetricError:
    return MetricError(
        what=f"{name}: predictions {predictions} do not fit labels {labels}",
        why="logits need the labels' shape plus one column per class; class ids need the labels' shape",
        fix="return only the logits from preprocess_logits_for_metrics, and keep one prediction per label",
    )


# ------------------------------------------------------------------------------------------------------------ values


def read_values(
    predictions: Any, references: Any, name: str, ignore_index: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predicted and true numbers as tables (rows, outputs), and where they count.

    >>> guess, truth, mask = read_values([[0.5]], [1.0], "mse", -100)
    >>> guess, truth, mask
    (array([[0.5]]), array([[1.]]), array([[ True]]))
    """
    guess = np.atleast_1d(read_array(get_first_output(predictions, name), name, "predictions"))
    truth = np.atleast_1d(read_array(references, name, "labels"))
    if guess.ndim == truth.ndim + 1 and guess.shape[-1] == 1:
        guess = guess[..., 0]
    if truth.ndim == guess.ndim + 1 and truth.shape[-1] == 1:
        truth = truth[..., 0]
    if guess.shape != truth.shape:
        raise MetricError(
            what=f"{name}: predictions {guess.shape} do not fit labels {truth.shape}",
            why="every label needs one predicted value",
            fix="set num_labels=1 for one value per row; for classes use 'accuracy' or 'f1'",
        )
    mask = find_counted(truth, ignore_index)
    if not mask.all():
        note_once(
            f"{name}: labels equal to {ignore_index} are ignored; pass ignore_index=None if they are values",
            key=f"{name}.ignored values",
        )
    columns = (len(truth), -1) if truth.ndim > 1 else (len(truth), 1)
    return (
        guess.astype(np.float64).reshape(columns),
        truth.astype(np.float64).reshape(columns),
        mask.reshape(columns),
    )


# ------------------------------------------------------------------------------------------------------------- texts


def read_texts(given: Any, name: str, tokenizer: Any, ignore_index: int | None, *, role: str) -> list[str]:
    """Return strings, or token ids decoded by a tokenizer; -100 is left out.

    >>> read_texts(["a b"], "rouge", None, -100, role="predictions")
    ['a b']
    """
    given = get_first_output(given, name)
    if isinstance(given, str):
        raise MetricError(
            f"{name}: the {role} are one string", "a batch is a list of strings", f"pass [{given[:20]!r}]"
        )
    rows = given.tolist() if isinstance(given, (np.ndarray, Tensor)) else list(given)
    if all(isinstance(row, str) for row in rows):
        return rows
    return _decode(_read_id_rows(rows, name, role), name, tokenizer, ignore_index, role)


def read_reference_texts(given: Any, name: str, tokenizer: Any, ignore_index: int | None) -> list[list[str]]:
    """Return one or several texts per row: `["a", "b"]`, `[["a", "a2"], ["b"]]`, or token ids.

    >>> read_reference_texts(["a", "b"], "bleu", None, -100)
    [['a'], ['b']]
    """
    if isinstance(given, list) and given and all(_is_text_list(row) for row in given):
        return [list(row) for row in given]
    return [[text] for text in read_texts(given, name, tokenizer, ignore_index, role="references")]


def check_same_length(predictions: Sequence[Any], references: Sequence[Any], name: str) -> None:
    """Raise if texts cannot be paired.

    >>> check_same_length(["a"], ["b"], "wer")
    """
    if len(predictions) != len(references):
        raise MetricError(
            what=f"{name}: {len(predictions)} predictions, {len(references)} references",
            why="row i of one is compared with row i of the other",
            fix="pass as many references as predictions; several per row as a list of lists",
        )


def _is_text_list(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and bool(row) and all(isinstance(text, str) for text in row)


def _read_id_rows(rows: list[Any], name: str, role: str) -> list[list[int]]:
    rows = [row.tolist() if isinstance(row, (np.ndarray, Tensor)) else row for row in rows]
    if rows and all(isinstance(row, int) for row in rows):
        rows = [rows]  # the ids of a single text
    for row in rows:
        if not isinstance(row, (list, tuple)) or not all(isinstance(token, int) for token in row):
            raise MetricError(
                what=f"{name} cannot read the {role} as text: {_describe(row)}",
                why="it takes strings or token ids; logits are not text",
                fix="set predict_with_generate=True, so that the model writes and its token ids arrive here",
            )
    return rows


def _decode(rows: list[list[int]], name: str, tokenizer: Any, ignore_index: int | None, role: str) -> list[str]:
    if tokenizer is None:
        raise MetricError(
            what=f"{name}: the {role} are token ids, and no tokenizer was given",
            why="it compares texts",
            fix=f"metric({name!r}, tokenizer=tokenizer)",
        )
    rows = [[token for token in row if token != ignore_index] for row in rows]
    decode = getattr(tokenizer, "batch_decode", None)
    return list(decode(rows, skip_special_tokens=True) if decode is not None else tokenizer(rows))
