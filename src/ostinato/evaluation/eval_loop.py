"""The evaluation loop, shared by `evaluate` and `predict`.

for each batch:                (the current batch is recorded, so that a failure can be explained)
    prediction_step            loss, logits, labels of this process's rows
    preprocess_logits          the user's, if any: before anything is kept
    gather                     the rows of every process; padding rows of an uneven last batch are dropped
    streaming metrics          read the batch (evaluation/metric_run.py); with no other metrics, nothing else is kept
    to the host                nothing stays on the device (evaluation/kept_rows.py)
join the batches               ragged widths are filled with -100
compute_metrics
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from torch import nn

from ..callbacks.handler import emit
from ..core.logged_numbers import TrackedNumbers, collect_numbers
from ..core.outputs import EvalLoopOutput
from ..core.protocols import Batch, EvalHooks, Strategy
from ..core.stop_request import Interrupted
from ..core.tree import first_dimension, has_no_rows, join_rows, move_to_host, truncate, truncate_rows
from .eval_metrics import add_tracked
from .eval_plan import PADDING, EvalPlan
from .kept_rows import KeptRows
from .metric_run import CurrentBatch, MetricResultError, MetricRun


def evaluation_loop(
    trainer: EvalHooks, model: nn.Module, dataloader: Any, plan: EvalPlan, current_batch: CurrentBatch | None = None
) -> EvalLoopOutput:
    """Run the model over `dataloader`, keep what the plan requires, and compute metrics."""
    metric_run = MetricRun(function=trainer.compute_metrics) if plan.metric_run is None else plan.metric_run
    current_batch, kept, tracked = current_batch or CurrentBatch(), KeptRows(plan), TrackedNumbers()
    is_on_host = trainer.strategy.device.type == "cpu"
    with closing(metric_run), collect_numbers(tracked):
        for number, inputs, is_last in _number_batches(dataloader):
            if plan.must_stop is not None and plan.must_stop():
                raise Interrupted
            part = _predict_batch(trainer, model, inputs, number, plan, metric_run, current_batch)
            if plan.emits_events:
                emit(trainer, "on_prediction_step")
            metric_run.add(part, current_batch, with_losses=plan.keep_losses)
            if is_on_host:
                current_batch.previous = part["logits"]
            kept.add(part, metric_run, current_batch, is_last=is_last)
        current_batch.previous = None
        output = kept.summarize(metric_run, current_batch)
    return add_tracked(output, tracked.drain(trainer.strategy.gather_objects), plan.prefix)


def _number_batches(dataloader: Any) -> Iterator[tuple[int, Batch, bool]]:
    """Yield each batch with its number and whether it is the last, for which a metric returns its final result."""
    batches = iter(dataloader)
    inputs, number = next(batches, None), 0
    while inputs is not None:
        following = next(batches, None)
        yield number, inputs, following is None
        inputs, number = following, number + 1


def _predict_batch(
    trainer: EvalHooks,
    model: nn.Module,
    inputs: Batch,
    number: int,
    plan: EvalPlan,
    metric_run: MetricRun,
    current_batch: CurrentBatch,
) -> dict[str, Any]:
    """Return the results of one batch, gathered over the processes, on the device that they are on."""
    current_batch.batch, current_batch.number, current_batch.doing = inputs, number, "model"
    if has_no_rows(inputs):
        plan.report_empty(inputs, number)
    rows = first_dimension(inputs)
    rows = 1 if rows is None else rows
    weight = plan.weigh(inputs) / max(rows, 1)
    loss, logits, labels = trainer.prediction_step(model, inputs, plan.loss_only, ignore_keys=plan.ignore_keys)
    shown = inputs if plan.metric_per_batch else inputs.get(plan.main_input)
    shown = trainer._prepare_input(shown) if plan.keep_inputs else None
    wants_metrics = bool(metric_run) and not plan.loss_only
    facts = plan.describe(logits)
    if wants_metrics and labels is None and number == 0:
        plan.report_missing_labels(inputs)
    if logits is not None and trainer.preprocess_logits_for_metrics is not None:
        current_batch.doing, current_batch.given = "logits", {"logits": logits, "labels": labels}
        logits = trainer.preprocess_logits_for_metrics(logits, labels)
        current_batch.doing, current_batch.given = "other", None
        facts["output_names"] = None  # its result has no names
        if logits is None and wants_metrics and labels is not None:
            raise MetricResultError(
                what="preprocess_logits_for_metrics returned None",
                why="what it returns is what compute_metrics gets as predictions",
                fix="return the logits, or what you make of them: is there a return at its end?",
            )
    part: dict[str, Any] = {"losses": None, "weights": None, "logits": logits, "labels": labels, "inputs": shown}
    if loss is not None:
        part["losses"] = loss.repeat(rows)
        part["weights"] = torch.full((rows,), weight, dtype=torch.float64)
    real = plan.real_rows(number) if rows else None
    gathered = _gather(part, trainer.strategy, rows if real is None else real, plan)
    current_batch.batch, current_batch.doing = None, "other"
    return {**gathered, "facts": facts}


def _gather(part: dict[str, Any], strategy: Strategy, real: int, plan: EvalPlan) -> dict[str, Any]:
    """Cut padding rows, gather over the processes, and count the rows."""
    if strategy.size == 1:
        return {**part, "rows": real}
    padding, gathered = {"logits": plan.prediction_padding}, {}
    for name, tree in part.items():
        pad = padding.get(name, PADDING)
        if tree is None:
            gathered[name] = None
        elif plan.gathers_objects and name not in ("losses", "weights"):
            of_processes = strategy.gather_objects(move_to_host(truncate_rows(tree, real)))
            gathered[name] = join_rows(of_processes, padding_index=pad)
        else:
            gathered[name] = strategy.gather(truncate(tree, real), pad=pad)
    return {**gathered, "rows": int(strategy.sum(torch.tensor(real)))}
