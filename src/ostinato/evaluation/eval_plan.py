"""The plan of an evaluation: what it computes and keeps, its number format, and the weight of its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..arguments.settings import EvaluationSettings
from ..checkpoint.callback_tensors import use_callback_weights
from ..core.notices import note_once
from ..core.protocols import Batch, EvalHost, LossHost
from ..core.random import isolate
from ..core.tree import has_length
from ..data.empty_batches import report_empty_batch
from ..data.epoch_position import get_row_counter
from ..data.sizes import count_examples
from ..loss.counting import count_targets, weigh
from ..optim.schedule_free import use_averaged_weights
from ..strategies.precision import half_precision_weights
from .metric_run import MetricRun
from .request import EvalRequest, build_metric_run, describe_predictions, read_request
from .storage.scratch_file import Scratch
from .storage.store import RowStore

PADDING = -100


@dataclass(frozen=True)
class EvalPlan:
    """The values that one evaluation keeps and computes."""

    loss_only: bool
    keep_inputs: bool
    keep_losses: bool
    metric_per_batch: bool  # `batch_eval_metrics`: compute_metrics gets each batch, and returns the result at the end
    join_batches: bool  # False: compute_metrics gets lists with one entry per batch
    main_input: str
    prefix: str
    ignore_keys: list[str] | None
    weigh: Callable[[Any], float]  # the weight of a batch's mean loss
    real_rows: Callable[[int], int | None]  # rows of batch k on this process that are not padding
    preparation_time: float | None  # of the model, when nothing was trained before
    gathers_objects: bool = False  # a list has one entry for each row, and rows may be any objects
    emits_events: bool = True  # callbacks are called for every batch
    prediction_padding: float = PADDING  # fills predictions that are shorter than those of other batches
    report_empty: Callable[[Any, int], None] = lambda batch, number: None  # gets a batch without rows, and its number
    report_missing_labels: Callable[[Any], None] = lambda batch: None  # gets a batch whose labels metrics need
    metric_run: MetricRun | None = None  # None: the trainer's compute_metrics
    keep_predictions: bool = True  # False: only the metrics need them
    keeps_here: bool = True  # False: the first process keeps the rows, and measures them
    share: Callable[[Any], Any] | None = None  # returns the results of the first process, where it alone has any
    describe: Callable[[Any], dict[str, Any]] = lambda logits: {}  # the facts about these logits for `EvalPrediction`
    must_stop: Callable[[], bool] | None = None  # whether the run has to stop; called before every batch
    store: Callable[[], RowStore] = RowStore  # where rows are kept: in memory, or in files if they are too large


def plan_evaluation(
    host: EvalHost,
    loader: Any,
    *,
    loss_only: bool | None,
    ignore_keys: list[str] | None,
    prefix: str,
    data: str,
    report_missing_labels: Callable[[Batch], None],
    must_stop: Callable[[], bool] | None,
) -> EvalPlan:
    """Return the plan of one evaluation.

    Args:
        host: the trainer.
        loader: the batches to evaluate; it carries its request.
        loss_only: keep no predictions; None: as the arguments say.
        ignore_keys: outputs of the model that are not predictions.
        prefix: of the names of its metrics.
        data: the name of the evaluated set in messages.
        report_missing_labels: called with a batch that has no labels although metrics are wanted.
        must_stop: called before every batch; returns whether the run has to stop.
    """
    settings, request = EvaluationSettings.of(host.args), read_request(loader)
    loss_only = settings.loss_only if loss_only is None else loss_only
    metrics = build_metric_run(host, request)
    if loss_only and metrics:
        who = "compute_metrics is not called" if metrics.function is not None else "no metrics are computed"
        note_once(f"{who}: prediction_loss_only=True keeps no predictions")
    in_first = _measures_in_first(host, settings, request, metrics)
    return EvalPlan(
        loss_only=loss_only,
        keeps_here=not in_first or host.strategy.process_index == 0,
        share=host.strategy.broadcast_object if in_first else None,
        keep_inputs=settings.keep_inputs,
        keep_losses=settings.keep_losses,
        metric_per_batch=settings.metric_per_batch and metrics.function is not None,
        join_batches=settings.join_batches,
        gathers_objects=settings.gathers_objects,
        main_input=getattr(host.model, "main_input_name", "input_ids"),
        prefix=prefix,
        ignore_keys=ignore_keys,
        weigh=partial(weigh_batch, host),
        real_rows=get_row_counter(loader),
        preparation_time=None if host._has_prepared_model else host.model_preparation_time,
        prediction_padding=host._prediction_padding,
        report_empty=lambda batch, number: report_empty_batch(loader, data, batch, 0, number),
        report_missing_labels=report_missing_labels,
        metric_run=metrics,
        # A subclass that overrides the loop and measures nothing in it computes metrics from the result.
        keep_predictions=not request.only_metrics or (not metrics and host._is_overridden("evaluation_loop")),
        describe=partial(describe_predictions, host),
        must_stop=must_stop,
        store=partial(_open_store, settings, loader),
    )


def _measures_in_first(host: EvalHost, settings: EvaluationSettings, request: EvalRequest, metrics: MetricRun) -> bool:
    """Return whether only the first process keeps rows and calls the metric function."""
    if host.strategy.processes == 1 or settings.measures_everywhere or not request.only_metrics:
        return False
    return metrics.function is not None and not settings.metric_per_batch


@contextmanager
def prepare_model(host: EvalHost, model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, with the weights and the number format of evaluation.

    Random numbers are isolated outside of training too: evaluating a model before training must not change the
    training.
    """
    settings = EvaluationSettings.of(host.args)
    model.eval()
    with (
        isolate(enabled=settings.isolate_rng),
        use_averaged_weights(host.optimizer),
        use_callback_weights(host),
        half_precision_weights(model, None if host.is_in_train else settings.full_dtype),
        host.precision.forward(host.model),
    ):
        yield


def weigh_batch(host: LossHost, inputs: Batch) -> float:
    """Return the weight of a batch's mean loss."""
    return weigh(inputs, shifted=host._has_shifted_labels(inputs), labels_are=host._labels_are)


def weigh_without_wait(host: LossHost, inputs: Batch) -> float | Tensor:
    """Return the weight of a batch's mean loss; of a batch on a device it stays there."""
    labels = inputs.get(host._labels_are)
    if isinstance(labels, Tensor) and not labels.is_cpu:
        targets = count_targets(labels, shifted=host._has_shifted_labels(inputs))
        return 0.0 if targets is None else targets
    return weigh_batch(host, inputs)


def _open_store(settings: EvaluationSettings, loader: Any) -> RowStore:
    dataset = getattr(loader, "dataset", None)
    rows = count_examples(loader) if has_length(getattr(dataset, "all_rows", dataset)) else None
    return RowStore(Scratch(settings.memory, settings.directories), rows)
