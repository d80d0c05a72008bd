"""Learning rates by group: logged one by one, and changed all together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ..core.logged_numbers import track
from ..core.state import TrainerControl, TrainerState
from .events import QuietCallback


class RatesCallback(QuietCallback):
    """Log the rate of every parameter group as `lr/<name>`: the one that the current step used.

    The name of a group is its `name`, as `optimizer_with_rates` sets it, or its number. Groups of one name, which
    differ in weight decay alone, have one rate.

    >>> Trainer(..., callbacks=[RatesCallback()])  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._rates: dict[str, Any] = {}
        self._logged_step = 0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._rates, self._logged_step = {}, state.global_step

    def on_optimizer_step(
        self, args: Any, state: TrainerState, control: TrainerControl, optimizer: Any = None, **kwargs: Any
    ) -> None:
        self._rates = {
            str(group.get("name", number)): group["lr"]
            for number, group in enumerate(optimizer.param_groups)
            if group["lr"] is not None
        }

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._report(state, control)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._report(state, control)

    def _report(self, state: TrainerState, control: TrainerControl) -> None:
        if control.should_log and state.global_step > self._logged_step:
            self._logged_step = state.global_step
            for name, rate in self._rates.items():
                track(f"lr/{name}", rate)


def scale_rates(optimizer: Any, scheduler: Any, factor: float) -> None:
    """Multiply every rate, present and future: the schedule keeps its shape.

    Both are saved with checkpoints, so a resumed run continues with the rates it had.
    """
    for group in optimizer.param_groups:
        for name in ("lr", "initial_lr", "max_lr", "min_lr"):  # OneCycleLR sets the last two
            if isinstance(group.get(name), Tensor):
                group[name].mul_(factor)
            elif name in group:
                group[name] *= factor
    for schedule in _list_schedules(scheduler):
        for name in ("base_lrs", "max_lrs", "_last_lr"):  # torch's schedules compute from these
            if name in vars(schedule):
                setattr(schedule, name, [rate * factor for rate in getattr(schedule, name)])


def _list_schedules(scheduler: Any) -> Iterator[Any]:
    """Yield a schedule, and those it consists of."""
    yield scheduler
    for part in vars(scheduler).get("_schedulers", ()):
        yield from _list_schedules(part)
