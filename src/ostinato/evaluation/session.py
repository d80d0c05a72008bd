"""How a trainer evaluates: what an evaluation keeps, in which precision it runs, what its loss is."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..arguments.settings import EvaluationSettings, ReportSettings
from ..checkpoint.callback_tensors import lent_weights
from ..core.logged_numbers import track
from ..core.notices import note_once
from ..core.outputs import EvalLoopOutput
from ..core.protocols import Batch
from ..core.tree import has_length
from ..data.dataset_errors import gave_no_rows
from ..data.epoch_position import real_rows_of
from ..data.sizes import num_examples
from ..diagnostics import dispatch
from ..diagnostics.context import evaluated_set
from ..engine import report, signals
from ..loss import model_outputs
from ..loss.counting import count_targets, weigh
from ..strategies.precision import half_precision_weights
from . import eval_loop, request
from .eval_loop import CurrentBatch, EvalPlan
from .storage.scratch_file import Scratch
from .storage.store import RowStore

if TYPE_CHECKING:
    from ..trainer import Trainer


def run_evaluation_loop(
    trainer: Trainer,
    dataloader: DataLoader[Any],
    description: str,
    loss_only: bool | None,
    ignore_keys: list[str] | None,
    prefix: str,
) -> EvalLoopOutput:
    """The loop behind `evaluate` and `predict`."""
    args, started = trainer.args, time.time()
    model = trainer._wrap_model(trainer.model, training=False)
    if trainer._run is None:
        trainer.model_preparation_time = round(time.time() - started, 4)
    data = evaluated_set(description, prefix, trainer.eval_dataset)
    plan = eval_plan(trainer, dataloader, data, loss_only, ignore_keys, prefix)
    dtype = torch.float16 if args.fp16_full_eval else torch.bfloat16 if args.bf16_full_eval else None
    trainer.callback_handler.eval_dataloader = dataloader
    model.eval()
    weights_as, current_batch = half_precision_weights(model, None if trainer.is_in_train else dtype), CurrentBatch()
    # Also outside of training: looking at a model before it is trained must not change how it is trained.
    with (
        report.isolation(ReportSettings.of(args)),
        lent_weights(trainer),
        weights_as,
        trainer.precision.forward(trainer.model),
    ):
        try:
            output = eval_loop.evaluation_loop(trainer, model, dataloader, plan, current_batch)
        except Exception as error:
            reason = dispatch.failed_evaluation(trainer, error, current_batch, dataloader, data)
            if reason is not error:
                raise reason from reason.__cause__
            raise
    if not output.num_samples:
        raise gave_no_rows(data)
    return output


def eval_plan(
    trainer: Trainer, loader: Any, data: str, loss_only: bool | None, ignore_keys: list[str] | None, prefix: str
) -> EvalPlan:
    """What one evaluation keeps and computes."""
    args = trainer.args
    loss_only = args.prediction_loss_only if loss_only is None else loss_only
    metrics = request.measuring_of(trainer)
    if loss_only and metrics:
        who = "compute_metrics is not called" if metrics.function is not None else "no metrics are computed"
        note_once(f"{who}: prediction_loss_only=True keeps no predictions")
    return EvalPlan(
        loss_only=loss_only,
        keep_inputs="inputs" in args.include_for_metrics,
        keep_losses="loss" in args.include_for_metrics,
        metric_per_batch=args.batch_eval_metrics and metrics.function is not None,
        join_batches=args.eval_do_concat_batches,
        main_input=getattr(trainer.model, "main_input_name", "input_ids"),
        prefix=prefix,
        ignore_keys=ignore_keys,
        weigh=partial(weigh_evaluated, trainer),
        real_rows=real_rows_of(loader),
        preparation_time=trainer.model_preparation_time if trainer._run is None else None,
        prediction_padding=trainer._prediction_padding,
        without_labels=partial(dispatch.without_labels, trainer, loader, data),
        measuring=metrics,
        # A subclass that overrides the loop and measures nothing in it will measure what it is handed.
        keep_predictions=not trainer._eval_request.only_metrics
        or (not metrics and trainer._is_overridden("evaluation_loop")),
        about=partial(request.about, trainer),
        breaks_off=signals.breaks_off(trainer),
        store=partial(row_store, trainer, loader),
    )


def row_store(trainer: Trainer, loader: Any) -> RowStore:
    """Where an evaluation keeps its rows."""
    settings, dataset = EvaluationSettings.of(trainer.args), getattr(loader, "dataset", None)
    rows = num_examples(loader) if has_length(getattr(dataset, "all_rows", dataset)) else None
    return RowStore(Scratch(settings.memory, settings.directories), rows)


def mean_over_sets(metrics: dict[str, float], names: list[str], prefix: str) -> dict[str, float]:
    """The mean of the losses of several evaluation sets, each counting alike; empty if one has none.

    >>> mean_over_sets({"eval_a_loss": 1.0, "eval_b_loss": 3.0}, ["a", "b"], "eval")
    {'eval_loss': 2.0}
    """
    losses = [metrics.get(f"{prefix}_{name}_loss") for name in names]
    known = [loss for loss in losses if loss is not None]
    return {f"{prefix}_loss": sum(known) / len(known)} if known and len(known) == len(losses) else {}


def weigh_evaluated(trainer: Trainer, inputs: Batch) -> float:
    """What the mean loss of a batch stands for."""
    return weigh(inputs, shifted=trainer._shifts_labels(inputs), labels_are=trainer._labels_are)


def loss_and_outputs(trainer: Trainer, model: nn.Module, inputs: Batch) -> tuple[Tensor | None, Any]:
    """The loss with the batch's own count, and what the model returned."""
    signature = trainer._loss_signature()
    keywords: dict[str, Any] = {"return_outputs": True} if signature.takes_return_outputs else {}
    if signature.takes_num_items:
        keywords["num_items_in_batch"] = own_count(trainer, inputs)
    weight = weigh_evaluated(trainer, inputs)
    if not signature.takes_return_outputs:
        return _one_loss(trainer, trainer.compute_loss(model, dict(inputs), **keywords), weight), model(**inputs)
    try:
        result = trainer.compute_loss(model, inputs, **keywords)
        loss, returned = model_outputs.loss_and_outputs(result, trainer._loss_source())
        return _one_loss(trainer, loss, weight), returned
    except model_outputs.BareTensorError as bare:  # logits without a loss are still worth predicting with
        note_once(f"no loss is computed in evaluation: {bare.what}")
        return None, bare.outputs


def _one_loss(trainer: Trainer, loss: Any, weight: float) -> Any:
    """The loss itself; the named losses it is made of are among the metrics, each weighted as the loss is."""
    total, parts = model_outputs.total_and_parts(loss, trainer._loss_source())
    for name, part in parts.items():
        track(name, part, weight)
    return total


def own_count(trainer: Trainer, inputs: Batch) -> Tensor | None:
    """How many targets a batch has, if the loss wants to know."""
    if not trainer.objective.wants_count or "labels" not in inputs:
        return None
    if trainer.args.world_size > 1 and trainer._is_overridden("compute_loss"):
        return None  # a subclass that is told a count may multiply by the number of processes, as transformers does
    return count_targets(inputs["labels"], shifted=trainer._shifts_labels(inputs))
