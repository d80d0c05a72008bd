"""Built-in metrics: offline, streaming, mergeable over processes, one file per family; and which one fits.

    from ostinato.metrics import metric, metrics

    Trainer(..., compute_metrics=metric("f1", average="macro"))
    Trainer(..., compute_metrics=metrics(["accuracy", "mcc"], interval=0.95))

A metric sees one batch at a time (`update`), so evaluation needs not keep the logits. `available()` lists all names.
Modules load on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import train_window
    from .auto import Choice, Facts, facts_of, suits
    from .base import Metric, StreamingMetric, is_streaming
    from .combination import Combined
    from .entities import Entity, lenient_entities
    from .language import aligned, labels_are_shifted
    from .registry import available, higher_is_better, metric, metrics
else:
    __getattr__ = load_on_use(
        __name__,
        {
            "auto": ["Choice", "Facts", "facts_of", "suits"],
            "base": ["Metric", "StreamingMetric", "is_streaming"],
            "combination": ["Combined"],
            "entities": ["Entity", "lenient_entities"],
            "language": ["aligned", "labels_are_shifted"],
            "registry": ["available", "higher_is_better", "metric", "metrics"],
        },
    )

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
