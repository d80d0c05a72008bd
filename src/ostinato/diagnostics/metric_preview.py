"""Describe what `compute_metrics` would receive for a batch, and suggest metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from ..arguments.settings import MetricInputSettings
from ..core.compiled_model import get_uncompiled
from ..core.eval_prediction import has_labels
from ..core.tree import first_dimension, numpify
from ..data.columns import unwrap_model
from ..evaluation.metric_spec import MetricSpec
from ..evaluation.storage.forecast import Forecast, forecast
from ..metrics.auto import Choice, facts_of, suits
from . import describe_values
from .batch_report import MetricInputs, SuggestedMetrics, Value
from .example_row import RowDecoder, describe_row
from .exception_notes import get_callable_name
from .hosts import ExplainHost


@dataclass(frozen=True)
class EvaluatedBatch:
    """The results of one evaluated batch, on the host."""

    batch: Mapping[str, Any]
    predictions: Any
    labels: Any
    loss: Any
    names: tuple[str, ...]  # of the predictions in the model's output; empty if they are unknown


def evaluate_batch(trainer: ExplainHost, batch: Mapping[str, Any]) -> EvaluatedBatch:
    """Evaluate one batch."""
    model = get_uncompiled(trainer._wrap_model(trainer.model, training=False))
    model.eval()
    with torch.no_grad(), trainer.precision.forward(trainer.model):
        loss, logits, labels = trainer.prediction_step(model, dict(batch), False)
    names = trainer._output_names.of(logits) or ()
    if logits is not None and trainer.preprocess_logits_for_metrics is not None:
        logits, names = trainer.preprocess_logits_for_metrics(logits, labels), ()
    return EvaluatedBatch(batch, numpify(logits), numpify(labels), loss, names)


def describe_metric_inputs(
    trainer: ExplainHost, evaluated: EvaluatedBatch, asked: MetricSpec, *, data: str, rows: int | None
) -> MetricInputs:
    """Describe what the metric function receives, using one batch as an example."""
    include = MetricInputSettings.of(trainer.args).include
    values = _describe_parts("predictions", evaluated.predictions, _list_notes(trainer, evaluated))
    values += _describe_parts("label_ids", evaluated.labels, trainer.label_names, are_labels=True)
    if "inputs" in include:
        values += _describe_inputs(trainer, evaluated.batch)
    if "loss" in include and evaluated.loss is not None:
        values.append(Value("losses", (first_dimension(evaluated.batch) or 1,), "float32", "of each row's batch"))
    kept = _forecast_memory(trainer, evaluated, rows) if asked.function is not None else None
    return MetricInputs(
        data=data,
        function=None if asked.function is None else get_callable_name(asked.function),
        called=_describe_call(trainer, evaluated, asked, data, rows),
        values=tuple(values),
        ignored=describe_values.find_ignored_share(evaluated.labels),
        example=describe_row(
            evaluated.batch, evaluated.predictions, evaluated.labels, _build_decoder(trainer, evaluated)
        ),
        rows=rows,
        bytes=None if kept is None else kept.bytes,
        spills=kept is not None and kept.spills,
    )


def _describe_inputs(trainer: ExplainHost, batch: Mapping[str, Any]) -> list[Value]:
    if MetricInputSettings.of(trainer.args).by_batch:
        return [describe_values.describe_value(f"inputs[{name!r}]", value, "") for name, value in batch.items()]
    main = getattr(trainer.model, "main_input_name", "input_ids")
    return [describe_values.describe_value("inputs", batch.get(main), f"column {main!r}")]


def _forecast_memory(trainer: ExplainHost, evaluated: EvaluatedBatch, rows: int | None) -> Forecast | None:
    """Estimate the memory that all rows take, from those of this batch."""
    settings = MetricInputSettings.of(trainer.args)
    if rows is None or evaluated.predictions is None or evaluated.labels is None or settings.by_batch:
        return None
    parts = {"predictions": evaluated.predictions, "labels": evaluated.labels}
    in_batch = first_dimension(evaluated.batch) or 1
    return forecast(parts, in_batch, rows, settings.memory)


def _list_notes(trainer: ExplainHost, evaluated: EvaluatedBatch) -> Sequence[str]:
    """Return a note for each of the predictions."""
    function = trainer.preprocess_logits_for_metrics
    return evaluated.names if function is None else [f"returned by {get_callable_name(function)}"]


def _describe_parts(name: str, parts: Any, notes: Sequence[str], *, are_labels: bool = False) -> list[Value]:
    """Describe one array, or each of several."""
    if parts is None:
        return []
    if isinstance(parts, (tuple, list)):
        known = notes if len(notes) == len(parts) else [""] * len(parts)
        return [
            describe_values.describe_value(f"{name}[{place}]", part, known[place]) for place, part in enumerate(parts)
        ]
    note = notes[0] if len(notes) == 1 and not are_labels else ""
    return [describe_values.describe_value(name, parts, note, is_label=are_labels)]


def _describe_call(
    trainer: ExplainHost, evaluated: EvaluatedBatch, asked: MetricSpec, data: str, rows: int | None
) -> str:
    """Return when the metric function is called, and with what."""
    settings, names = MetricInputSettings.of(trainer.args), ", ".join(list_metrics_in_use(asked))
    if not asked:
        return "compute_metrics is not set; for this batch it would receive numpy arrays:"
    what = f"compute_metrics={names}" if asked.function is not None else f"the metrics ({names})"
    if settings.loss_only:
        return f"{what}: never called, since prediction_loss_only=True; for this batch:"
    takes_all = asked.function is not None or any(stream.takes == "prediction" for stream in asked.streams)
    if evaluated.labels is None or not (has_labels(evaluated.labels) or takes_all):
        return f"{what}: never called, since the batches of the {data} have no labels"
    if asked.function is None:
        return f"{what} are updated batch by batch, and keep none; for this batch with:"
    if settings.by_batch:
        return f"{what} is called with tensors after every batch; for this batch with:"
    kind = "numpy arrays" if settings.concatenates else "lists of arrays, one per batch,"
    every = "all rows" if rows is None else f"all {rows:,} rows"
    return f"{what} receives {kind} of {every}; for this batch alone:"


def _build_decoder(trainer: ExplainHost, evaluated: EvaluatedBatch) -> RowDecoder:
    config = getattr(unwrap_model(trainer.model), "config", None)
    processing = trainer.processing_class
    tokenizer = processing if callable(getattr(processing, "decode", None)) else getattr(processing, "tokenizer", None)
    label = evaluated.labels
    several = isinstance(label, np.ndarray) and label.ndim == 2 and label.dtype.kind == "f"
    names = getattr(config, "id2label", None)
    return RowDecoder(
        tokenizer=tokenizer,
        class_names=names if isinstance(names, Mapping) else None,
        classes=getattr(config, "num_labels", None),
        vocabulary=getattr(config, "vocab_size", None),
        several=several and getattr(config, "problem_type", None) != "regression",
        shifts=bool(trainer._loss_shifts_labels),
    )


def suggest_metrics(trainer: ExplainHost, labels: Any, asked: MetricSpec) -> SuggestedMetrics:
    """Return the metrics in use, and those that suit the model and its labels."""
    facts = facts_of(
        unwrap_model(trainer.model),
        labels=labels,
        label_names=tuple(trainer.label_names),
        generates=MetricInputSettings.of(trainer.args).generates,
        installed=[name for name in ("sacrebleu",) if find_spec(name) is not None],
    )
    choice = suits(facts)
    how = "compute_metrics='auto'" if choice.names and not asked.auto else ""
    return SuggestedMetrics(
        list_metrics_in_use(asked), tuple(_format_metric(choice, name) for name in choice.names), choice.why, how
    )


def list_metrics_in_use(asked: MetricSpec) -> tuple[str, ...]:
    """Return the names of the metrics in use, or of the function that computes them."""
    function = () if asked.function is None else (get_callable_name(asked.function),)
    streams = (name for stream in asked.streams for name in stream.keys or (stream.name,))
    return (*function, *streams, *(("'auto'",) if asked.auto else ()))


def _format_metric(choice: Choice, name: str) -> str:
    average = choice.options.get(name, {}).get("average")
    return name if average is None else f"{name} ({average})"
