"""Stop a run, with a checkpoint, before its time limit."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from ..core.errors import ConfigError
from ..core.pauses import get_paused_seconds
from ..core.state import ExportableState, TrainerControl, TrainerState
from ..core.stop_request import ask_to_stop
from .events import QuietCallback

_RECENT = 50  # steps from which the length of the next is estimated
_SLOW_DISK = 200e6  # bytes per second
_COPIES = 3  # of the parameters in a checkpoint: weights, and two averages of the optimizer


class TimeLimitCallback(QuietCallback, ExportableState):
    """Stop training, with a checkpoint, while there is still time to write it; `train` returns as at its end.

    Before every step it checks whether a step as long as the longest recent one, its data included, and a save still
    fit. With several processes, which agree to stop every ten steps, it checks for eleven. An evaluation that does not
    fit is interrupted; the resumed run repeats it.

    Args:
        hours: How long training may take, counted from the beginning of `train`.
        minutes: Added to `hours`.
        margin: Seconds to keep free besides; by default 5 % of the time, and no more than a minute.
        all_legs: Count the time of the runs before, as far as their checkpoints record it, when a run is resumed.

    >>> Trainer(..., callbacks=[TimeLimitCallback(hours=11.5)])  # doctest: +SKIP
    """

    def __init__(
        self, hours: float = 0.0, minutes: float = 0.0, *, margin: float | None = None, all_legs: bool = False
    ) -> None:
        self.limit = hours * 3600 + minutes * 60
        if not self.limit > 0:
            raise ConfigError(
                what=f"TimeLimitCallback(hours={hours}, minutes={minutes}) leaves no time to train",
                why="a limit is longer than nothing",
                fix="TimeLimitCallback(hours=11.5)",
            )
        self.margin = min(60.0, 0.05 * self.limit) if margin is None else margin
        self.all_legs = all_legs
        self.seconds_before = 0.0  # of the runs that this one continues
        self._ends_at: float | None = None
        self._heard_every = 1

    def set_check_interval(self, steps: int) -> None:
        """Set how many steps a run takes until it stops when asked; called before it begins.

        Args:
            steps: The number of steps.
        """
        self._heard_every = steps

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        self._began_at = time.monotonic()
        if state.global_step == 0:  # there was no run before
            self.seconds_before = 0.0
        self._ends_at = self._began_at + self.limit - (self.seconds_before if self.all_legs else 0.0)
        self._steps: deque[float] = deque(maxlen=_RECENT)
        weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
        # A save is written in the background: its time is estimated from its size, or measured where it is waited for.
        self._save = _COPIES * weights / _SLOW_DISK
        self._mark: float | None = None  # when the last measured part had ended

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # The first batch of a run takes long, and that of a resumed one longer, unlike those of later steps.
        if self._mark is None:
            self._mark = self._read_clock()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._steps.append(self._measure_lap())
        if state.global_step < state.max_steps:
            self._stop_if_due(time.monotonic(), self._heard_every * max(self._steps))

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._ends_at is not None:
            self._stop_if_due(time.monotonic(), 0.0)

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._measure_lap()

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._save = max(self._save, self._measure_lap())

    def _measure_lap(self) -> float:
        """Return the time since the previous step, evaluation or save."""
        if self._ends_at is None or self._mark is None:  # no training, or not yet
            return 0.0
        before, self._mark = self._mark, self._read_clock()
        return self._mark - before

    @staticmethod
    def _read_clock() -> float:
        """Return the time of a clock that stops during a pause, which does not make a step longer."""
        return time.monotonic() - get_paused_seconds()

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.seconds_before = self._measure_used()
        self._ends_at = None

    def _stop_if_due(self, now: float, next_step: float) -> None:
        if self._ends_at is not None and now + next_step + self._save + self.margin >= self._ends_at:
            ask_to_stop(f"the time limit of {_format_duration(self.limit)} is near")

    def _measure_used(self) -> float:
        return self.seconds_before + (0.0 if self._ends_at is None else time.monotonic() - self._began_at)

    def state(self) -> dict[str, Any]:
        # The limit is that of the present run: a resumed one may have another.
        return {"args": {}, "attributes": {"seconds_before": self._measure_used()}}


def _format_duration(seconds: float) -> str:
    """Return a duration as 90 s, 5 min, 11.5 h."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"
