"""The evaluation loop, shared by `evaluate` and `predict`.

for each batch:                (what is in hand is noted down, for whoever has to explain a failure)
    prediction_step            loss, logits, labels of this process's rows
    preprocess_logits          the user's, if any: before anything is kept
    gather                     the rows of every process; stand-in rows of an uneven last batch are dropped
    to the host                nothing stays on the device
join the batches               ragged widths are filled with -100
compute_metrics
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import MetricError, ModelOutputError
from ..core.outputs import EvalLoopOutput, EvalPrediction
from ..core.protocols import Batch, EvalHooks, Strategy
from ..core.tree import concatenate, first_dimension, numpify, truncate
from .train import emit

PADDING = -100


@dataclass(frozen=True)
class EvalPlan:
    """What one evaluation keeps and computes."""

    loss_only: bool
    keep_inputs: bool
    keep_losses: bool
    metric_per_batch: bool  # `batch_eval_metrics`: compute_metrics sees each batch and sums up at the end
    join_batches: bool  # False hands compute_metrics lists with one entry per batch
    main_input: str
    prefix: str
    ignore_keys: list[str] | None
    weigh: Callable[[Any], float]  # what the mean loss of a batch stands for
    real_rows: Callable[[int], int | None]  # rows of batch k on this process that are not stand-ins
    preparation_time: float | None  # of the model, when nothing was trained before
    tells: bool = True  # callbacks hear of every batch
    without_labels: Callable[[Any], None] = lambda batch: None  # metrics are wanted, and a batch has no labels


@dataclass
class InHand:
    """What an evaluation is busy with."""

    batch: Any = None
    number: int = 0
    doing: Literal["model", "logits", "metrics", "other"] = "other"
    given: Any = None  # to the user's function


class MetricResultError(MetricError, TypeError):
    """What a metric function returned is not a dict (transformers raises TypeError here)."""


class PredictionShapeError(ModelOutputError, RuntimeError):
    """Predictions of different batches that cannot be put together (transformers raises RuntimeError here)."""


@dataclass
class Collected:
    """The rows seen so far, on the host."""

    losses: list[np.ndarray] = field(default_factory=list)  # one value per row
    weights: list[np.ndarray] = field(default_factory=list)  # what that row's share of the batch's mean stands for
    logits: list[Any] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    rows: int = 0

    def mean_loss(self) -> float | None:
        """The mean over all that the losses average, whatever the batches were."""
        if not self.losses:
            return None
        losses, weights = np.concatenate(self.losses), np.concatenate(self.weights)
        if np.all(weights == weights[0]):
            return losses.mean().item()
        counted = weights > 0  # a batch without any label has a mean of nothing, which is not a number
        return float(np.average(losses[counted].astype(np.float64), weights=weights[counted]))


def evaluation_loop(
    trainer: EvalHooks, model: nn.Module, dataloader: Any, plan: EvalPlan, in_hand: InHand | None = None
) -> EvalLoopOutput:
    """Run the model over `dataloader` and compute metrics."""
    collected, metrics, in_hand = Collected(), {}, in_hand or InHand()
    batches = iter(dataloader)
    inputs, number = next(batches, None), 0
    while inputs is not None:
        following = next(batches, None)  # known early: the last batch asks for the final result
        in_hand.batch, in_hand.number, in_hand.doing = inputs, number, "model"
        part = _predict(trainer, model, inputs, plan, in_hand)
        in_hand.batch, in_hand.doing = None, "other"
        if plan.tells:
            emit(trainer, "on_prediction_step")
        if plan.metric_per_batch:
            metrics = _batch_metrics(trainer, part, in_hand, is_last=following is None)
            part = {"losses": part["losses"], "weights": part["weights"], "rows": part["rows"]}
        _keep(collected, part)
        inputs, number = following, number + 1
    logits, labels, kept_inputs = (
        _joined(parts, plan) for parts in (collected.logits, collected.labels, collected.inputs)
    )
    if trainer.compute_metrics is not None and not plan.metric_per_batch and logits is not None and labels is not None:
        optional: dict[str, Any] = {}
        if plan.keep_losses:
            optional["losses"] = np.concatenate(collected.losses) if collected.losses else None
        if plan.keep_inputs:
            optional["inputs"] = kept_inputs
        metrics = _measured(trainer, in_hand, {"predictions": logits, "label_ids": labels, **optional})
        _check_result(metrics)
    known = {"loss": collected.mean_loss(), "model_preparation_time": plan.preparation_time}
    named = _named(metrics, known, plan.prefix)
    return EvalLoopOutput(predictions=logits, label_ids=labels, metrics=named, num_samples=collected.rows)


def _measured(trainer: EvalHooks, in_hand: InHand, given: dict[str, Any], **how: Any) -> Any:
    """What the user's metric function makes of predictions and labels."""
    in_hand.doing, in_hand.given = "metrics", given
    metrics = trainer.compute_metrics(EvalPrediction(**given), **how)
    in_hand.doing, in_hand.given = "other", None
    return metrics


