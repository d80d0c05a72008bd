"""Stop when `metric_for_best_model` no longer improves."""

from __future__ import annotations

import math
from typing import Any

from ..core.choices import IntervalStrategy
from ..core.errors import ConfigError
from ..core.notices import note_once, warn
from ..core.state import ExportableState, TrainerControl, TrainerState
from .events import QuietCallback


class EarlyStoppingError(ConfigError, AssertionError):
    """Early stopping without the arguments it needs (transformers asserts here)."""


class EarlyStoppingCallback(QuietCallback, ExportableState):
    """Stop after `early_stopping_patience` evaluations in a row without an improvement beyond the threshold.

    Args:
        early_stopping_patience: The number of evaluations in a row.
        early_stopping_threshold: An improvement has to be larger than this.
        noise_bar: Count an evaluation as an improvement only if the one it is compared with lies outside of its
            interval, which the metric has to report: `metrics=[("accuracy", {"interval": 0.95})]`. It is compared
            with the last improvement of this kind, so that many small ones add up.

    >>> Trainer(..., callbacks=[EarlyStoppingCallback(early_stopping_patience=3)])  # doctest: +SKIP
    """

    def __init__(
        self,
        early_stopping_patience: int = 1,
        early_stopping_threshold: float | None = 0.0,
        *,
        noise_bar: bool = False,
    ) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold
        self.early_stopping_patience_counter = 0
        self.noise_bar = noise_bar
        self.last_improvement: float | None = None  # beyond the noise
        self._interval: tuple[float, float] | None = None  # of the current evaluation

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
                return  # one of several evaluation sets, and another one is observed
            warn(f"early stopping needs metric_for_best_model, but {name!r} is not among {sorted(metrics)}")
            return
        self._interval = self._get_interval(name, metrics) if self.noise_bar else None
        self.check_metric_value(args, state, control, value)
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def check_metric_value(self, args: Any, state: TrainerState, control: TrainerControl, metric_value: float) -> None:
        """Count the evaluations since the last improvement.

        Args:
            args: The arguments, of which `greater_is_better` is read.
            state: The state, of which `best_metric` is read.
            control: The control.
            metric_value: The metric of the current evaluation.
        """
        best = self.last_improvement if self._interval is not None else state.best_metric
        if best is None:  # the trainer does not record NaN as the best
            best = self.last_improvement
        if best is None or self._is_improvement(metric_value, best, bool(args.greater_is_better)):
            self.early_stopping_patience_counter = 0
            self.last_improvement = metric_value
        else:
            self.early_stopping_patience_counter += 1

    def _is_improvement(self, value: float, best: float, greater_is_better: bool) -> bool:
        if self._interval is not None:  # the end of it that is nearer to the previous value
            value = self._interval[0] if greater_is_better else self._interval[1]
        if math.isnan(best):  # any number is better, and no difference would show it
            return not math.isnan(value)
        gained = value - best if greater_is_better else best - value
        return gained > 0 and abs(gained) > (self.early_stopping_threshold or 0.0)

    def _get_interval(self, name: str, metrics: Any) -> tuple[float, float] | None:
        full = name if name.startswith("eval_") else f"eval_{name}"
        low, high = metrics.get(f"{full}_low"), metrics.get(f"{full}_high")
        if low is None or high is None:
            note_once(
                f"noise_bar=True has no effect: {name!r} comes without an interval; metrics=[({name!r}, "
                '{"interval": 0.95})] reports one'
            )
            return None
        return low, high

    def state(self) -> dict[str, Any]:
        args: dict[str, Any] = {
            "early_stopping_patience": self.early_stopping_patience,
            "early_stopping_threshold": self.early_stopping_threshold,
        }
        attributes: dict[str, Any] = {"early_stopping_patience_counter": self.early_stopping_patience_counter}
        # transformers does not have these.
        if self.noise_bar:
            args["noise_bar"] = True
        if self.noise_bar or (self.last_improvement is not None and math.isnan(self.last_improvement)):
            attributes["last_improvement"] = self.last_improvement
        return {"args": args, "attributes": attributes}
