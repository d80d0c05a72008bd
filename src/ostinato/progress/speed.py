"""How fast a run is, and how long it still takes: a clock that tells training from resting, and its words."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Tells training from resting: everything between two marks was the one or the other."""

    def __init__(self) -> None:
        self.begun = self.mark = time.monotonic()
        self.rest = 0.0
        self.first: tuple[int, float, float] | None = None
        self.step = 0

    def stepped(self, step: int) -> float:
        """A step has ended: the time since the last mark was training. The first step warms up, and is not counted."""
        self.mark, self.step = now, _ = time.monotonic(), step
        if self.first is None:
            self.first = (step, now, self.rest)
        return now

    def trained(self) -> float:
        """Whatever came after the step (reading the loss waits for the device) belongs to it."""
        self.mark = now = time.monotonic()
        return now

    def rested(self) -> None:
        """The time since the last mark went into an evaluation or a save."""
        now = time.monotonic()
        self.rest += now - self.mark
        self.mark = now

    def steps_per_second(self) -> float | None:
        """Of training time alone; None until it can be told."""
        if self.first is None or self.step <= self.first[0]:
            return None
        step, mark, rest = self.first
        return (self.step - step) / max(self.mark - mark - (self.rest - rest), 1e-9)

    def seconds_left(self, num_steps: int) -> float | None:
        """For so many steps, with as much evaluating and saving between them as so far."""
        if self.first is None or self.step <= self.first[0]:
            return None
        step, mark, _ = self.first
        return num_steps * (self.mark - mark) / (self.step - step)


def length_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):  # a stream
        return None


def rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def size_text(done: int, total: int) -> str:
    """0.41/1.20 GB, 24/80 MB."""
    return f"{done / 1e9:.2f}/{total / 1e9:.2f} GB" if total >= 1e9 else f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"


def duration_text(seconds: float | None) -> str:
    """1:05, 2:01:05, 3 d 2:01:05."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    short = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {short}" if days else short
