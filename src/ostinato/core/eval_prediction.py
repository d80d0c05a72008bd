"""The argument of `compute_metrics`: predictions and labels; by name, in pairs, or as text on request."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from .errors import MetricError

IGNORED = -100
BLOCK_BYTES = 32 << 20  # the part of the predictions that is in memory at a time


class Outputs(dict[str, Any]):
    """The outputs of a model besides its loss, by name; also by position.

    >>> outputs = Outputs(logits=np.zeros(2), hidden_states=np.ones(2))
    >>> outputs["hidden_states"] is outputs[1]
    True
    """

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int) and -len(self) <= key < len(self):
            return list(self.values())[key]
        raise OutputNameError(
            what=f"there is no output {key!r}",
            why=f"the outputs that are kept are {', '.join(map(repr, self))}",
            fix="use one of these; the loss, and outputs excluded by ignore_keys or the model's config, are not kept",
        )


class OutputNameError(MetricError, KeyError):
    """An output that the model does not return."""

    def __str__(self) -> str:  # KeyError would print a repr
        return Exception.__str__(self)


class EvalPrediction:
    """The argument of `compute_metrics`. Unpacks into predictions and labels (and inputs and losses if requested).

    >>> prediction = EvalPrediction(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, -100]))
    >>> predictions, labels = prediction
    >>> prediction.valid
    array([ True, False])
    >>> prediction.aligned()
    (array([[0.1, 0.9]]), array([1]))

    Args:
        predictions: What the model returned besides its loss: one array, or a tuple of several.
        label_ids: The labels; a tuple where `label_names` has several, and an empty one where the loss needs none.
        inputs: The model's main input, with `include_for_metrics=["inputs"]`; the batch with `batch_eval_metrics`.
        losses: The loss of every row's batch, with `include_for_metrics=["loss"]`.
        output_names: The model's names for its outputs.
        shifts_labels: Whether the model's loss compares each position with the next label, as causal models do.
        processing_class: The tokenizer, or another object that decodes token ids.
    """

    def __init__(
        self,
        predictions: np.ndarray | tuple[np.ndarray, ...],
        label_ids: np.ndarray | tuple[np.ndarray, ...],
        inputs: np.ndarray | tuple[np.ndarray, ...] | None = None,
        losses: np.ndarray | tuple[np.ndarray, ...] | None = None,
        *,
        output_names: Sequence[str] | None = None,
        shifts_labels: bool = False,
        processing_class: Any = None,
    ) -> None:
        self.predictions = predictions
        self.label_ids = label_ids
        self.inputs = inputs
        self.losses = losses
        self.output_names = tuple(output_names) if output_names is not None else None
        self.shifts_labels = shifts_labels
        self.processing_class = processing_class

    def _list_parts(self) -> tuple[Any, ...]:
        optional = (part for part in (self.inputs, self.losses) if part is not None)
        return (self.predictions, self.label_ids, *optional)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list_parts())

    def __getitem__(self, index: int) -> Any:
        return self._list_parts()[index]

    # ------------------------------------------------------------------------------------------------- by their names

    @property
    def labels(self) -> Any:
        """The labels, -100 where there is none."""
        return self.label_ids

    @property
    def has_labels(self) -> bool:
        """Whether there are labels to compare with."""
        return has_labels(self.label_ids)

    @property
    def outputs(self) -> Outputs:
        """The outputs of the model besides its loss, by their names in it; "0", "1", … where it has none."""
        parts = self.predictions if isinstance(self.predictions, tuple) else (self.predictions,)
        names = self.output_names
        if names is None or len(names) != len(parts):
            names = ("logits",) if len(parts) == 1 else tuple(map(str, range(len(parts))))
        return Outputs(zip(names, parts, strict=True))

    @property
    def logits(self) -> Any:
        """The main output: the one called "logits", else the first."""
        if isinstance(self.predictions, list):  # one entry per batch
            return [part.logits for part in self._iterate_batches()]
        outputs = self.outputs
        return outputs["logits"] if "logits" in outputs else next(iter(outputs.values()), None)

    @property
    def valid(self) -> Any:
        """A mask of the labels that are not -100, in the shape of the labels."""
        return _mask_labels(self.label_ids)

    # ------------------------------------------------------------------------------------------------------- in pairs

    def aligned(self) -> tuple[Any, Any]:
        """Pair each label that counts with its prediction.

        The labels of a causal model are shifted by one position; padding and -100 are left out. A column of single
        values becomes `(n,)`; a table of values or of several labels per row stays `(rows, columns)`, without the
        rows that have no label at all.

        Returns:
            Predictions and labels: `(n, classes)` and `(n,)`.

        Raises:
            MetricError: There are no labels, or several arrays of them.
        """
        if not self.has_labels:
            raise MetricError(
                what="aligned() pairs predictions with labels, and there are no labels",
                why="the model computes its loss without labels, and label_names is empty",
                fix="use prediction.outputs without labels, or set label_names",
            )
        if isinstance(self.label_ids, tuple):
            raise MetricError(
                what=f"aligned() pairs one array of labels with its predictions, and there are {len(self.label_ids)}",
                why="label_names has several names",
                fix="pair them one by one: prediction.labels[0] with prediction.outputs[0]",
            )
        pairs = [_align(part.logits, part.label_ids, shift=self.shifts_labels) for part in self._iterate_batches()]
        if len(pairs) == 1:
            return pairs[0]
        guesses, truths = zip(*pairs, strict=True)
        return np.concatenate(guesses), np.concatenate(truths)

    def blocks(self, rows: int | None = None) -> Iterator[EvalPrediction]:
        """Yield the same prediction a few rows at a time, for metrics over arrays that are larger than memory.

        Args:
            rows: The number of rows at a time; by default, it depends on their size.

        Returns:
            An iterator over predictions of at most this many rows.

        >>> prediction = EvalPrediction(np.zeros((5, 2)), np.arange(5))
        >>> [part.labels.tolist() for part in prediction.blocks(rows=3)]
        [[0, 1, 2], [3, 4]]
        """
        for batch in self._iterate_batches():
            total = len(batch.logits)
            step = rows or _count_block_rows(batch.logits)
            for start in range(0, total, step):
                piece = slice(start, start + step)
                parts = (batch.predictions, batch.label_ids, batch.inputs, batch.losses)
                yield self._copy_with(*(_slice_rows(part, piece) for part in parts))

    def _iterate_batches(self) -> Iterator[EvalPrediction]:
        """Yield this prediction, or that of each batch where they were not joined (`eval_do_concat_batches=False`)."""
        if not isinstance(self.predictions, list):
            yield self
            return
        for predictions, labels in zip(self.predictions, self.label_ids, strict=True):
            yield self._copy_with(predictions, labels, None, None)

    def _copy_with(self, predictions: Any, labels: Any, inputs: Any, losses: Any) -> EvalPrediction:
        return EvalPrediction(
            predictions,
            labels,
            inputs,
            losses,
            output_names=self.output_names,
            shifts_labels=self.shifts_labels,
            processing_class=self.processing_class,
        )

    # -------------------------------------------------------------------------------------------------------- as text

    @cached_property
    def pred_text(self) -> list[str]:
        """The predictions as text: generated token ids, or the most likely token at every position."""
        return [text for part in self._iterate_batches() for text in self._decode(part.logits, "predictions")]

    @cached_property
    def label_text(self) -> list[str]:
        """The labels as text, without the positions that have none."""
        return [text for part in self._iterate_batches() for text in self._decode(part.label_ids, "labels")]

    def _decode(self, given: Any, role: str) -> list[str]:
        decode = getattr(self.processing_class, "batch_decode", None)
        if decode is None:
            what = "there is no tokenizer" if self.processing_class is None else "processing_class has no batch_decode"
            raise MetricError(
                what=f"the {role} cannot be decoded: {what}",
                why="pred_text and label_text need the batch_decode of a tokenizer or processor",
                fix="pass processing_class=tokenizer to the trainer",
            )
        shape = tuple(getattr(given, "shape", ()))
        if isinstance(given, tuple) or len(shape) not in (2, 3) or (len(shape) == 2 and not _is_integer(given)):
            described = f"{len(given)} arrays" if isinstance(given, tuple) else f"an array of shape {shape}"
            raise MetricError(
                what=f"the {role} are not text: {described}",
                why="text is token ids (rows, tokens), or logits (rows, tokens, vocabulary)",
                fix="decode the text yourself: prediction.processing_class.batch_decode(...)",
            )
        texts: list[str] = []
        for start in range(0, len(given), _count_block_rows(given)):
            block = np.asarray(_to_host(given[start : start + _count_block_rows(given)]))
            rows = [[token for token in row if token >= 0] for row in _to_token_ids(block).tolist()]
            texts += decode(rows, skip_special_tokens=True)
        return texts


def has_labels(labels: Any) -> bool:
    """Return whether there are labels: they are None where they are missing, and () where the loss needs none.

    >>> has_labels(np.zeros(2)), has_labels(()), has_labels(None)
    (True, False, False)
    """
    return labels is not None and not (isinstance(labels, tuple) and not labels)


# ----------------------------------------------------------------------------------------------------------- alignment


def _align(predictions: Any, labels: Any, *, shift: bool) -> tuple[Any, Any]:
    predictions, labels = _as_array(predictions), _as_array(labels)
    if labels.ndim == 2 and labels.shape[1] == 1 and predictions.ndim == 2 and predictions.shape[1] > 1:
        labels = labels[:, 0]  # classes that the data set stores in columns of width one
    layout = _Layout.of(tuple(predictions.shape), labels, per_label=_is_integer(predictions) and _is_integer(labels))
    guess, truth = layout.arrange(predictions), labels
    if shift and layout.per_label and labels.ndim == 2:
        guess, truth = guess[:, :-1], labels[:, 1:]
    valid = truth != IGNORED
    kept = valid if layout.per_label or valid.ndim == 1 else valid.reshape(len(valid), -1).any(1)
    return guess[kept.to(guess.device) if isinstance(guess, Tensor) else kept], truth[kept]


def _as_array(values: Any) -> Any:
    """Return tensors and arrays, also those in files, unchanged: each type has its own efficient indexing."""
    return values if isinstance(values, (Tensor, np.ndarray)) else np.asarray(values)


class _Layout:
    """The arrangement of predictions relative to their labels."""

    def __init__(self, *, per_label: bool, squeezes: bool = False, class_axis: int | None = None) -> None:
        self.per_label = per_label  # one prediction per label, as opposed to a table of values per row
        self.squeezes = squeezes
        self.class_axis = class_axis

    @classmethod
    def of(cls, shape: tuple[int, ...], labels: Any, *, per_label: bool) -> _Layout:
        wanted = tuple(labels.shape)
        if shape == (*wanted, 1):
            return cls(per_label=False, squeezes=True)
        if shape[:-1] == wanted:
            return cls(per_label=True)
        if shape == wanted:
            return cls(per_label=per_label)
        if len(shape) == len(wanted) + 1 > 2 and (shape[0], *shape[2:]) == wanted:  # images: classes come first
            return cls(per_label=True, class_axis=1)
        raise MetricError(
            what=f"predictions {shape} cannot be paired with labels {wanted}",
            why="each label needs a prediction: the labels' shape, and one column per class for logits",
            fix="keep one prediction per label in preprocess_logits_for_metrics, or pair them yourself",
        )

    def arrange(self, predictions: Any) -> Any:
        if self.squeezes:
            return predictions[..., 0]
        if self.class_axis is None:
            return predictions
        return (
            predictions.movedim(self.class_axis, -1)
            if isinstance(predictions, Tensor)
            else np.moveaxis(predictions, self.class_axis, -1)
        )


# -------------------------------------------------------------------------------------------------------------- shared


def _mask_labels(labels: Any) -> Any:
    if isinstance(labels, (tuple, list)):
        return type(labels)(_mask_labels(part) for part in labels)
    return None if labels is None else labels != IGNORED


def _is_integer(values: Any) -> bool:
    if isinstance(values, Tensor):
        return not values.is_floating_point()
    return np.dtype(values.dtype).kind in "iub"


def _slice_rows(tree: Any, rows: slice) -> Any:
    if isinstance(tree, (tuple, list)):
        return type(tree)(_slice_rows(part, rows) for part in tree)
    return None if tree is None else tree[rows]


def _count_block_rows(array: Any) -> int:
    """Return a number of rows such that a block of them is small compared with the memory of any machine."""
    size = array.element_size() if isinstance(array, Tensor) else np.dtype(array.dtype).itemsize
    return max(1, BLOCK_BYTES // max(1, math.prod(array.shape[1:]) * size))


def _to_host(block: Any) -> Any:
    return block.detach().float().cpu().numpy() if isinstance(block, Tensor) and block.is_floating_point() else block


def _to_token_ids(block: np.ndarray) -> np.ndarray:
    """Return token ids; of logits the most likely ones, and -100 where rows were padded with -100."""
    if block.ndim == 2:
        return block
    best = block.argmax(-1)
    top = np.take_along_axis(block, best[..., None], -1)[..., 0]
    return np.where(top == IGNORED, IGNORED, best)
