"""Name labels and inputs of a wrong range, shape or type.

Each function gets what torch raised, and returns None if that was about something else. An input is named only if the
column itself met the layer that failed.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from ..core.errors import OstinatoError, OutOfRangeError, TensorShapeError, TensorTypeError
from .context import (
    FailureContext,
    column_of,
    example_of,
    find_failing_layer,
    find_functional_variables,
    in_words,
    is_integer,
    kind_of,
)
from .model_heads import IGNORED, labels_out_of_range, tokens_out_of_range


def label_range(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    values, value = find_functional_variables(error, "cross_entropy"), int(match[1])
    logits, target = values.get("input"), values.get("target")
    name = column_of(target, context.columns) or _column_with(context, value)
    if name is None:
        return None
    classes = logits.shape[1 if logits.dim() > 1 else 0] if isinstance(logits, Tensor) else None
    labels = context.columns[name]
    beyond = labels >= classes if classes is not None else labels == value
    wrong = (labels != IGNORED) & ((labels < 0) | beyond)
    fix = "give the last layer one output per class, or map the labels to the classes it has"
    outcomes = f"has {classes} classes, 0 to {classes - 1}" if classes is not None else "has fewer classes"
    return labels_out_of_range(context, name, labels, wrong, outcomes, fix)


def gathered_label(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Name a label out of range in a loss that indexes the logits by it, as label smoothing does."""
    value, classes = int(match[1]), int(match[2])
    name = _column_with(context, value)
    if name is None or value < classes:
        return None
    labels = context.columns[name]
    fix = f"give the model {value + 1} classes or more, or map the labels to 0..{classes - 1}"
    return labels_out_of_range(
        context, name, labels, labels >= classes, f"has {classes} classes, 0 to {classes - 1}", fix
    )


def _column_with(context: FailureContext, value: int) -> str | None:
    """Return the name of the labels that hold a number."""
    names = [*context.wanted_labels, *context.columns]
    return next(
        (
            name
            for name in names
            if is_integer(context.columns.get(name))
            and (name in context.wanted_labels or "label" in name)
            and bool((context.columns[name] == value).any())
        ),
        None,
    )


_PAIRS = {
    "cross_entropy": "logits (rows, classes) and labels (rows,)",
    "nll_loss": "logits (rows, classes) and labels (rows,)",
    "binary_cross_entropy_with_logits": "of one shape",
    "binary_cross_entropy": "of one shape",
}


_ONE_BY_ONE = "flatten both: logits.flatten(0, 1) and labels.flatten(); or put classes second: logits.transpose(1, 2)"


