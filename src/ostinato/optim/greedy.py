"""GreedyLR: raise the rate while the metric improves, lower it while it does not (arXiv 2512.14527)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..core.errors import ConfigError
from ..core.notices import note, note_once


class StreamingAverage:
    """The mean of the last `window_size` values.

    Args:
        window_size: The number of values.

    Raises:
        ConfigError: It is less than 1.

    >>> average = StreamingAverage(window_size=2)
    >>> [average.streamavg(value) for value in (1.0, 2.0, 4.0)]
    [1.0, 1.5, 3.0]
    """

    def __init__(self, window_size: int) -> None:
        if window_size < 1:
            raise ConfigError(
                what=f"a mean over {window_size} values does not exist",
                why="window_size is the number of values to average",
                fix="set window_size=50, or smooth=False",
            )
        self.window_size = window_size
        self.values: list[float] = []
        self.sum = 0.0

    def streamavg(self, value: float) -> float:
        """Add a value, and return the mean so far.

        Args:
            value: The newest value.

        Returns:
            The mean of the window.
        """
        self.values.append(value)
        self.sum += value
        if len(self.values) > self.window_size:
            self.sum -= self.values.pop(0)
        if not math.isfinite(self.sum):
            self.sum = sum(self.values)  # otherwise one NaN would stay in the sum after it has left the window
        return self.sum / len(self.values)

    def state_dict(self) -> dict[str, Any]:
        """Return the window and its sum, as plain numbers."""
        return {"window_size": self.window_size, "values": list(self.values), "sum": self.sum}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state of another average.

        Args:
            state_dict: What `state_dict` returned.
        """
        self.window_size = state_dict["window_size"]
        self.values = list(state_dict["values"])
        self.sum = state_dict["sum"]


