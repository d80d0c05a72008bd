"""Explain metric functions that cannot be called, or would never be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import MetricFunctionError, OstinatoError
from ..core.notices import note_once
from ..core.phrases import join_names
from .column_errors import find_label_column
from .context import FailureContext, was_entered
from .exception_notes import MemorySettings, note_function
from .failures import explain_failure

_ARGUMENT_NAMES = {
    "metrics": "compute_metrics",
    "batches": "compute_metrics",
    "logits": "preprocess_logits_for_metrics",
}
_DEFINITIONS = {
    "metrics": 'def compute_metrics(prediction): logits, labels = prediction; return {"accuracy": ...}',
    "batches": "def compute_metrics(prediction, compute_result): ..., or set batch_eval_metrics=False",
    "logits": "def preprocess_logits_for_metrics(logits, labels): return logits.argmax(-1)",
}
_CALLS = {
    "metrics": "one EvalPrediction (predictions, label_ids)",
    "batches": "one EvalPrediction and compute_result=True or False (batch_eval_metrics=True)",
    "logits": "(logits, labels) of each batch",
}


def explain_evaluation(
    error: Exception,
    context: FailureContext,
    *,
    doing: str,
    given: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any] | None],
    number: int,
    memory: MemorySettings,
) -> Exception:
    """Return what to raise when an evaluation has failed while `doing` something: the model, or one of `functions`."""
    function = functions.get(doing)
    if function is not None:
        return explain_metric_function(error, doing, function, given)
    return explain_failure(error, context, f"in batch {number + 1}", memory) if doing == "model" else error


def explain_metric_function(
    error: Exception, doing: str, function: Callable[..., Any], given: Mapping[str, Any]
) -> Exception:
    """Return what to raise when a metric function has failed: its exception with a note, or a named error."""
    if isinstance(error, OstinatoError):
        return error
    if isinstance(error, TypeError) and not was_entered(error, function):
        if "compute_result" in str(error):
            doing = "batches"
        return MetricFunctionError(
            what=f"{_ARGUMENT_NAMES[doing]} cannot be called: {str(error).partition('() ')[2] or error}",
            why=f"it is called with {_CALLS[doing]}, and its signature is {_format_signature(function)}",
            fix=f"define it as {_DEFINITIONS[doing]}",
        )
    note_function(error, _ARGUMENT_NAMES[doing], function, given)
    return error


def _format_signature(function: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "unknown"


def report_labels(context: FailureContext, *, is_mistake: bool, by_name: bool = False) -> None:
    """Raise or note that metrics are wanted and the batches have no labels.

    `by_name`: the metrics were requested by name, so that there is no function to call.
    """
    mistake = find_missing_labels(context, by_name=by_name)
    if mistake is not None and is_mistake:
        raise mistake
    if mistake is not None:
        note_once(f"{mistake.what}; {mistake.why}")
    elif is_mistake:
        happens = "no metric is computed" if by_name else "compute_metrics is not called"
        note_once(f"{happens}: the {context.data} has no labels")


def find_missing_labels(context: FailureContext, *, by_name: bool = False) -> MetricFunctionError | None:
    """Return the error for batches without labels if another column looks like them."""
    candidate = find_label_column([*context.columns, *context.left_out()], context.label_names)
    if candidate is None:
        return None
    why = f"they have {join_names(context.columns)}; "
    if context.label_names:
        why += f"the labels are expected in {join_names(map(repr, context.label_names))}"
    else:
        why += f"no parameter of {context.name}.forward is named like labels"
    if candidate not in context.columns:
        why += f"; column {candidate!r} is dropped"
    happens = "no metric can be computed" if by_name else "compute_metrics would never be called"
    return MetricFunctionError(
        what=f"{happens}: the batches of the {context.data} have no labels",
        why=why,
        fix=_suggest_label_names(context, candidate),
    )


def _suggest_label_names(context: FailureContext, candidate: str) -> str:
    if candidate in context.columns and context.takes(candidate):
        return f"set label_names=[{candidate!r}]"
    if context.loss_func is not None and not context.takes("labels"):
        rename = "" if candidate == "labels" else f"rename {candidate!r} to 'labels', and "
        return f"{rename}set label_names=['labels']"
    if context.label_names and context.takes(context.label_names[0]):
        return f"rename {candidate!r} to {context.label_names[0]!r}"
    return f"let forward take {candidate}=None, and set label_names=[{candidate!r}]"
