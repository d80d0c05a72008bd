"""`train_metrics=`: streaming metrics over the training batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..core.errors import MetricError
from ..core.logged_numbers import is_collecting
from ..core.notices import note_once
from ..core.outputs import EvalPrediction
from ..core.protocols import Batch, TrainMetricsHost
from ..core.tree import detach
from ..loss.model_outputs import split_result
from ..metrics.train_window import MetricWindow
from .metric_spec import MetricSpec, parse_metrics
from .request import get_known_options
from .step import get_ignored_outputs, logits_of, names_of


def parse_train_metrics(wanted: Any) -> MetricSpec:
    """Return the requested metrics; raise if they are invalid. Called in the constructor."""
    metrics = parse_metrics(metrics=wanted)
    if metrics.auto or metrics.function is not None:
        raise MetricError(
            what=f"train_metrics={wanted!r} cannot be computed batch by batch",
            why="they are computed while the model trains, by name or by objects with update, compute and reset",
            fix="train_metrics=['accuracy']",
        )
    return metrics


def open_window(host: TrainMetricsHost) -> MetricWindow | None:
    """Return the metrics of the run that starts; None if none were requested."""
    wanted = parse_train_metrics(host.train_metrics)
    if not wanted:
        return None
    signature = host._get_loss_signature()
    if not signature.takes_return_outputs:
        raise MetricError(
            what="train_metrics need the model's outputs, and compute_loss does not return them",
            why=f"{host._name_loss_source()} takes no return_outputs",
            fix="def compute_loss(self, model, inputs, return_outputs=False, ...), which ends with: "
            "return (loss, outputs) if return_outputs else loss",
        )
    window = MetricWindow(wanted.streams, get_known_options(host), get_ignored_outputs(host.model))
    if window.foreign and host.strategy.size > 1:
        names = ", ".join(window.foreign)
        note_once(f"train_metrics: {names} is of the rows of one process, unless it asks the others itself")
    return window


def compute_loss(host: TrainMetricsHost, model: nn.Module, inputs: Batch, **count: Any) -> Any:
    """Return the loss of a training batch; pass its predictions to the metrics."""
    window = host._train_window
    assert window is not None
    labels = list(map(inputs.get, host.label_names))  # read first: some losses remove them from the batch
    result = host.compute_loss(model, inputs, return_outputs=True, **count)
    is_pair = type(result) is tuple and len(result) == 2  # nearly always
    loss, outputs = result if is_pair else split_result(result, host.loss_objective.source)
    if is_collecting():
        _add_to_window(host, window, outputs, labels)
    return loss


def _add_to_window(host: TrainMetricsHost, window: MetricWindow, outputs: Any, labels: list[Any]) -> None:
    shifts, tokenizer = bool(host._loss_shifts_labels), host.processing_class
    # The usual case has a short path, since steps are short: the general one takes longer than a metric's update.
    plain = isinstance(outputs, dict) and "logits" in outputs and "logits" not in window.ignored and len(labels) == 1
    if plain and window.hold(outputs["logits"], labels[0], tokenizer, shifts=shifts):
        return
    if not labels or any(label is None for label in labels):
        return
    logits = tuple(map(_detach, logits_of(outputs, window.ignored, has_loss=True)))
    window.add(
        EvalPrediction(
            predictions=_unwrap_single(logits),
            label_ids=_unwrap_single(tuple(map(_detach, labels))),
            output_names=names_of(outputs, window.ignored, has_loss=True),
            shifts_labels=shifts,
            processing_class=tokenizer,
        )
    )


def _detach(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else detach(value)


def _unwrap_single(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts
