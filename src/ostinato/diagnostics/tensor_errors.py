"""Errors for labels and inputs of a wrong range, shape or type.

Each function receives what torch raised, and returns None if the cause is another one. An input is named only if the
column itself was the input of the layer that failed.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from ..core.errors import OstinatoError, OutOfRangeError, TensorShapeError, TensorTypeError
from .context import (
    FailureContext,
    describe_tree,
    find_column,
    find_failing_layer,
    find_functional_variables,
    format_dtype,
    format_first_value,
    is_integer,
)
from .model_heads import IGNORED, build_label_range_error, build_token_range_error


def explain_label_range(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    values, value = find_functional_variables(error, "cross_entropy"), int(match[1])
    logits, target = values.get("input"), values.get("target")
    name = find_column(target, context.columns) or _find_labels_with(context, value)
    if name is None:
        return None
    classes = logits.shape[1 if logits.dim() > 1 else 0] if isinstance(logits, Tensor) else None
    labels = context.columns[name]
    beyond = labels >= classes if classes is not None else labels == value
    wrong = (labels != IGNORED) & ((labels < 0) | beyond)
    fix = "set the outputs of the last layer to the number of classes, or map the labels to the classes it has"
    outcomes = f"has {classes} classes, 0 to {classes - 1}" if classes is not None else "has fewer classes"
    return build_label_range_error(context, name, labels, wrong, outcomes, fix)


def explain_gathered_label(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Explain a label out of range in a loss that indexes the logits by it, as label smoothing does."""
    value, classes = int(match[1]), int(match[2])
    name = _find_labels_with(context, value)
    if name is None or value < classes:
        return None
    labels = context.columns[name]
    fix = f"use a model with {value + 1} classes or more, or map the labels to 0..{classes - 1}"
    return build_label_range_error(
        context, name, labels, labels >= classes, f"has {classes} classes, 0 to {classes - 1}", fix
    )


def _find_labels_with(context: FailureContext, value: int) -> str | None:
    """Return the name of the label column that contains a value."""
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


_EXPECTED_SHAPES = {
    "cross_entropy": "logits (rows, classes) and labels (rows,)",
    "nll_loss": "logits (rows, classes) and labels (rows,)",
    "binary_cross_entropy_with_logits": "logits and labels of the same shape",
    "binary_cross_entropy": "predictions and labels of the same shape",
}


_FLATTEN = "flatten both, logits.flatten(0, 1) and labels.flatten(), or move the classes: logits.transpose(1, 2)"


