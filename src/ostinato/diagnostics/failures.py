"""Find the mistake because of which the model, its loss or the backward pass failed on a batch.

The message of torch and the tensors in the frames of the traceback show which column it is about. If they do not, the
user's exception is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..core.errors import OstinatoError
from ..loss.model_outputs import NoLossError
from . import call_errors, tensor_errors
from .column_errors import explain_missing_loss
from .context import FailureContext
from .exception_notes import MemorySettings, note_batch
from .model_heads import find_mistake

# Parts of torch's messages about labels or tokens that do not fit; other messages have other reasons.
_DATA_MESSAGES = re.compile(
    r"target|out of (bounds|range)|device-side assert|batch_size|be cast|(input|view|tensor) size|invalid for input|"
    r"too many indices|must match|indices",
    re.IGNORECASE,
)

Named = tuple[OstinatoError, bool]


def explain_failure(error: Exception, context: FailureContext, where: str, memory: MemorySettings) -> Exception:
    """Return what to raise when a batch has failed: a named error, or the user's exception with a note."""
    try:
        named = name_mistake(error, context)
        if named is None and not isinstance(error, OstinatoError):
            note_batch(error, context, where, memory)
    except Exception:  # if the explanation fails, the user has to see the original exception
        return error
    if named is None:
        return error
    mistake, shows_cause = named
    mistake.__cause__ = error if shows_cause else None
    return mistake


def name_mistake(error: Exception, context: FailureContext) -> Named | None:
    """Return the error behind an exception, and whether the exception is worth showing; None if unknown."""
    if isinstance(error, NoLossError):
        return explain_missing_loss(context, error.returned), False
    if isinstance(error, OstinatoError):
        return None
    text = str(error)
    if _DATA_MESSAGES.search(text):
        found = find_mistake(context)
        if found is not None:
            return found, False
    for pattern, matcher in _PATTERNS:
        match = re.search(pattern, text)
        named = matcher(error, context, match) if match else None
        if named is not None:
            return named, matcher in _CAUSES_TO_SHOW
    return None


Matcher = Callable[[Exception, FailureContext, "re.Match[str]"], OstinatoError | None]

# Messages of torch, transformers or Python, and the functions that can explain them. The first explanation is used.
_PATTERNS: list[tuple[str, Matcher]] = [
    (r"Target (-?\d+) is out of bounds", tensor_errors.explain_label_range),
    (r"index (\d+) is out of bounds for dimension -?\d+ with size (\d+)", tensor_errors.explain_gathered_label),
    (r"Expected input batch_size \(\d+\) to match target batch_size", tensor_errors.explain_label_count),
    (r"Expected target size \[.*\], got \[.*\]", tensor_errors.explain_label_count),
    (r"0D or 1D target tensor expected", tensor_errors.explain_label_count),
    (r"Target size .* must be the same as input size", tensor_errors.explain_label_count),
    (r"expected (scalar type|target dtype to be) Long", tensor_errors.explain_label_type),
    (r"[Ee]xpected floating point type for target with class probabilities", tensor_errors.explain_label_type),
    (r"result type Float can't be cast to the desired output type", tensor_errors.explain_label_type),
    (r"Found dtype (\w+) but expected (\w+)", tensor_errors.explain_backward_type),
    (r"index out of range in self", tensor_errors.explain_index_range),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)", tensor_errors.explain_expansion),
    (r"mat1 and mat2 shapes cannot be multiplied", tensor_errors.explain_input_width),
    (r"expected input\[.*\] to have \d+ channels, but got \d+ channels", tensor_errors.explain_input_channels),
    (r"mat1 and mat2 must have the same dtype", tensor_errors.explain_input_type),
    (r"Input type .* and (weight|bias) type .* should be the same", tensor_errors.explain_input_type),
    (r"expected scalar type \w+ but found", tensor_errors.explain_input_type),
    (r"Expected tensor for argument #1 'indices' to have one of", tensor_errors.explain_index_type),
    (r"must be Tensor, not ([\w.]+)", tensor_errors.explain_column_type),
    (r"must be a mapping|object is not a mapping", call_errors.explain_batch_type),
    (r"got an unexpected keyword argument", call_errors.explain_call),
    (r"missing \d+ required (positional|keyword-only) arguments?", call_errors.explain_call),
    (r"takes (from \d+ to )?\d+ positional arguments? but \d+", call_errors.explain_call),
    (r"NoneType", call_errors.explain_labels_of_none),
    (r"[Yy]ou (must|have to|cannot) specify", call_errors.explain_no_inputs),
    (r"element 0 of tensors does not require grad", call_errors.explain_no_gradient),
]

# These happen in the user's own frames, so the original exception is shown as well.
_CAUSES_TO_SHOW = {
    tensor_errors.explain_label_count,
    tensor_errors.explain_label_type,
    tensor_errors.explain_column_type,
    tensor_errors.explain_input_width,
    tensor_errors.explain_input_channels,
    tensor_errors.explain_input_type,
    tensor_errors.explain_index_type,
}
