"""Stop when the metric that matters no longer improves."""

from __future__ import annotations

from typing import Any

from ..core.choices import IntervalStrategy
from ..core.errors import ConfigError
from ..core.notices import warn
from ..core.state import ExportableState, TrainerControl, TrainerState
from .base import QuietCallback


class EarlyStoppingError(ConfigError, AssertionError):
    """Early stopping was asked for without the arguments it needs (transformers asserts here)."""


class EarlyStoppingCallback(QuietCallback, ExportableState):
    """Stops after `early_stopping_patience` evaluations in a row without an improvement beyond the threshold.

    >>> Trainer(..., callbacks=[EarlyStoppingCallback(early_stopping_patience=3)])  # doctest: +SKIP
    """

    def __init__(self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold
        self.early_stopping_patience_counter = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.metric_for_best_model is None:
            raise EarlyStoppingError(
                what="EarlyStoppingCallback requires metric_for_best_model to be defined",
                why="without it nothing says which number should stop improving",
                fix='set metric_for_best_model="loss" (or the name of a metric that compute_metrics returns)',
            )
        if args.eval_strategy == IntervalStrategy.NO:
            raise EarlyStoppingError(
                what="EarlyStoppingCallback requires IntervalStrategy of steps or epoch",
                why="eval_strategy='no' never evaluates, so there is nothing to watch",
                fix='set eval_strategy="epoch" or eval_strategy="steps"',
            )
        if not args.load_best_model_at_end:
            warn("early stopping keeps the last weights; set load_best_model_at_end=True to end with the best ones")

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        name = args.metric_for_best_model
        value = metrics.get(name if name.startswith("eval_") else f"eval_{name}")
        if value is None:
            if "eval_loss" not in metrics and any(key.endswith("_loss") for key in metrics):
                return  # one of several evaluation sets, and another one is watched
            warn(f"early stopping needs metric_for_best_model, but {name!r} is not among {sorted(metrics)}")
            return
        self.check_metric_value(args, state, control, value)
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def check_metric_value(self, args: Any, state: TrainerState, control: TrainerControl, metric_value: float) -> None:
        """Count the evaluations since the last improvement."""
        if state.best_metric is None or self._improves(metric_value, state.best_metric, bool(args.greater_is_better)):
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1

    def _improves(self, value: float, best: float, greater_is_better: bool) -> bool:
        gained = value - best if greater_is_better else best - value
        return gained > 0 and abs(gained) > (self.early_stopping_threshold or 0.0)

    def state(self) -> dict[str, Any]:
        return {
            "args": {
                "early_stopping_patience": self.early_stopping_patience,
                "early_stopping_threshold": self.early_stopping_threshold,
            },
            "attributes": {"early_stopping_patience_counter": self.early_stopping_patience_counter},
        }