def label_count(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    for function in _PAIRS:
        values = find_functional_variables(error, function)
        logits, target = values.get("input"), values.get("target")
        name = column_of(target, context.columns)
        if name is not None and isinstance(logits, Tensor) and isinstance(target, Tensor):
            return TensorShapeError(
                what=f"column {name!r} and the predictions do not match in number",
                why=f"{function} compares logits {tuple(logits.shape)} with labels {tuple(target.shape)}",
                fix=_ONE_BY_ONE
                if logits.dim() > 2 and not function.startswith("binary")
                else f"make them {_PAIRS[function]}: see what view, reshape or squeeze does to them",
            )
    return None


def label_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    for function, wants_floats in (
        ("cross_entropy", False),
        ("nll_loss", False),
        ("binary_cross_entropy_with_logits", True),
        ("binary_cross_entropy", True),
        ("mse_loss", True),
        ("l1_loss", True),
    ):
        target = find_functional_variables(error, function).get("target")
        name = column_of(target, context.columns)
        if name is None or not isinstance(target, Tensor):
            continue
        if target.is_floating_point() if wants_floats else target.dtype in (torch.int64, torch.uint8):
            continue
        return _of_wrong_type(context, name, target, function, wants_floats=wants_floats)
    return None


def _of_wrong_type(
    context: FailureContext, name: str, target: Tensor, function: str, *, wants_floats: bool
) -> TensorTypeError:
    has = "floats" if target.is_floating_point() else "integers" if is_integer(target) else "truth values"
    wants = "floats" if wants_floats else "numbers of classes (int64)"
    where = context.row(0)
    return TensorTypeError(
        what=f"column {name!r} holds {has} ({kind_of(target)}), and must hold {wants}",
        why=f"{function} in {context.name} compares the predictions with them",
        fix=f"write floats into the data ({where} has {example_of(context, name)}), or call {name}.float() in forward"
        if wants_floats
        else f"write int64 into the data ({where} has {example_of(context, name)}), or call {name}.long() in forward",
    )


def backward_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Name labels of a wrong type that only the backward pass has found; no frame knows their name."""
    name = next((name for name in context.wanted_labels if is_integer(context.columns.get(name))), None)
    if name is None or match[1] not in ("Long", "Int"):
        return None
    return _of_wrong_type(context, name, context.columns[name], "the loss", wants_floats=True)


def index_range(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    values = find_functional_variables(error, "embedding")
    index, weight = values.get("input"), values.get("weight")
    if not isinstance(index, Tensor) or not isinstance(weight, Tensor):
        return None
    known = weight.shape[0]
    name = column_of(index, context.columns)
    if name is None:
        return _too_many_positions(context, index.shape[-1], known) if index.dim() else None
    if name == "input_ids":
        return tokens_out_of_range(context, name, context.columns[name], known)
    layer = next((at for at, one in context.model.named_parameters() if one is weight), "").removesuffix(".weight")
    column = context.columns[name]
    wrong = (column < 0) | (column >= known)
    rows = wrong.reshape(len(wrong), -1).any(dim=1).nonzero().flatten().tolist()
    return OutOfRangeError(
        what=f"{int(column[wrong][0])} in column {name!r} is out of range: layer {layer!r} of {context.name} has "
        f"{known} embeddings, 0 to {known - 1}",
        why=f"it is in {context.row_numbers(rows)}",
        fix=f"map {name!r} to 0..{known - 1}, or make the layer larger",
    )


def _too_many_positions(context: FailureContext, length: int, positions: int) -> OutOfRangeError | None:
    """Return the error for more tokens than positions; positions are counted, not read from a column."""
    name = getattr(context.inner, "main_input_name", "input_ids")
    tokens: Any = context.columns.get(name)
    if not isinstance(tokens, Tensor) or tokens.dim() < 2 or tokens.shape[-1] != length or length <= positions:
        return None
    return OutOfRangeError(
        what=f"rows of {length} tokens in column {name!r} are too long: {context.name} has {positions} positions",
        why=f"the batch is {in_words(context.columns)}",
        fix=f"cut them when they are made: tokenizer(..., truncation=True, max_length={positions})",
    )


def expanded(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    return _too_many_positions(context, int(match[1]), int(match[2]))


def input_width(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    found = find_failing_layer(error, context)
    name = column_of(found[2], context.columns) if found else None
    width = getattr(found[1], "in_features", None) if found else None
    if found is None or name is None or width is None:
        return None
    at, _, given = found
    return TensorShapeError(
        what=f"column {name!r} is {given.shape[-1]} wide, and layer {at!r} of {context.name} takes {width} numbers",
        why=f"the batch is {in_words(context.columns)}",
        fix=f"make the layer nn.Linear({given.shape[-1]}, ...), or the rows of {name!r} {width} wide",
    )


def input_channels(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    found = find_failing_layer(error, context)
    name = column_of(found[2], context.columns) if found else None
    channels = getattr(found[1], "in_channels", None) if found else None
    if found is None or name is None or channels is None:
        return None
    at, _, given = found
    last = given.dim() == 4 and given.shape[-1] == channels
    return TensorShapeError(
        what=f"column {name!r} has {given.shape[1]} channels, and layer {at!r} of {context.name} takes {channels}",
        why=f"it has shape {tuple(given.shape)}, read as (rows, channels, ...)",
        fix=f"bring the channels to the front: {name}.permute(0, 3, 1, 2)"
        if last
        else f"make the layer take {given.shape[1]} channels, or give {name!r} {channels} of them",
    )


def input_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    found = find_failing_layer(error, context)
    name = column_of(found[2], context.columns) if found else None
    weight = getattr(found[1], "weight", None) if found else None
    if found is None or name is None or not isinstance(weight, Tensor):
        return None
    at, _, given = found
    return TensorTypeError(
        what=f"column {name!r} is {kind_of(given)}, and layer {at!r} of {context.name} computes in {kind_of(weight)}",
        why=f"the batch is {in_words(context.columns)}",
        fix=f"write float32 into the data, or call {name}.float() in forward"
        if weight.dtype is torch.float32
        else "load the model in float32, and set bf16=True to compute in half precision",
    )


def index_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    name = column_of(find_functional_variables(error, "embedding").get("input"), context.columns)
    if name is None:
        return None
    return TensorTypeError(
        what=f"column {name!r} is {kind_of(context.columns[name])}, and embeddings are looked up by integers",
        why=f"{context.row(0)} has {example_of(context, name)}",
        fix=f"write integers into the data, or call {name}.long() in forward",
    )


def no_tensor(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Name a column that reaches a layer as a list, an array or text."""
    kind = match[1].rpartition(".")[2]
    name = next((name for name, column in context.columns.items() if type(column).__name__ == kind), None)
    if name is None or kind == "NoneType":
        return None
    return TensorTypeError(
        what=f"column {name!r} is a {kind}, and must be a tensor",
        why=f"the data_collator returned {in_words(context.columns)}",
        fix=f"let it make tensors of numbers: torch.tensor(...), and leave out {name!r} if it holds none",
    )
