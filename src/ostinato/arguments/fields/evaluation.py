"""Arguments for evaluation and for choosing the best model."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import IntervalStrategy


@dataclass
class EvaluationArguments:
    """When and how the model is evaluated."""

    eval_strategy: IntervalStrategy | str = field(
        default="no",
        metadata={"help": "Evaluate while training never (no), every eval_steps (steps) or after each epoch (epoch)."},
    )
    eval_steps: float | None = field(
        default=None,
        metadata={"help": "Steps between two evaluations; below 1 a share of all steps. Not given: logging_steps."},
    )
    eval_delay: float = field(
        default=0, metadata={"help": "No evaluation before this many steps or epochs, whichever eval_strategy counts."}
    )
    per_device_eval_batch_size: int = field(
        default=8, metadata={"help": "Rows in one evaluation batch of one process."}
    )
    prediction_loss_only: bool = field(
        default=False, metadata={"help": "Keep only the loss when evaluating: no predictions, no other metrics."}
    )
    eval_on_start: bool = field(
        default=False, metadata={"help": "Evaluate once before the first step: shows early whether evaluation works."}
    )
    eval_do_concat_batches: bool = field(
        default=True,
        metadata={"help": "Join predictions of all batches into one array; otherwise keep a list of them."},
    )
    eval_use_gather_object: bool = field(
        default=False,
        metadata={"help": "Exchange any Python objects between processes when evaluating, not only tensors."},
    )
    eval_accumulation_steps: int | None = field(
        default=None,
        metadata={"help": "Accepted for compatibility: predictions leave the device after every batch."},
    )
    include_for_metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "What compute_metrics receives besides predictions and labels: inputs, loss."},
    )
    batch_eval_metrics: bool = field(
        default=False,
        metadata={"help": "Call compute_metrics after every batch, so that predictions need not be kept."},
    )


@dataclass
class BestModelArguments:
    """Which of the evaluated models is the best one, and whether it is taken in the end."""

    load_best_model_at_end: bool = field(
        default=False, metadata={"help": "After training, go back to the weights that evaluated best."}
    )
    metric_for_best_model: str | None = field(
        default=None,
        metadata={"help": "The evaluation metric that says which model is best, with or without `eval_`."},
    )
    greater_is_better: bool | None = field(
        default=None,
        metadata={"help": "Whether a higher metric is a better one. Not given: yes, unless its name ends in loss."},
    )
