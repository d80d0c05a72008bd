"""The one small interface between a training run and an experiment tracker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

Numbers = Mapping[str, float]


class Logged(NamedTuple):
    """The numbers of one log, as a tracker is given them."""

    numbers: Numbers  # names are complete (`train/loss`)
    step: int
    time: float  # when they were logged, in seconds since the epoch


@dataclass(frozen=True)
class RunInfo:
    """What a tracker is told about a run when it starts, or goes on."""

    name: str | None  # what the user calls it
    output_dir: str
    hyper_parameters: dict[str, Any]  # the arguments as plain data, without secrets
    model_config: dict[str, Any]
    run_id: str | None = None  # the tracker's own run to go on with; None begins one
    # Where it goes on: what the tracker holds of later steps is of an attempt that was cut short. None: training is
    # over, and more is added to what is there.
    step: int | None = 0
    trial: str | None = None  # in a search: the name of this trial
    args: Any = None
    model: Any = None

    @property
    def everything(self) -> dict[str, Any]:
        """Model configuration and arguments in one flat dict, as transformers files them."""
        return {**self.model_config, **self.hyper_parameters}


@dataclass
class Held:
    """The points that a tracker holds when a run goes on.

    A point may be there several times (the epoch is logged with the loss and with the evaluation of a step), so every
    one that is logged again takes one away.
    """

    points: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    complete_before: int = 0  # everything below this step is there

    def add(self, step: int, name: str, value: float) -> None:
        self.points.setdefault((step, name), []).append(value)

    def take(self, step: int, name: str, value: float) -> tuple[bool, bool]:
        """Whether the point is there, and whether what is there says something else."""
        if step < self.complete_before:
            return True, False
        values = self.points.get((step, name))
        if not values:
            return False, False
        same = next((place for place, one in enumerate(values) if _is(one, value)), None)
        if same is None and not name.endswith(CLOCKED):
            return False, True
        values.pop(same or 0)
        return True, False


# Numbers that a clock decides: no two attempts at a step agree on them, and the first one stays.
CLOCKED = ("runtime", "per_second", "mfu")


def _is(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


class Sink:
    """Where numbers go. Override `start`, `log` and `finish`; the rest is for runs that are killed and resumed.

    Anything may raise: the callback around it says so once, and training goes on.
    """

    # Seconds that numbers may wait for those of later steps, where taking many at once is much cheaper. They do not
    # wait while the run evaluates or saves, nor after its end, whichever way it ends. 0: `log` is called at once.
    patience: ClassVar[float] = 0.0

    def start(self, run: RunInfo) -> str | None:
        """Open the tracker's run and return its id, by which a resumed run finds it again."""
        raise NotImplementedError

    def log(self, numbers: Numbers, step: int) -> None:
        """Hand over numbers of one step; names are complete (`train/loss`)."""
        raise NotImplementedError

    def log_all(self, logs: Sequence[Logged]) -> None:
        """Hand over what has waited, in the order in which it was logged."""
        for numbers, step, _ in logs:
            self.log(numbers, step)

    def finish(self) -> None:
        """The run has ended. Another `start` with its id may follow."""

    def flush(self) -> None:
        """Let nothing be lost that was logged so far, should the process be killed now; wait for no network."""

    def held(self, run: RunInfo) -> Held:
        """After the start of a run that goes on: what of its steps the tracker has already."""
        return Held(complete_before=0 if run.run_id is None or run.step is None else run.step + 1)

    def summarize(self, numbers: Numbers) -> None:
        """The numbers of the whole run, under the names they were logged with; they were handed to `log` as well."""
