"""The results of `train`, `evaluate` and `predict`, and the argument of a metric function."""

from __future__ import annotations

from typing import Any, NamedTuple

from .eval_prediction import EvalPrediction, Outputs

__all__ = [
    "BestRun",
    "EvalLoopOutput",
    "EvalPrediction",
    "Outputs",
    "PredictionOutput",
    "TrainOutput",
]


class TrainOutput(NamedTuple):
    """The result of `Trainer.train`."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class EvalLoopOutput(NamedTuple):
    """The result of `Trainer.evaluation_loop`."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None
    num_samples: int | None


class PredictionOutput(NamedTuple):
    """The result of `Trainer.predict`."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None


class BestRun(NamedTuple):
    """The best run of a hyper-parameter search."""

    run_id: str
    objective: float | list[float]
    hyperparameters: dict[str, Any]
    run_summary: Any | None = None
