"""Labels at which a loss has failed. Each function gets what torch said, and None if it was about something else."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from ..core.errors import OstinatoError, TensorShapeError, TensorTypeError
from .context import Scene, column_of, example_of, is_integer, kind_of
from .frames import functional_variables
from .model_heads import IGNORED, labels_out_of_range


def label_range(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    values, value = functional_variables(error, "cross_entropy"), int(match[1])
    logits, target = values.get("input"), values.get("target")
    name = column_of(target, scene.columns) or _column_with(scene, value)
    if name is None:
        return None
    classes = logits.shape[1 if logits.dim() > 1 else 0] if isinstance(logits, Tensor) else None
    labels = scene.columns[name]
    beyond = labels >= classes if classes is not None else labels == value
    wrong = (labels != IGNORED) & ((labels < 0) | beyond)
    fix = "give the last layer one output per class, or map the labels to the classes it has"
    outcomes = f"has {classes} classes, 0 to {classes - 1}" if classes is not None else "has fewer classes"
    return labels_out_of_range(scene, name, labels, wrong, outcomes, fix)


def gathered_label(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    """A loss that picks the label's entry out of the logits, as label smoothing does."""
    value, classes = int(match[1]), int(match[2])
    name = _column_with(scene, value)
    if name is None or value < classes:
        return None
    labels = scene.columns[name]
    fix = f"give the model {value + 1} classes or more, or map the labels to 0..{classes - 1}"
    return labels_out_of_range(
        scene, name, labels, labels >= classes, f"has {classes} classes, 0 to {classes - 1}", fix
    )


def _column_with(scene: Scene, value: int) -> str | None:
    """The labels that hold a number."""
    names = [*scene.wanted_labels, *scene.columns]
    return next(
        (
            name
            for name in names
            if is_integer(scene.columns.get(name))
            and (name in scene.wanted_labels or "label" in name)
            and bool((scene.columns[name] == value).any())
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


def label_count(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    for function in _PAIRS:
        values = functional_variables(error, function)
        logits, target = values.get("input"), values.get("target")
        name = column_of(target, scene.columns)
        if name is not None and isinstance(logits, Tensor) and isinstance(target, Tensor):
            return TensorShapeError(
                what=f"column {name!r} and the predictions do not match in number",
                why=f"{function} compares logits {tuple(logits.shape)} with labels {tuple(target.shape)}",
                fix=_ONE_BY_ONE
                if logits.dim() > 2 and not function.startswith("binary")
                else f"make them {_PAIRS[function]}: see what view, reshape or squeeze does to them",
            )
    return None


def label_type(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    for function, wants_floats in (
        ("cross_entropy", False),
        ("nll_loss", False),
        ("binary_cross_entropy_with_logits", True),
        ("binary_cross_entropy", True),
        ("mse_loss", True),
        ("l1_loss", True),
    ):
        target = functional_variables(error, function).get("target")
        name = column_of(target, scene.columns)
        if name is None or not isinstance(target, Tensor):
            continue
        if target.is_floating_point() if wants_floats else target.dtype in (torch.int64, torch.uint8):
            continue
        return _of_wrong_type(scene, name, target, function, wants_floats=wants_floats)
    return None


def _of_wrong_type(scene: Scene, name: str, target: Tensor, function: str, *, wants_floats: bool) -> TensorTypeError:
    has = "floats" if target.is_floating_point() else "integers" if is_integer(target) else "truth values"
    wants = "floats" if wants_floats else "numbers of classes (int64)"
    where = scene.row(0)
    return TensorTypeError(
        what=f"column {name!r} holds {has} ({kind_of(target)}), and must hold {wants}",
        why=f"{function} in {scene.name} compares the predictions with them",
        fix=f"write floats into the data ({where} has {example_of(scene, name)}), or call {name}.float() in forward"
        if wants_floats
        else f"write int64 into the data ({where} has {example_of(scene, name)}), or call {name}.long() in forward",
    )


def backward_type(error: Exception, scene: Scene, match: re.Match[str]) -> OstinatoError | None:
    """Found on the way back: the types of predictions and labels differ, and no frame knows their names."""
    name = next((name for name in scene.wanted_labels if is_integer(scene.columns.get(name))), None)
    if name is None or match[1] not in ("Long", "Int"):
        return None
    return _of_wrong_type(scene, name, scene.columns[name], "the loss", wants_floats=True)
