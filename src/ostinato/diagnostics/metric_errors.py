"""Metric functions that cannot be called, or would never be."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import MetricFunctionError, OstinatoError
from ..core.notices import note_once
from ..core.phrases import listed
from .column_errors import likely_labels
from .context import Scene, was_entered
from .exception_notes import Memory, note_function
from .failures import explained

_NAMES = {
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


def explained_evaluation(
    error: Exception,
    scene: Scene,
    *,
    doing: str,
    given: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any] | None],
    number: int,
    memory: Memory,
) -> Exception:
    """What to raise when an evaluation has failed while it was `doing` something: the model, or one of `functions`."""
    function = functions.get(doing)
    if function is not None:
        return explained_function(error, doing, function, given)
    return explained(error, scene, f"in batch {number + 1}", memory) if doing == "model" else error


def explained_function(
    error: Exception, doing: str, function: Callable[..., Any], given: Mapping[str, Any]
) -> Exception:
    """What to raise when a metric function has failed: its own exception with a note, or that it cannot be called."""
    if isinstance(error, OstinatoError):
        return error
    if isinstance(error, TypeError) and not was_entered(error, function):
        if "compute_result" in str(error):
            doing = "batches"
        return MetricFunctionError(
            what=f"{_NAMES[doing]} cannot be called: {str(error).partition('() ')[2] or error}",
            why=f"it is given {_CALLS[doing]}, and defined with {_signature(function)}",
            fix=f"define it as {_DEFINITIONS[doing]}",
        )
    note_function(error, _NAMES[doing], function, given)
    return error


def _signature(function: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "another signature"


def tell_no_labels(scene: Scene, *, is_mistake: bool, by_name: bool = False) -> None:
    """Metrics are wanted, and the batches have no labels to compare with: raise where that must be a mistake.

    `by_name`: they were asked for by name, and there is no function that would be called.
    """
    mistake = no_labels(scene, by_name=by_name)
    if mistake is not None and is_mistake:
        raise mistake
    if mistake is not None:
        note_once(f"{mistake.what}; {mistake.why}")
    elif is_mistake:
        happens = "no metric is computed" if by_name else "compute_metrics is not called"
        note_once(f"{happens}: the {scene.data} has no labels")


def no_labels(scene: Scene, *, by_name: bool = False) -> MetricFunctionError | None:
    """Metrics are wanted, and the batches have no labels: an error if a column looks like them."""
    candidate = likely_labels([*scene.columns, *scene.left_out()], scene.label_names)
    if candidate is None:
        return None
    why = f"they hold {listed(scene.columns)}; "
    if scene.label_names:
        why += f"labels are looked for under {listed(map(repr, scene.label_names))}"
    else:
        why += f"no parameter of {scene.name}.forward is called after labels"
    if candidate not in scene.columns:
        why += f"; column {candidate!r} is left out"
    happens = "no metric can be computed" if by_name else "compute_metrics would never be called"
    return MetricFunctionError(
        what=f"{happens}: the batches of the {scene.data} have no labels",
        why=why,
        fix=_way_to_labels(scene, candidate),
    )


def _way_to_labels(scene: Scene, candidate: str) -> str:
    if candidate in scene.columns and scene.takes(candidate):
        return f"set label_names=[{candidate!r}]"
    if scene.loss_func is not None and not scene.takes("labels"):
        rename = "" if candidate == "labels" else f"rename {candidate!r} to 'labels', and "
        return f"{rename}set label_names=['labels']"
    if scene.label_names and scene.takes(scene.label_names[0]):
        return f"rename {candidate!r} to {scene.label_names[0]!r}"
    return f"let forward take {candidate}=None, and set label_names=[{candidate!r}]"
