"""What `train`, `evaluate` and `predict` hand back, and what a metric function receives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


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
    """The winner of a hyper-parameter search."""

    run_id: str
    objective: float | list[float]
    hyperparameters: dict[str, Any]
    run_summary: Any | None = None


class EvalPrediction:
    """What `compute_metrics` receives. Unpacks into predictions and labels (and inputs and losses where asked for).

    >>> predictions, labels = EvalPrediction(np.array([[0.1, 0.9]]), np.array([1]))
    """

    def __init__(
        self,
        predictions: np.ndarray | tuple[np.ndarray, ...],
        label_ids: np.ndarray | tuple[np.ndarray, ...],
        inputs: np.ndarray | tuple[np.ndarray, ...] | None = None,
        losses: np.ndarray | tuple[np.ndarray, ...] | None = None,
    ) -> None:
        self.predictions = predictions
        self.label_ids = label_ids
        self.inputs = inputs
        self.losses = losses

    def _present(self) -> tuple[Any, ...]:
        optional = (part for part in (self.inputs, self.losses) if part is not None)
        return (self.predictions, self.label_ids, *optional)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._present())

    def __getitem__(self, index: int) -> Any:
        return self._present()[index]