class GreedyLR(LRScheduler):
    """Divide the rate by `factor` after more than `patience` improvements in a row, multiply after as many failures.

    Call `step(metric)` after every evaluation. After a raise the next `warmup` metrics are ignored, after a cut
    the next `cooldown`. Once all rates are at `min_lr`, every further cut counts down from `reset_start`; at zero the
    schedule starts over with the initial rates. `smooth` averages the metric over `window_size` evaluations.

    Args:
        optimizer: The optimizer whose rates it sets.
        mode: "min" if a smaller metric is better, or "max".
        factor: What a rate is multiplied by to lower it, and divided by to raise it.
        patience: How many improvements or failures in a row change nothing.
        threshold: By how much a metric has to improve to count as better.
        threshold_mode: "abs" for a difference in the metric's own unit, "rel" for a share of the best value.
        cooldown: How many metrics are ignored after a cut.
        warmup: How many metrics are ignored after a raise.
        min_lr: The lowest rate, or one for each parameter group.
        max_lr: The highest rate, or one for each parameter group.
        eps: The smallest change of a rate that is made.
        verbose: Report every change.
        smooth: Average the metric.
        window_size: The number of metrics in the average.
        reset_start: The number of cuts at the lowest rate after which it starts over.

    Raises:
        ConfigError: An option is out of its range, or a list does not have one rate for each parameter group.
        TypeError: `optimizer` is not an optimizer.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.01)
    >>> scheduler = GreedyLR(optimizer, patience=1, factor=0.5)
    >>> for loss in (3.0, 2.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.02]
    """

    _last_lr: list[Any]

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.95,
        patience: int = 10,
        threshold: float = 1e-6,
        threshold_mode: str = "abs",
        cooldown: int = 0,
        warmup: int = 0,
        min_lr: float | Sequence[float] = 1e-3,
        max_lr: float | Sequence[float] = 1.0,
        eps: float = 1e-8,
        verbose: bool = False,
        smooth: bool = False,
        window_size: int = 50,
        reset_start: int = 500,
    ) -> None:
        # Not super().__init__(): it would take a first step, and there is no metric yet.
        _check(optimizer, mode=mode, factor=factor, threshold_mode=threshold_mode)
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.warmup = warmup
        self.min_lrs = _spread_over_groups(optimizer, "min_lrs", min_lr)
        self.max_lrs = _spread_over_groups(optimizer, "max_lrs", max_lr)
        self.eps = eps
        self.verbose = verbose
        self.smooth = smooth
        self.window_size = window_size
        self.reset_start_original = reset_start
        self.last_epoch = 0
        self.cooldown_counter = 0
        self.warmup_counter = 0
        self._streaming_avg = StreamingAverage(window_size) if smooth else None
        self._init_lrs = self._list_rates()
        self._last_lr = self._list_rates()
        self._forget()
        _note_bounds_out_of_reach(self._init_lrs, self.min_lrs, self.max_lrs)

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Read the newest value of the metric and adapt the rates.

        Args:
            metrics: The value.
            epoch: The number of this step; by default one more than the last.
        """
        current = float(metrics)
        if self._streaming_avg is not None:
            current = self._streaming_avg.streamavg(current)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
        elif self.warmup_counter > 0:
            self.warmup_counter -= 1
        else:
            self._judge(current)
        self._last_lr = self._list_rates()

    def is_better(self, current: float, best: float) -> bool:
        """Return whether `current` improves on `best` by more than the threshold.

        Args:
            current: The new value.
            best: The best value so far.

        Returns:
            True for an improvement.
        """
        margin = self.threshold if self.mode == "max" else -self.threshold
        bound = best * (1.0 + margin) if self.threshold_mode == "rel" else best + margin
        return current > bound if self.mode == "max" else current < bound

    def get_lr(self) -> list[float]:  # type: ignore[override]
        """Return the current rates."""
        return self._list_rates()

    def get_last_lr(self) -> list[float]:  # type: ignore[override]
        """Return the rates after the last step."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, as plain numbers and strings."""
        state = {name: value for name, value in vars(self).items() if name not in ("optimizer", "_streaming_avg")}
        if self._streaming_avg is not None:
            state["_streaming_avg"] = self._streaming_avg.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state of another schedule, with its rates.

        Args:
            state_dict: What `state_dict` returned.
        """
        state = dict(state_dict)
        average = state.pop("_streaming_avg", None)
        self.__dict__.update(state)
        self._streaming_avg = StreamingAverage(self.window_size) if self.smooth else None
        if self._streaming_avg is not None and average is not None:
            self._streaming_avg.load_state_dict(average)
        self._set_rates(self._last_lr)

    def _judge(self, current: float) -> None:
        """Count improvements and failures in a row; act when there are more than the patience allows."""
        if self.is_better(current, self.best):
            self.best = current
            self.num_good_epochs, self.num_bad_epochs = self.num_good_epochs + 1, 0
        else:
            self.num_good_epochs, self.num_bad_epochs = 0, self.num_bad_epochs + 1
        if self.num_good_epochs > self.patience:
            self._raise_rates()
            self.num_good_epochs, self.warmup_counter = 0, self.warmup
        elif self.num_bad_epochs > self.patience:
            self._cut_rates()
            self.num_bad_epochs, self.cooldown_counter = 0, self.cooldown

    def _raise_rates(self) -> None:
        """Divide every rate by the factor, up to its maximum."""
        self.reset_start = self.reset_start_original
        targets = [min(rate / self.factor, top) for rate, top in zip(self._list_rates(), self.max_lrs, strict=True)]
        self._move("increasing", [new if new - old > self.eps else old for old, new in self._pair_rates(targets)])

    def _cut_rates(self) -> None:
        """Multiply every rate by the factor, down to its minimum; start over after too long there."""
        targets = [max(rate * self.factor, low) for rate, low in zip(self._list_rates(), self.min_lrs, strict=True)]
        self._move("reducing", [new if old - new > self.eps else old for old, new in self._pair_rates(targets)])
        if all(rate <= low for rate, low in zip(self._list_rates(), self.min_lrs, strict=True)):
            self.reset_start -= 1
            if self.reset_start <= 0:
                self._start_over()

    def _start_over(self) -> None:
        """Return to the initial rates and forget the metric."""
        self._set_rates(self._init_lrs)
        self._forget()
        if self._streaming_avg is not None:
            self._streaming_avg = StreamingAverage(self.window_size)
        if self.verbose:
            note("GreedyLR starts over with its initial rates")

    def _forget(self) -> None:
        self.best = math.inf if self.mode == "min" else -math.inf
        self.num_good_epochs = self.num_bad_epochs = 0
        self.reset_start = self.reset_start_original

    def _move(self, verb: str, rates: list[float]) -> None:
        """Set the rates, and note the change if `verbose`."""
        for index, (old, new) in enumerate(self._pair_rates(rates)):
            if self.verbose and new != old:
                note(f"Epoch {self.last_epoch}: {verb} learning rate of group {index} to {new:.4e}.")
        self._set_rates(rates)

    def _list_rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _pair_rates(self, rates: list[float]) -> list[tuple[float, float]]:
        return list(zip(self._list_rates(), rates, strict=True))

    def _set_rates(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def get_greedy_schedule(optimizer: Optimizer, **kwargs: Any) -> GreedyLR:
    """Return a schedule that raises the rate while a metric improves and lowers it otherwise; see `GreedyLR`.

    Args:
        optimizer: The optimizer whose rates it sets.
        **kwargs: Options of `GreedyLR`.

    Returns:
        The schedule.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.01)
    >>> get_greedy_schedule(optimizer, patience=3).get_last_lr()
    [0.01]
    """
    return GreedyLR(optimizer, **kwargs)


def _check(optimizer: Optimizer, *, mode: str, factor: float, threshold_mode: str) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    if not 0.0 < factor < 1.0:
        raise ConfigError(
            what="Factor should be < 1.0." if factor >= 1.0 else "Factor should be > 0.0.",
            why=f"factor={factor}; the rate is multiplied by it to go down and divided by it to go up",
            fix="set factor=0.95",
        )
    if mode not in ("min", "max"):
        raise ConfigError(
            what=f"mode {mode} is unknown!", why="a metric is better smaller or larger", fix="use 'min' or 'max'"
        )
    if threshold_mode not in ("rel", "abs"):
        raise ConfigError(
            what=f"threshold mode {threshold_mode} is unknown!",
            why="an improvement is measured relative to the best value or in the metric's own unit",
            fix="use 'rel' or 'abs'",
        )


def _spread_over_groups(optimizer: Optimizer, name: str, value: float | Sequence[float]) -> list[float]:
    """Return one bound per parameter group, from one number for all or one for each."""
    num_groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [float(value)] * num_groups  # type: ignore[arg-type]
    if len(value) != num_groups:
        raise ConfigError(
            what=f"expected {num_groups} {name}, got {len(value)}",
            why="a list needs one bound for every parameter group of the optimizer",
            fix=f"give {num_groups} numbers, or a single one for all groups",
        )
    return list(value)


def _note_bounds_out_of_reach(rates: list[float], lowest: list[float], highest: list[float]) -> None:
    """Note when the default bounds leave a rate no room to move."""
    for rate, low, high in zip(rates, lowest, highest, strict=True):
        if rate < low:
            note_once(f"GreedyLR cannot lower the rate {rate:g}: it is below min_lr={low:g}; set a smaller min_lr")
        if rate > high:
            note_once(f"GreedyLR cannot raise the rate {rate:g}: it is above max_lr={high:g}; set a larger max_lr")
