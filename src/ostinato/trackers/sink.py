"""The interface between a training run and an experiment tracker."""

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
    """The description of a run for a tracker, when the run starts or continues."""

    name: str | None  # run_name
    output_dir: str
    hyper_parameters: dict[str, Any]  # the arguments as plain data, without secrets
    model_config: dict[str, Any]
    run_id: str | None = None  # the tracker's own run to continue; None starts one
    # The step to continue from: what the tracker holds of later steps is from an interrupted attempt. None: training
    # is over, and more is added.
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
    """The points that a tracker holds when a run continues.

    A point may be there several times (the epoch is logged with the loss and with the evaluation of a step), so each
    one that is logged again removes one.
    """

    points: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    complete_before: int = 0  # everything below this step is there

    def add(self, step: int, name: str, value: float) -> None:
        self.points.setdefault((step, name), []).append(value)

    def take(self, step: int, name: str, value: float) -> tuple[bool, bool]:
        """Return whether the point is there, and whether its value differs."""
        if step < self.complete_before:
            return True, False
        values = self.points.get((step, name))
        if not values:
            return False, False
        same = next((place for place, one in enumerate(values) if _is_same(one, value)), None)
        if same is None and not name.endswith(TIMED_SUFFIXES):
            return False, True
        values.pop(same or 0)
        return True, False


# Timings differ between two attempts at a step; the first one stays.
TIMED_SUFFIXES = ("runtime", "per_second", "mfu")


def _is_same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


class Sink:
    """Receives numbers. Override `start`, `log` and `finish`; the rest is for runs that are killed and resumed.

    Any method may raise: the callback reports it once, and training continues.

    >>> class Printer(Sink):
    ...     def start(self, run):
    ...         return None
    ...
    ...     def log(self, numbers, step):
    ...         print(step, dict(numbers))
    >>> Printer().log({"train/loss": 0.5}, 10)
    10 {'train/loss': 0.5}
    """

    # Seconds that numbers may wait for those of later steps, where taking many at once is much cheaper. They do not
    # wait while the run evaluates or saves, nor after its end, whichever way it ends. 0: `log` is called at once.
    patience: ClassVar[float] = 0.0

    def start(self, run: RunInfo) -> str | None:
        """Open the tracker's run and return its id, by which a resumed run finds it again.

        Args:
            run: The description of the run.

        Returns:
            The id, or None if the tracker has none.

        Raises:
            NotImplementedError: The class does not override it.
        """
        raise NotImplementedError

    def log(self, numbers: Numbers, step: int) -> None:
        """Log numbers of one step; names are complete (`train/loss`).

        Args:
            numbers: The numbers by name.
            step: The step.

        Raises:
            NotImplementedError: The class does not override it.
        """
        raise NotImplementedError

    def log_all(self, logs: Sequence[Logged]) -> None:
        """Log what has waited, in the order in which it was logged.

        Args:
            logs: The numbers, steps and times.
        """
        for numbers, step, _ in logs:
            self.log(numbers, step)

    def finish(self) -> None:
        """End the run. Another `start` with its id may follow."""

    def flush(self) -> None:
        """Write what was logged so far, so that a killed process does not lose it; wait for no network."""

    def held(self, run: RunInfo) -> Held:
        """Return which points of a continued run the tracker has already. Called after `start`.

        Args:
            run: The description of the run.

        Returns:
            The points, or the step below which all are there.
        """
        return Held(complete_before=0 if run.run_id is None or run.step is None else run.step + 1)

    def summarize(self, numbers: Numbers) -> None:
        """Log the numbers of the whole run under their original names; `log` has received them as well.

        Args:
            numbers: The numbers by name.
        """