def _predict(trainer: EvalHooks, model: nn.Module, inputs: Batch, plan: EvalPlan, in_hand: InHand) -> dict[str, Any]:
    """One batch, gathered over the processes and on the host."""
    strategy, rows = trainer.strategy, first_dimension(inputs) or 1
    weight = plan.weigh(inputs) / rows
    loss, logits, labels = trainer.prediction_step(model, inputs, plan.loss_only, ignore_keys=plan.ignore_keys)
    main_input = trainer._prepare_input(inputs.get(plan.main_input)) if plan.keep_inputs else None
    wants_metrics = trainer.compute_metrics is not None and not plan.loss_only
    if wants_metrics and labels is None and in_hand.number == 0:
        plan.without_labels(inputs)
    if logits is not None and trainer.preprocess_logits_for_metrics is not None:
        in_hand.doing, in_hand.given = "logits", {"logits": logits, "labels": labels}
        logits = trainer.preprocess_logits_for_metrics(logits, labels)
        in_hand.doing, in_hand.given = "other", None
        if logits is None and wants_metrics and labels is not None:
            raise _nothing_kept()
    real = plan.real_rows(in_hand.number)
    part: dict[str, Any] = {"losses": None, "weights": None, "logits": logits, "labels": labels, "inputs": main_input}
    if loss is not None:
        part["losses"] = loss.repeat(rows)
        part["weights"] = torch.full((rows,), weight, dtype=torch.float64)
    return {
        **_on_host(part, strategy, rows if real is None else real),
        "rows": _total(rows if real is None else real, strategy),
    }


def _on_host(part: dict[str, Any], strategy: Strategy, real: int) -> dict[str, Any]:
    """Cut stand-in rows, exchange, and leave the device at once."""
    _, processes = strategy.sampler_shard()
    if processes == 1:
        return {name: numpify(tree) for name, tree in part.items()}
    return {
        name: None if tree is None else numpify(strategy.gather(truncate(tree, real), pad=PADDING))
        for name, tree in part.items()
    }


def _total(rows: int, strategy: Strategy) -> int:
    _, processes = strategy.sampler_shard()
    return rows if processes == 1 else int(strategy.sum(torch.tensor(rows)))


def _keep(collected: Collected, part: Mapping[str, Any]) -> None:
    collected.rows += part["rows"]
    for name in ("losses", "weights", "logits", "labels", "inputs"):
        if part.get(name) is not None:
            getattr(collected, name).append(part[name])


def _joined(parts: list[Any], plan: EvalPlan) -> Any:
    if not parts:
        return None
    if not plan.join_batches:
        return parts
    try:
        return concatenate(parts, padding_index=PADDING)
    except ValueError as reason:
        raise _of_different_shapes(parts, reason) from None


def _batch_metrics(trainer: EvalHooks, part: Mapping[str, Any], in_hand: InHand, *, is_last: bool) -> dict[str, Any]:
    """`batch_eval_metrics`: tensors of one batch; the last call returns the result."""
    given = {"predictions": _as_tensors(part["logits"]), "label_ids": _as_tensors(part["labels"])}
    if part.get("inputs") is not None:
        given["inputs"] = _as_tensors(part["inputs"])
    result = _measured(trainer, in_hand, given, compute_result=is_last)
    if not is_last:
        return {}
    _check_result(result)
    return result


def _check_result(metrics: Any) -> None:
    """A metric function returns numbers under names."""
    if not isinstance(metrics, Mapping):
        example = "value" if not isinstance(metrics, float) else f"{metrics:.4g}"
        raise MetricResultError(
            what=f"compute_metrics returned {_with_article(metrics)}, and must return a dict",
            why="each number needs a name, under which it is logged and compared",
            fix="return a dict: is there a return at its end?"
            if metrics is None
            else f'return {{"accuracy": {example}}}',
        )
    wrong = [name for name in metrics if not isinstance(name, str)]
    if wrong:
        raise MetricResultError(
            what=f"compute_metrics named a number {wrong[0]!r}, and names must be strings",
            why=f"it returned a dict with {', '.join(map(repr, metrics))}",
            fix="turn the names into strings: {str(name): value}",
        )


def _with_article(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__name__}"


def _nothing_kept() -> MetricResultError:
    return MetricResultError(
        what="preprocess_logits_for_metrics returned None",
        why="what it returns is what compute_metrics gets as predictions",
        fix="return the logits, or what you make of them: is there a return at its end?",
    )


def _of_different_shapes(parts: list[Any], reason: Exception) -> PredictionShapeError:
    shapes = list(dict.fromkeys(str(tuple(part.shape)) for part in parts if isinstance(part, np.ndarray)))
    return PredictionShapeError(
        what="the predictions of different batches cannot be put together",
        why=f"their shapes are {', '.join(shapes[:4])}; only rows and the second dimension may differ"
        if shapes
        else str(reason),
        fix="preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), or eval_do_concat_batches=False",
    )


def _as_tensors(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(_as_tensors(one) for one in tree)
    return tree


def _named(metrics: Mapping[str, Any], known: Mapping[str, float | None], prefix: str) -> dict[str, float]:
    """Plain Python numbers under `prefix_…` names, what the loop itself knows among them."""
    named = {name: _plain(value) for name, value in metrics.items()}
    named.update({f"{prefix}_{name}": value for name, value in known.items() if value is not None})
    for name in list(named):
        if not name.startswith(f"{prefix}_"):
            named[f"{prefix}_{name}"] = named.pop(name)
    return named


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, Tensor)) and getattr(value, "size", None) is not None:
        return value.item() if _is_scalar(value) else value
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(one) for one in value)
    return value


def _is_scalar(value: Any) -> bool:
    return math.prod(value.shape) == 1


def speed_metrics(
    split: str,
    start_time: float,
    num_samples: int | None = None,
    num_steps: int | None = None,
    num_tokens: int | None = None,
    *,
    now: float,
) -> dict[str, float]:
    """How long it took, and per second: `{split}_runtime`, `{split}_samples_per_second`, …"""
    runtime = now - start_time
    result = {f"{split}_runtime": round(runtime, 4)}
    if runtime == 0:
        return result
    for name, amount in (("samples", num_samples), ("steps", num_steps), ("tokens", num_tokens)):
        if amount is not None:
            result[f"{split}_{name}_per_second"] = round(amount / runtime, 3)
    return result
