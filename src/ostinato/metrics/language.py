"""Language models: perplexity and the share of tokens predicted.

A causal model predicts at place t the token at t + 1, so predictions and labels are compared one place apart: `shift`.
Masked and encoder-decoder models predict in place: `shift=False`. A trainer knows which of the two its model is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..core.errors import MetricError
from .base import IGNORE_INDEX, Arrays, Measured, Metric
from .inputs import argmax, find_counted, get_first_output, read_array, read_class_labels

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

CHUNK_BYTES = 32 << 20  # how much of the logits is looked at in float32 at a time


class Perplexity(Metric):
    """How many tokens the model hesitates between, on average: exp of the mean loss per token. Keeps two numbers.

    Predictions are logits `(rows, tokens, vocabulary)`, labels `(rows, tokens)`; or give what the loss already
    knows to `add_loss`. Only 32 MiB of logits are in float32 at any time.

    Args:
        shift: compare each place with the next label, as causal models need it. None: as the trainer finds that the
            model's loss does, and as causal models need it where no trainer says.

    >>> perplexity = Perplexity()
    >>> perplexity.add_loss(loss_sum=10 * math.log(8), tokens=10)
    >>> round(perplexity.compute()["perplexity"], 6)
    8.0
    """

    default_name = "perplexity"
    higher_is_better = False

    def __init__(self, *, shift: bool | None = None, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.shift = shift

    def add_loss(self, loss_sum: Any, tokens: Any) -> None:
        """Add a batch by its summed loss and its number of tokens. To an interval, it is one row."""
        total, number = float(loss_sum), float(tokens)
        row = np.arange(1 if number else 0)
        self._add_measured(Measured(1, row, {"loss": np.full(len(row), total), "tokens": np.full(len(row), number)}))

    def _measure(self, predictions: Any, references: Any) -> Measured:
        logits = get_first_output(predictions, self.name)
        logits = logits if isinstance(logits, Tensor) else read_array(logits, self.name, "predictions")
        labels = read_class_labels(references, self.name)
        check_positions(logits, labels, self.name, columns=True)
        if self.shift is not False:
            labels = labels[:, 1:]
        row, place = np.nonzero(find_counted(labels, self.ignore_index))
        truth = labels[row, place]
        _check_vocabulary(truth, logits.shape[-1], self.name)
        losses = compute_token_losses(logits, row, place, truth)
        per_row = np.bincount(row, losses, minlength=len(labels))
        tokens = np.bincount(row, minlength=len(labels))
        there = np.flatnonzero(tokens)
        return Measured(len(labels), there, {"loss": per_row[there], "tokens": tokens[there]})

    def _score(self, totals: Arrays) -> dict[str, float]:
        mean = float(totals["loss"] / totals["tokens"])
        return {self.name: math.exp(mean) if mean < 709 else mean * math.inf}  # beyond, exp leaves the floats


class TokenAccuracy(Metric):
    """The share of tokens that were predicted. Keeps two numbers.

    Predictions are logits `(rows, tokens, vocabulary)` or token ids `(rows, tokens)`; labels `(rows, tokens)`.

    Args:
        shift: compare each place with the next label, as causal models need it. None: as the trainer finds that the
            model's loss does, and as causal models need it where no trainer says. `labels_are_shifted` tells whether
            that was done to the labels already.

    >>> TokenAccuracy()(([[7, 8, 0]], [[5, 7, 8]]))
    {'token_accuracy': 1.0}
    """

    default_name = "token_accuracy"
    counts = True

    def __init__(self, *, shift: bool | None = None, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.shift = shift

    def _measure(self, predictions: Any, references: Any) -> Measured:
        ids, labels = read_token_ids(predictions, references, self.name)
        if self.shift is not False:
            ids, labels = ids[:, :-1], labels[:, 1:]
        mask = find_counted(labels, self.ignore_index)
        correct, tokens = ((ids == labels) & mask).sum(axis=1), mask.sum(axis=1)
        row = np.flatnonzero(tokens)
        return Measured(len(labels), row, {"correct": correct[row], "tokens": tokens[row]})

    def _score(self, totals: Arrays) -> dict[str, float]:
        return {self.name: float(totals["correct"] / totals["tokens"])}


# ------------------------------------------------------------------------------------------------------------- shared


def aligned(
    predictions: Any, labels: Any, *, shift: bool = True, ignore_index: int | None = IGNORE_INDEX
) -> tuple[Any, np.ndarray]:
    """Pair each prediction with the label it is for.

    Args:
        predictions: Logits `(rows, tokens, vocabulary)` or token ids `(rows, tokens)`, arrays or tensors.
        labels: Token ids `(rows, tokens)`.
        shift: Whether a prediction is for the next token, as those of causal models are.
        ignore_index: Labels of this value are left out; None keeps all.

    Returns:
        The predictions and the labels, one entry for each label that counts.

    >>> guess, truth = aligned([[7, 8, 0]], [[5, 7, -100]])
    >>> guess, truth
    (array([7]), array([7]))
    """
    predictions = get_first_output(predictions, "aligned")
    predictions = predictions if isinstance(predictions, Tensor) else read_array(predictions, "aligned", "predictions")
    truth = read_class_labels(labels, "aligned")
    check_positions(predictions, truth, "aligned", columns=len(predictions.shape) == 3)
    if shift:
        predictions, truth = predictions[:, :-1], truth[:, 1:]
    mask = find_counted(truth, ignore_index)
    where = torch.from_numpy(mask).to(predictions.device) if isinstance(predictions, Tensor) else mask
    return predictions[where], truth[mask]


def labels_are_shifted(input_ids: Any, labels: Any, *, ignore_index: int = IGNORE_INDEX) -> bool | None:
    """Check whether the labels of a causal model are shifted already, though the model shifts them itself.

    Args:
        input_ids: The inputs, `(rows, tokens)`.
        labels: The labels, of the same shape.
        ignore_index: Labels of this value are not compared.

    Returns:
        False if the labels repeat the inputs, True if they repeat them one place later, None otherwise.

    Labels that repeat the inputs are as they should be (False); labels that repeat the inputs one place later were
    shifted (True), and the model would learn to skip a token. None: they repeat the inputs in neither way.

    Predictions cannot tell: a new model with tied embeddings predicts its own input, which looks the same.

    >>> labels_are_shifted([[5, 6, 7, 8]], [[5, 6, 7, 8]])
    False
    >>> labels_are_shifted([[5, 6, 7, 8]], [[6, 7, 8, -100]])
    True
    """
    given, wanted = read_class_labels(input_ids, "input_ids"), read_class_labels(labels, "labels")
    if given.shape != wanted.shape or given.ndim != 2:
        return None
    there = find_counted(wanted, ignore_index)
    if not there[:, :-1].any():
        return None
    if (given == wanted)[there].all():
        return False
    ahead = (given[:, 1:] == wanted[:, :-1])[there[:, :-1]]
    return True if ahead.all() else None


def read_token_ids(predictions: Any, references: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true tokens, both `(rows, tokens)`.

    >>> read_token_ids([[4, 2]], [[4, 3]], "token_accuracy")
    (array([[4, 2]]), array([[4, 3]]))
    """
    given = get_first_output(predictions, name)
    given = given if isinstance(given, Tensor) else read_array(given, name, "predictions")
    labels = read_class_labels(references, name)
    check_positions(given, labels, name, columns=len(given.shape) == 3)
    return (argmax(given, -1, name) if len(given.shape) == 3 else read_array(given, name, "predictions")), labels


