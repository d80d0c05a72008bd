"""The time of a run by purpose, measured by the clock of its process; and the speed of any work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Literal

Purpose = Literal["data", "evaluation", "saving"]


@dataclass
class TimeLedger:
    """Seconds spent waiting for data, evaluating and saving; the rest of the time was spent computing.

    A device may still be busy when the process continues, so "computing" is the remainder.

    >>> ledger = TimeLedger()
    >>> with ledger.measure("evaluation"):
    ...     pass
    >>> sorted(ledger.seconds())
    ['computing', 'data', 'evaluation', 'saving']
    """

    began: float = field(default_factory=perf_counter)
    data: float = 0.0  # added to by the loop itself: it is the only entry of every step
    evaluation: float = 0.0
    saving: float = 0.0

    @contextmanager
    def measure(self, purpose: Purpose) -> Iterator[None]:
        """Add the time of a block, also of one that fails; time that a block inside it adds is not counted twice."""
        begun, counted = perf_counter(), self.data + self.evaluation + self.saving
        try:
            yield
        finally:
            within = self.data + self.evaluation + self.saving - counted
            setattr(self, purpose, getattr(self, purpose) + perf_counter() - begun - within)

    @property
    def outside_training(self) -> float:
        """The time in which nothing was trained."""
        return self.evaluation + self.saving

    def seconds(self) -> dict[str, float]:
        """Return the time spent so far, by purpose. The difference of two results is the time spent in between."""
        data, evaluation, saving = self.data, self.evaluation, self.saving
        computing = max(perf_counter() - self.began - data - evaluation - saving, 0.0)
        return {"computing": computing, "data": data, "evaluation": evaluation, "saving": saving}


def compute_shares(seconds: dict[str, float]) -> dict[str, float]:
    """Return the parts as fractions of the whole.

    >>> compute_shares({"computing": 3.0, "data": 1.0})
    {'computing': 0.75, 'data': 0.25}
    """
    whole = sum(seconds.values())
    return {purpose: part / whole if whole else 0.0 for purpose, part in seconds.items()}


def speed_metrics(
    split: str,
    start_time: float,
    num_samples: int | None = None,
    num_steps: int | None = None,
    num_tokens: int | None = None,
    *,
    now: float | None = None,
) -> dict[str, float]:
    """Return the time since `start_time` and amounts per second: `{split}_runtime`, `{split}_samples_per_second`, …

    Args:
        split: What the names begin with, such as `train`.
        start_time: The beginning, as `time.time()` returned it.
        num_samples: The number of rows; None leaves their speed out, here and below.
        num_steps: The number of steps.
        num_tokens: The number of tokens.
        now: The end; by default the present time.

    Returns:
        The numbers by name.

    >>> speed_metrics("train", 10.0, num_samples=8, now=12.0)
    {'train_runtime': 2.0, 'train_samples_per_second': 4.0}
    """
    runtime = (time() if now is None else now) - start_time
    result = {f"{split}_runtime": round(runtime, 4)}
    if runtime == 0:
        return result
    for name, amount in (("samples", num_samples), ("steps", num_steps), ("tokens", num_tokens)):
        if amount is not None:
            result[f"{split}_{name}_per_second"] = round(amount / runtime, 3)
    return result