def explain_label_count(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    for function in _EXPECTED_SHAPES:
        values = find_functional_variables(error, function)
        logits, target = values.get("input"), values.get("target")
        name = find_column(target, context.columns)
        if name is not None and isinstance(logits, Tensor) and isinstance(target, Tensor):
            return TensorShapeError(
                what=f"the shapes of column {name!r} and the predictions do not match",
                why=f"{function} compares logits {tuple(logits.shape)} with labels {tuple(target.shape)}",
                fix=_FLATTEN
                if logits.dim() > 2 and not function.startswith("binary")
                else f"pass {_EXPECTED_SHAPES[function]}: check view, reshape and squeeze",
            )
    return None


def explain_label_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    for function, wants_floats in (
        ("cross_entropy", False),
        ("nll_loss", False),
        ("binary_cross_entropy_with_logits", True),
        ("binary_cross_entropy", True),
        ("mse_loss", True),
        ("l1_loss", True),
    ):
        target = find_functional_variables(error, function).get("target")
        name = find_column(target, context.columns)
        if name is None or not isinstance(target, Tensor):
            continue
        if target.is_floating_point() if wants_floats else target.dtype in (torch.int64, torch.uint8):
            continue
        return _build_type_error(context, name, target, function, wants_floats=wants_floats)
    return None


def _build_type_error(
    context: FailureContext, name: str, target: Tensor, function: str, *, wants_floats: bool
) -> TensorTypeError:
    has = "floats" if target.is_floating_point() else "integers" if is_integer(target) else "booleans"
    wants = "floats" if wants_floats else "class indices (int64)"
    example = f"{context.describe_row(0)} has {format_first_value(context, name)}"
    return TensorTypeError(
        what=f"column {name!r} holds {has} ({format_dtype(target)}), and must hold {wants}",
        why=f"{function} in {context.name} compares the predictions with them",
        fix=f"store floats in the data ({example}), or call {name}.float() in forward"
        if wants_floats
        else f"store int64 in the data ({example}), or call {name}.long() in forward",
    )


def explain_backward_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Explain labels of a wrong type that fail in the backward pass, where no frame holds their name."""
    name = next((name for name in context.wanted_labels if is_integer(context.columns.get(name))), None)
    if name is None or match[1] not in ("Long", "Int"):
        return None
    return _build_type_error(context, name, context.columns[name], "the loss", wants_floats=True)


def explain_index_range(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    values = find_functional_variables(error, "embedding")
    index, weight = values.get("input"), values.get("weight")
    if not isinstance(index, Tensor) or not isinstance(weight, Tensor):
        return None
    known = weight.shape[0]
    name = find_column(index, context.columns)
    if name is None:
        return _explain_position_count(context, index.shape[-1], known) if index.dim() else None
    if name == "input_ids":
        return build_token_range_error(context, name, context.columns[name], known)
    layer = next((at for at, one in context.model.named_parameters() if one is weight), "").removesuffix(".weight")
    column = context.columns[name]
    wrong = (column < 0) | (column >= known)
    rows = wrong.reshape(len(wrong), -1).any(dim=1).nonzero().flatten().tolist()
    return OutOfRangeError(
        what=f"{int(column[wrong][0])} in column {name!r} is out of range: layer {layer!r} of {context.name} has "
        f"{known} embeddings, 0 to {known - 1}",
        why=f"it is in {context.describe_rows(rows)}",
        fix=f"map {name!r} to 0..{known - 1}, or enlarge the layer",
    )


def _explain_position_count(context: FailureContext, length: int, positions: int) -> OutOfRangeError | None:
    """Return the error for rows with more tokens than the model has positions."""
    name = getattr(context.inner, "main_input_name", "input_ids")
    tokens: Any = context.columns.get(name)
    if not isinstance(tokens, Tensor) or tokens.dim() < 2 or tokens.shape[-1] != length or length <= positions:
        return None
    return OutOfRangeError(
        what=f"rows of {length} tokens in column {name!r} are too long: {context.name} has {positions} positions",
        why=f"the batch is {describe_tree(context.columns)}",
        fix=f"truncate them in the tokenizer: tokenizer(..., truncation=True, max_length={positions})",
    )


def explain_expansion(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    return _explain_position_count(context, int(match[1]), int(match[2]))


def explain_input_width(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    found = find_failing_layer(error, context)
    name = find_column(found[2], context.columns) if found else None
    width = getattr(found[1], "in_features", None) if found else None
    if found is None or name is None or width is None:
        return None
    at, _, given = found
    return TensorShapeError(
        what=f"column {name!r} has {given.shape[-1]} features, and layer {at!r} of {context.name} takes {width}",
        why=f"the batch is {describe_tree(context.columns)}",
        fix=f"use nn.Linear({given.shape[-1]}, ...), or rows of {name!r} with {width} features",
    )


def explain_input_channels(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    found = find_failing_layer(error, context)
    name = find_column(found[2], context.columns) if found else None
    channels = getattr(found[1], "in_channels", None) if found else None
    if found is None or name is None or channels is None:
        return None
    at, _, given = found
    last = given.dim() == 4 and given.shape[-1] == channels
    return TensorShapeError(
        what=f"column {name!r} has {given.shape[1]} channels, and layer {at!r} of {context.name} takes {channels}",
        why=f"it has shape {tuple(given.shape)}, read as (rows, channels, ...)",
        fix=f"move the channels to dimension 1: {name}.permute(0, 3, 1, 2)"
        if last
        else f"use a layer with {given.shape[1]} input channels, or give {name!r} {channels} channels",
    )


def explain_input_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    found = find_failing_layer(error, context)
    name = find_column(found[2], context.columns) if found else None
    weight = getattr(found[1], "weight", None) if found else None
    if found is None or name is None or not isinstance(weight, Tensor):
        return None
    at, _, given = found
    return TensorTypeError(
        what=f"column {name!r} is {format_dtype(given)}, and layer {at!r} of {context.name} computes in "
        f"{format_dtype(weight)}",
        why=f"the batch is {describe_tree(context.columns)}",
        fix=f"store float32 in the data, or call {name}.float() in forward"
        if weight.dtype is torch.float32
        else "load the model in float32, and set bf16=True to compute in half precision",
    )


def explain_index_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    name = find_column(find_functional_variables(error, "embedding").get("input"), context.columns)
    if name is None:
        return None
    return TensorTypeError(
        what=f"column {name!r} is {format_dtype(context.columns[name])}, and embeddings are indexed by integers",
        why=f"{context.describe_row(0)} has {format_first_value(context, name)}",
        fix=f"store integers in the data, or call {name}.long() in forward",
    )


def explain_column_type(error: Exception, context: FailureContext, match: re.Match[str]) -> OstinatoError | None:
    """Explain a column that reaches a layer as a list, an array or text."""
    kind = match[1].rpartition(".")[2]
    name = next((name for name, column in context.columns.items() if type(column).__name__ == kind), None)
    if name is None or kind == "NoneType":
        return None
    return TensorTypeError(
        what=f"column {name!r} is a {kind}, and must be a tensor",
        why=f"the data_collator returned {describe_tree(context.columns)}",
        fix=f"convert it in the data_collator: torch.tensor(...); drop {name!r} if it holds no numbers",
    )
