"""Name the mistake for which a batch made the model, its loss or the backward pass fail.

The message of torch and the tensors in the frames of the traceback show which column is meant. Where they do not, the
user's exception is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..core.errors import OstinatoError
from ..loss.model_outputs import NoLossError
from . import call_errors, tensor_errors
from .column_errors import no_loss_from
from .context import FailureContext
from .exception_notes import Memory, note_batch
from .model_heads import find_mistake

# Words of torch for labels or tokens that do not fit; what fails with other words has another reason.
_TELLS_OF_DATA = re.compile(
    r"target|out of (bounds|range)|device-side assert|batch_size|be cast|(input|view|tensor) size|invalid for input|"
    r"too many indices|must match|indices",
    re.IGNORECASE,
)

Named = tuple[OstinatoError, bool]


def explain_failure(error: Exception, context: FailureContext, where: str, memory: Memory) -> Exception:
    """Return what to raise when a batch has failed: a named error, or the user's exception with a note."""
    try:
        named = name_mistake(error, context)
        if named is None and not isinstance(error, OstinatoError):
            note_batch(error, context, where, memory)
    except Exception:  # whatever is odd about this batch, what it raised first is what the user has to see
        return error
    if named is None:
        return error
    mistake, is_worth_reading = named
    mistake.__cause__ = error if is_worth_reading else None
    return mistake


def name_mistake(error: Exception, context: FailureContext) -> Named | None:
    """Return the error behind an exception, and whether the exception is worth showing; None if unknown."""
    if isinstance(error, NoLossError):
        return no_loss_from(context, error.returned), False
    if isinstance(error, OstinatoError):
        return None
    text = str(error)
    if _TELLS_OF_DATA.search(text):
        found = find_mistake(context)
        if found is not None:
            return found, False
    for pattern, matcher in _PATTERNS:
        match = re.search(pattern, text)
        named = matcher(error, context, match) if match else None
        if named is not None:
            return named, matcher in _WORTH_READING
    return None


Matcher = Callable[[Exception, FailureContext, "re.Match[str]"], OstinatoError | None]

# What torch, transformers or Python say, and who knows what it may mean. The first that finds it out has named it.
_PATTERNS: list[tuple[str, Matcher]] = [
    (r"Target (-?\d+) is out of bounds", tensor_errors.label_range),
    (r"index (\d+) is out of bounds for dimension -?\d+ with size (\d+)", tensor_errors.gathered_label),
    (r"Expected input batch_size \(\d+\) to match target batch_size", tensor_errors.label_count),
    (r"Expected target size \[.*\], got \[.*\]", tensor_errors.label_count),
    (r"0D or 1D target tensor expected", tensor_errors.label_count),
    (r"Target size .* must be the same as input size", tensor_errors.label_count),
    (r"expected (scalar type|target dtype to be) Long", tensor_errors.label_type),
    (r"[Ee]xpected floating point type for target with class probabilities", tensor_errors.label_type),
    (r"result type Float can't be cast to the desired output type", tensor_errors.label_type),
    (r"Found dtype (\w+) but expected (\w+)", tensor_errors.backward_type),
    (r"index out of range in self", tensor_errors.index_range),
    (r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)", tensor_errors.expanded),
    (r"mat1 and mat2 shapes cannot be multiplied", tensor_errors.input_width),
    (r"expected input\[.*\] to have \d+ channels, but got \d+ channels", tensor_errors.input_channels),
    (r"mat1 and mat2 must have the same dtype", tensor_errors.input_type),
    (r"Input type .* and (weight|bias) type .* should be the same", tensor_errors.input_type),
    (r"expected scalar type \w+ but found", tensor_errors.input_type),
    (r"Expected tensor for argument #1 'indices' to have one of", tensor_errors.index_type),
    (r"must be Tensor, not ([\w.]+)", tensor_errors.no_tensor),
    (r"must be a mapping|object is not a mapping", call_errors.no_mapping),
    (r"got an unexpected keyword argument", call_errors.wrong_call),
    (r"missing \d+ required (positional|keyword-only) arguments?", call_errors.wrong_call),
    (r"takes (from \d+ to )?\d+ positional arguments? but \d+", call_errors.wrong_call),
    (r"NoneType", call_errors.no_labels_for_loss),
    (r"[Yy]ou (must|have to|cannot) specify", call_errors.no_inputs),
    (r"element 0 of tensors does not require grad", call_errors.no_gradient),
]

# The frames in which these happened are the user's own, and worth seeing.
_WORTH_READING = {
    tensor_errors.label_count,
    tensor_errors.label_type,
    tensor_errors.no_tensor,
    tensor_errors.input_width,
    tensor_errors.input_channels,
    tensor_errors.input_type,
    tensor_errors.index_type,
}
