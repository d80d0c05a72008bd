"""Evaluation and prediction: the loop, one step of it, its metrics, and the rows it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import eval_loop, eval_metrics, eval_plan, metric_run, request, step, train_metrics
else:
    __getattr__ = load_on_use(__name__)