def check_positions(predictions: Any, labels: np.ndarray, name: str, *, columns: bool) -> None:
    """Raise if predictions do not have one position per label.

    >>> check_positions(np.zeros((2, 3, 50)), np.zeros((2, 3)), "perplexity", columns=True)
    """
    shape = tuple(predictions.shape)
    places = shape[:-1] if columns else shape
    if labels.ndim != 2 or places != labels.shape or len(shape) != 2 + columns:
        wanted = "(rows, tokens, vocabulary)" if columns else "(rows, tokens)"
        raise MetricError(
            what=f"{name}: predictions {shape} do not fit labels {labels.shape}",
            why=f"it takes {wanted} and labels (rows, tokens), a prediction for every place",
            fix="cut places the model adds (prompts, image tokens), and do not shift the labels yourself",
        )


def compute_token_losses(logits: Any, row: np.ndarray, place: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the loss of each chosen token, computed in bounded pieces on the device of the logits.

    >>> compute_token_losses(np.zeros((1, 2, 8)), np.array([0]), np.array([1]), np.array([3])).round(4)  # log 8
    array([2.0794])
    """
    step = max(1, CHUNK_BYTES // (4 * max(1, logits.shape[-1])))
    losses = [np.zeros(0)]
    for start in range(0, len(truth), step):
        piece = slice(start, start + step)
        chosen = logits[row[piece], place[piece]]
        chosen = chosen if isinstance(chosen, Tensor) else torch.from_numpy(chosen)
        chosen = chosen if chosen.dtype == torch.float64 else chosen.float()
        target = torch.from_numpy(truth[piece]).to(chosen.device)
        losses.append(cross_entropy(chosen.detach(), target, reduction="none").double().cpu().numpy())
    return np.concatenate(losses)


def _check_vocabulary(truth: np.ndarray, vocabulary: int, name: str) -> None:
    if len(truth) and not 0 <= truth.min() <= truth.max() < vocabulary:
        bad = truth.min() if truth.min() < 0 else truth.max()
        raise MetricError(
            what=f"{name}: label {bad} is not among {vocabulary} tokens",
            why=f"the logits have {vocabulary} columns",
            fix="model.resize_token_embeddings(len(tokenizer)), or -100 for labels that do not count",
        )
