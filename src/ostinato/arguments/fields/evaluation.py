"""Arguments for evaluation and for choosing the best model."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import IntervalStrategy
from ..argument import Range, argument
from ..resume_rules import change_best_metric, change_evaluations


@dataclass
class EvaluationArguments:
    """When and how the model is evaluated."""

    eval_strategy: IntervalStrategy | str = argument(
        "no",
        help="Evaluate never (no), every eval_steps (steps) or after each epoch (epoch) of training.",
        choices=IntervalStrategy,
        on_resume=change_evaluations,
    )
    eval_steps: float | None = argument(
        None,
        help="Steps between two evaluations. Below 1: a fraction of all steps. Default: logging_steps.",
        number=Range(finite=True),
        on_resume=change_evaluations,
    )
    eval_delay: float = argument(
        0,
        help="Steps or epochs, depending on eval_strategy, before the first evaluation.",
        number=Range(finite=True),
        on_resume=None,
    )
    per_device_eval_batch_size: int = argument(
        8, help="Rows per evaluation batch and process.", number=Range(minimum=1, whole=True), on_resume=None
    )
    prediction_loss_only: bool = argument(
        False, help="Compute only the loss in evaluations: no predictions, no other metrics.", on_resume=None
    )
    eval_on_start: bool = argument(
        False, help="Evaluate once before the first step, to find errors in the evaluation early.", on_resume=None
    )
    eval_do_concat_batches: bool = argument(
        True,
        help="Concatenate the predictions of all batches into one array; otherwise keep a list of them.",
        on_resume=None,
    )
    eval_use_gather_object: bool = argument(
        False,
        help="Gather any Python objects from all processes in evaluations, not only tensors. A list has one entry for "
        "each row.",
        on_resume=None,
    )
    eval_accumulation_steps: int | None = argument(
        None,
        help="Accepted for compatibility: predictions are moved off the device after every batch.",
        number=Range(minimum=1, whole=True),
        on_resume=None,
    )
    include_for_metrics: list[str] = argument(
        default_factory=list,
        help="What compute_metrics receives besides predictions and labels: inputs, loss.",
        kind=list,
        choices=("inputs", "loss"),
        on_resume=None,
    )
    batch_eval_metrics: bool = argument(
        False, help="Call compute_metrics after every batch, so that predictions need not be kept.", on_resume=None
    )


@dataclass
class BestModelArguments:
    """How the best model is chosen, and whether it is loaded at the end."""

    load_best_model_at_end: bool = argument(
        False, help="After training, load the weights with the best evaluation.", on_resume=None
    )
    metric_for_best_model: str | None = argument(
        None,
        help="Evaluation metric by which models are compared, with or without the prefix `eval_`.",
        on_resume=change_best_metric,
    )
    greater_is_better: bool | None = argument(
        None,
        help="Whether a higher metric is better. Default: true, unless its name ends in loss.",
        on_resume=change_best_metric,
    )
