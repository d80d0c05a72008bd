"""The rows that an evaluation keeps of its batches, and the result that is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import ModelOutputError
from ..core.host_copy import HostCopy
from ..core.outputs import EvalLoopOutput
from ..core.tree import numpify
from .eval_metrics import average_losses, name_metrics
from .eval_plan import PADDING, EvalPlan
from .metric_run import CurrentBatch, MetricRun
from .shared_results import share_results
from .storage.row_buffer import ShapeError

_LOSSES = ("losses", "weights")
_PREDICTIONS = (*_LOSSES, "logits", "labels")
_ALL = (*_PREDICTIONS, "inputs")


class PredictionShapeError(ModelOutputError, RuntimeError):
    """Predictions of different batches that cannot be joined (transformers raises RuntimeError here)."""


@dataclass(frozen=True)
class LeavingBatch:
    """A batch on its way from the device to the host."""

    copied: HostCopy
    facts: Mapping[str, Any]
    rows: int


class KeptRows:
    """The rows that an evaluation keeps, off the device."""

    def __init__(self, plan: EvalPlan) -> None:
        self.plan, self.store, self.rows = plan, plan.store(), 0
        self.names = _ALL if not plan.metric_per_batch else _PREDICTIONS if plan.keep_predictions else _LOSSES
        if not plan.keeps_here:
            self.names = _LOSSES
        self.facts: Mapping[str, Any] = {}  # about the last batch
        self._leaving: LeavingBatch | None = None

    def add(
        self, part: Mapping[str, Any], metric_run: MetricRun, current_batch: CurrentBatch, *, is_last: bool
    ) -> None:
        """Move a batch off the device; pass it to a metric function that takes each batch, which gets it there.

        The device copies it while it computes the next one, and the host takes it after that one is launched.
        """
        moved = self.names if self.plan.keep_predictions or metric_run.function is not None else _LOSSES
        copied = HostCopy({name: part[name] for name in moved})
        self._take()
        if self.plan.metric_per_batch:
            losses = part["losses"] if self.plan.keep_losses else None
            metric_run.add_to_function({**part, "losses": losses}, current_batch, is_last=is_last)
        self._leaving = LeavingBatch(copied, part["facts"], part["rows"])
        if copied.has_arrived:
            self._take()

    def _take(self) -> None:
        """Take the batch that is leaving the device, if there is one."""
        batch, self._leaving = self._leaving, None
        if batch is None:
            return
        self.facts = batch.facts
        kept = {name: numpify(tree) for name, tree in batch.copied.get().items()}
        self.rows += batch.rows
        self.store.add({name: kept.get(name) for name in self.names}, batch.rows)

    def summarize(self, metric_run: MetricRun, current_batch: CurrentBatch) -> EvalLoopOutput:
        """Join the batches, call the metric function with all rows, and name the results."""
        self._take()
        plan = self.plan
        losses, weights = self.store.join("losses"), self.store.join("weights")
        logits = labels = None
        with share_results(metric_run, plan.share, measures=plan.keeps_here):
            if plan.keeps_here:
                logits, labels = self._join("logits", plan.prediction_padding), self._join("labels")
                self._measure(metric_run, current_batch, logits, labels, losses)
        known = {"loss": average_losses(losses, weights), "model_preparation_time": plan.preparation_time}
        metrics = name_metrics(metric_run.compute_results(current_batch), known, plan.prefix)
        return EvalLoopOutput(predictions=logits, label_ids=labels, metrics=metrics, num_samples=self.rows)

    def _measure(
        self, metric_run: MetricRun, current_batch: CurrentBatch, logits: Any, labels: Any, losses: Any
    ) -> None:
        """Call the metric function with all rows, if there is one and it gets all at once."""
        if metric_run.function is None or self.plan.metric_per_batch or logits is None or labels is None:
            return
        given = {"predictions": logits, "label_ids": labels}
        if self.plan.keep_losses:
            given["losses"] = losses
        if self.plan.keep_inputs:
            given["inputs"] = self._join("inputs")
        metric_run.add_all_rows(given, self.facts, current_batch)

    def _join(self, name: str, padding: float = PADDING) -> Any:
        if not self.plan.join_batches:
            return self.store.batches(name)
        try:
            return self.store.join(name, padding)
        except ValueError as reason:
            raise _build_shape_error(reason) from None


def _build_shape_error(reason: ValueError) -> PredictionShapeError:
    shapes = [str(shape) for shape in reason.shapes] if isinstance(reason, ShapeError) else []
    return PredictionShapeError(
        what="the predictions of different batches cannot be put together",
        why=f"their shapes are {', '.join(shapes[:4])}; only rows and the second dimension may differ"
        if shapes
        else str(reason),
        fix="preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), or eval_do_concat_batches=False",
    )
