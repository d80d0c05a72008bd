"""Built-in metrics: offline, streaming, mergeable over processes, one file per family; and which one fits.

    from ostinato.metrics import metric, metrics

    Trainer(..., compute_metrics=metric("f1", average="macro"))
    Trainer(..., compute_metrics=metrics(["accuracy", "mcc"], interval=0.95))

A metric sees one batch at a time (`update`), so evaluation needs not keep the logits. `available()` lists all names.
"""

from __future__ import annotations

from .auto import Choice, Facts, facts_of, suits
from .base import Metric, StreamingMetric, is_streaming
from .entities import Entity, lenient_entities
from .language import aligned, labels_are_shifted
from .registry import Combined, available, higher_is_better, metric, metrics

__all__ = [
    "Choice",
    "Combined",
    "Entity",
    "Facts",
    "Metric",
    "StreamingMetric",
    "aligned",
    "available",
    "facts_of",
    "higher_is_better",
    "is_streaming",
    "labels_are_shifted",
    "lenient_entities",
    "metric",
    "metrics",
    "suits",
]
