"""The evaluation loop, shared by `evaluate` and `predict`.

for each batch:                (the current batch is recorded, so that a failure can be explained)
    prediction_step            loss, logits, labels of this process's rows
    preprocess_logits          the user's, if any: before anything is kept
    gather                     the rows of every process; padding rows of an uneven last batch are dropped
    streaming metrics          read the batch (evaluation/metric_run.py); with no other metrics, nothing else is kept
    to the host                nothing stays on the device
join the batches               ragged widths are filled with -100
compute_metrics
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import nn

from ..callbacks.handler import emit
from ..core.errors import ModelOutputError
from ..core.logged_numbers import Tracked, hearing
from ..core.notices import note_once
from ..core.outputs import EvalLoopOutput
from ..core.protocols import Batch, EvalHooks, Strategy
from ..core.stop_request import Interrupted
from ..core.tree import first_dimension, has_no_rows, numpify, truncate
from .eval_plan import PADDING, EvalPlan
from .metric_run import CurrentBatch, Measuring, MetricResultError, named
from .storage.row_buffer import ShapeError
from .storage.store import RowStore

_LOSSES = ("losses", "weights")
_PREDICTIONS = (*_LOSSES, "logits", "labels")
_KEPT = (*_PREDICTIONS, "inputs")


class PredictionShapeError(ModelOutputError, RuntimeError):
    """Predictions of different batches that cannot be joined (transformers raises RuntimeError here)."""


def mean_loss(losses: np.ndarray | None, weights: np.ndarray | None) -> float | None:
    """Return the mean over everything that the losses average, however it was batched.

    There is one loss for each row, and the weight of that row's share of the batch's mean.
    """
    if losses is None or weights is None or not len(losses):
        return None
    if np.all(weights == weights[0]):
        return losses.mean().item()
    counted = weights > 0  # a batch without any label has a mean of nothing, which is NaN
    return float(np.average(losses[counted].astype(np.float64), weights=weights[counted]))


def evaluation_loop(
    trainer: EvalHooks, model: nn.Module, dataloader: Any, plan: EvalPlan, current_batch: CurrentBatch | None = None
) -> EvalLoopOutput:
    """Run the model over `dataloader`, keep what the plan requires, and compute metrics."""
    measuring = Measuring(function=trainer.compute_metrics) if plan.measuring is None else plan.measuring
    current_batch, kept, tracked = current_batch or CurrentBatch(), _KeptRows(plan), Tracked()
    on_host = trainer.strategy.device.type == "cpu"
    with closing(measuring), hearing(tracked):
        for number, inputs, is_last in _number_batches(dataloader):
            if plan.breaks_off is not None and plan.breaks_off():
                raise Interrupted
            current_batch.batch, current_batch.number, current_batch.doing = inputs, number, "model"
            part = _predict(trainer, model, inputs, plan, measuring, current_batch)
            current_batch.batch, current_batch.doing = None, "other"
            if plan.tells:
                emit(trainer, "on_prediction_step")
            measuring.add(part, current_batch, with_losses=plan.keep_losses)
            if on_host:
                current_batch.previous = part["logits"]
            kept.add(part, measuring, current_batch, is_last=is_last)
        current_batch.previous = None
        output = kept.summarize(measuring, current_batch)
    return _add_tracked(output, tracked.drain(trainer.strategy.gather_objects), plan.prefix)


def _number_batches(dataloader: Any) -> Iterator[tuple[int, Batch, bool]]:
    """Yield each batch with its number and whether it is the last, for which a metric returns its final result."""
    batches = iter(dataloader)
    inputs, number = next(batches, None), 0
    while inputs is not None:
        following = next(batches, None)
        yield number, inputs, following is None
        inputs, number = following, number + 1


class _KeptRows:
    """The rows that an evaluation keeps of its batches, and the result made from them."""

    def __init__(self, plan: EvalPlan) -> None:
        self.plan, self.store, self.rows = plan, plan.store(), 0
        self.names = _KEPT if not plan.metric_per_batch else _PREDICTIONS if plan.keep_predictions else _LOSSES
        self.about: dict[str, Any] = {}  # of the last batch

    def add(
        self, part: Mapping[str, Any], measuring: Measuring, current_batch: CurrentBatch, *, is_last: bool
    ) -> None:
        """Move a batch off the device; pass it to a metric function that takes each batch."""
        plan, self.about = self.plan, part["about"]
        part = _on_host(part, everything=plan.keep_predictions or measuring.function is not None)
        if plan.metric_per_batch:
            given = {**part, "about": self.about, "losses": part["losses"] if plan.keep_losses else None}
            measuring.add_to_function(given, current_batch, is_last=is_last)
        self.rows += part["rows"]
        self.store.add({name: part.get(name) for name in self.names}, part["rows"])

    def summarize(self, measuring: Measuring, current_batch: CurrentBatch) -> EvalLoopOutput:
        """Join the batches, call the metric function with all rows, and name the results."""
        plan, store = self.plan, self.store
        logits = _joined(store, "logits", plan, plan.prediction_padding)
        labels, inputs = (_joined(store, name, plan) for name in ("labels", "inputs"))
        losses, weights = store.joined("losses"), store.joined("weights")
        if measuring.function is not None and not plan.metric_per_batch and logits is not None and labels is not None:
            optional: dict[str, Any] = {}
            if plan.keep_losses:
                optional["losses"] = losses
            if plan.keep_inputs:
                optional["inputs"] = inputs
            measuring.all_rows({"predictions": logits, "label_ids": labels, **optional}, self.about, current_batch)
        known = {"loss": mean_loss(losses, weights), "model_preparation_time": plan.preparation_time}
        metrics = named(measuring.result(current_batch), known, plan.prefix)
        return EvalLoopOutput(predictions=logits, label_ids=labels, metrics=metrics, num_samples=self.rows)


def _add_tracked(output: EvalLoopOutput, tracked: dict[str, float], prefix: str) -> EvalLoopOutput:
    """Add the numbers that were tracked during the evaluation to its metrics."""
    if not tracked:
        return output
    reported, measured = named(tracked, {}, prefix), output.metrics or {}
    for name in reported.keys() & measured.keys():
        note_once(f"{name} is measured, and was also reported by track(): the measured one is shown")
    return output._replace(metrics={**reported, **measured})


def _predict(
    trainer: EvalHooks,
    model: nn.Module,
    inputs: Batch,
    plan: EvalPlan,
    measuring: Measuring,
    current_batch: CurrentBatch,
) -> dict[str, Any]:
    """Return the results of one batch, gathered over the processes, on the device that they are on."""
    if has_no_rows(inputs):
        plan.without_rows(inputs, current_batch.number)
    strategy, rows = trainer.strategy, first_dimension(inputs)
    rows = 1 if rows is None else rows
    weight = plan.weigh(inputs) / max(rows, 1)
    loss, logits, labels = trainer.prediction_step(model, inputs, plan.loss_only, ignore_keys=plan.ignore_keys)
    shown = inputs if plan.metric_per_batch else inputs.get(plan.main_input)
    shown = trainer._prepare_input(shown) if plan.keep_inputs else None
    wants_metrics = bool(measuring) and not plan.loss_only
    about = plan.about(logits)
    if wants_metrics and labels is None and current_batch.number == 0:
        plan.without_labels(inputs)
    if logits is not None and trainer.preprocess_logits_for_metrics is not None:
        current_batch.doing, current_batch.given = "logits", {"logits": logits, "labels": labels}
        logits = trainer.preprocess_logits_for_metrics(logits, labels)
        current_batch.doing, current_batch.given = "other", None
        about["output_names"] = None  # its result has no names
        if logits is None and wants_metrics and labels is not None:
            raise _nothing_kept()
    real = plan.real_rows(current_batch.number)
    part: dict[str, Any] = {"losses": None, "weights": None, "logits": logits, "labels": labels, "inputs": shown}
    if loss is not None:
        part["losses"] = loss.repeat(rows)
        part["weights"] = torch.full((rows,), weight, dtype=torch.float64)
    kept_rows = rows if real is None or not rows else real
    return {**_gathered(part, strategy, kept_rows, plan), "rows": _total(kept_rows, strategy), "about": about}


def _gathered(part: dict[str, Any], strategy: Strategy, real: int, plan: EvalPlan) -> dict[str, Any]:
    """Cut padding rows, and gather over the processes."""
    if strategy.size == 1:
        return part
    padding = {"logits": plan.prediction_padding}
    return {
        name: None if tree is None else strategy.gather(truncate(tree, real), pad=padding.get(name, PADDING))
        for name, tree in part.items()
    }


def _on_host(part: Mapping[str, Any], *, everything: bool) -> dict[str, Any]:
    """Move what is kept of a batch off the device at once."""
    names = _KEPT if everything else _LOSSES
    return {**{name: numpify(part[name]) for name in names}, "rows": part["rows"]}


def _total(rows: int, strategy: Strategy) -> int:
    return rows if strategy.size == 1 else int(strategy.sum(torch.tensor(rows)))


def _joined(store: RowStore, name: str, plan: EvalPlan, padding: float = PADDING) -> Any:
    if not plan.join_batches:
        return store.batches(name)
    try:
        return store.joined(name, padding)
    except ValueError as reason:
        raise _of_different_shapes(reason) from None


def _nothing_kept() -> MetricResultError:
    return MetricResultError(
        what="preprocess_logits_for_metrics returned None",
        why="what it returns is what compute_metrics gets as predictions",
        fix="return the logits, or what you make of them: is there a return at its end?",
    )


def _of_different_shapes(reason: ValueError) -> PredictionShapeError:
    shapes = [str(shape) for shape in reason.shapes] if isinstance(reason, ShapeError) else []
    return PredictionShapeError(
        what="the predictions of different batches cannot be put together",
        why=f"their shapes are {', '.join(shapes[:4])}; only rows and the second dimension may differ"
        if shapes
        else str(reason),
        fix="preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), or eval_do_concat_batches=False",
    )


def speed_metrics(
    split: str,
    start_time: float,
    num_samples: int | None = None,
    num_steps: int | None = None,
    num_tokens: int | None = None,
    *,
    now: float,
) -> dict[str, float]:
    """Return the runtime, and amounts per second: `{split}_runtime`, `{split}_samples_per_second`, …"""
    runtime = now - start_time
    result = {f"{split}_runtime": round(runtime, 4)}
    if runtime == 0:
        return result
    for name, amount in (("samples", num_samples), ("steps", num_steps), ("tokens", num_tokens)):
        if amount is not None:
            result[f"{split}_{name}_per_second"] = round(amount / runtime, 3)
    return result
