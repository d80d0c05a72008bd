"""Columns at which a layer has failed. Only a column that meets the layer itself is to blame for it."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from ..core.errors import OstinatoError, OutOfRangeError, TensorShapeError, TensorTypeError
from .context import Scene, column_of, example_of, in_words, kind_of
from .frames import failing_layer, functional_variables
from .model_heads import tokens_out_of_range


def index_range(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    values = functional_variables(error, "embedding")
    index, weight = values.get("input"), values.get("weight")
    if not isinstance(index, Tensor) or not isinstance(weight, Tensor):
        return None
    known = weight.shape[0]
    name = column_of(index, scene.columns)
    if name is None:
        return _too_many_positions(scene, index.shape[-1], known) if index.dim() else None
    if name == "input_ids":
        return tokens_out_of_range(scene, name, scene.columns[name], known)
    layer = next((at for at, one in scene.model.named_parameters() if one is weight), "").removesuffix(".weight")
    column = scene.columns[name]
    wrong = (column < 0) | (column >= known)
    rows = wrong.reshape(len(wrong), -1).any(dim=1).nonzero().flatten().tolist()
    return OutOfRangeError(
        what=f"{int(column[wrong][0])} in column {name!r} is out of range: layer {layer!r} of {scene.name} has "
        f"{known} embeddings, 0 to {known - 1}",
        why=f"it is in {scene.row_numbers(rows)}",
        fix=f"map {name!r} to 0..{known - 1}, or make the layer larger",
    )


def _too_many_positions(scene: Scene, length: int, positions: int) -> OutOfRangeError | None:
    """A table of positions is asked for more places than it has; it is indexed by counting, not by a column."""
    name = getattr(scene.inner, "main_input_name", "input_ids")
    tokens: Any = scene.columns.get(name)
    if not isinstance(tokens, Tensor) or tokens.dim() < 2 or tokens.shape[-1] != length or length <= positions:
        return None
    return OutOfRangeError(
        what=f"rows of {length} tokens in column {name!r} are too long: {scene.name} has {positions} positions",
        why=f"the batch is {in_words(scene.columns)}",
        fix=f"cut them when they are made: tokenizer(..., truncation=True, max_length={positions})",
    )


def expanded(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    return _too_many_positions(scene, int(match[1]), int(match[2]))


def input_width(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    found = failing_layer(error, scene)
    name = column_of(found[2], scene.columns) if found else None
    width = getattr(found[1], "in_features", None) if found else None
    if found is None or name is None or width is None:
        return None
    at, _, given = found
    return TensorShapeError(
        what=f"column {name!r} is {given.shape[-1]} wide, and layer {at!r} of {scene.name} takes {width} numbers",
        why=f"the batch is {in_words(scene.columns)}",
        fix=f"make the layer nn.Linear({given.shape[-1]}, ...), or the rows of {name!r} {width} wide",
    )


def input_channels(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    found = failing_layer(error, scene)
    name = column_of(found[2], scene.columns) if found else None
    channels = getattr(found[1], "in_channels", None) if found else None
    if found is None or name is None or channels is None:
        return None
    at, _, given = found
    last = given.dim() == 4 and given.shape[-1] == channels
    return TensorShapeError(
        what=f"column {name!r} has {given.shape[1]} channels, and layer {at!r} of {scene.name} takes {channels}",
        why=f"it has shape {tuple(given.shape)}, read as (rows, channels, ...)",
        fix=f"bring the channels to the front: {name}.permute(0, 3, 1, 2)"
        if last
        else f"make the layer take {given.shape[1]} channels, or give {name!r} {channels} of them",
    )


def input_type(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    found = failing_layer(error, scene)
    name = column_of(found[2], scene.columns) if found else None
    weight = getattr(found[1], "weight", None) if found else None
    if found is None or name is None or not isinstance(weight, Tensor):
        return None
    at, _, given = found
    return TensorTypeError(
        what=f"column {name!r} is {kind_of(given)}, and layer {at!r} of {scene.name} computes in {kind_of(weight)}",
        why=f"the batch is {in_words(scene.columns)}",
        fix=f"write float32 into the data, or call {name}.float() in forward"
        if weight.dtype is torch.float32
        else "load the model in float32, and set bf16=True to compute in half precision",
    )


def index_type(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    name = column_of(functional_variables(error, "embedding").get("input"), scene.columns)
    if name is None:
        return None
    return TensorTypeError(
        what=f"column {name!r} is {kind_of(scene.columns[name])}, and embeddings are looked up by integers",
        why=f"{scene.row(0)} has {example_of(scene, name)}",
        fix=f"write integers into the data, or call {name}.long() in forward",
    )


def no_tensor(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    """A layer that was given a list, an array or text."""
    kind = match[1].rpartition(".")[2]
    name = next((name for name, column in scene.columns.items() if type(column).__name__ == kind), None)
    if name is None or kind == "NoneType":
        return None
    return TensorTypeError(
        what=f"column {name!r} is a {kind}, and must be a tensor",
        why=f"the data_collator returned {in_words(scene.columns)}",
        fix=f"let it make tensors of numbers: torch.tensor(...), and leave out {name!r} if it holds none",
    )
