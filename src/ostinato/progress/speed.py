"""Measure the speed of a run and estimate the time left, without evaluations and saves."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Separates training from pauses: the time between two marks is one or the other."""

    def __init__(self) -> None:
        self.started = self.mark = time.monotonic()
        self.rest = 0.0
        self.first: tuple[int, float, float] | None = None
        self.step = 0

    def mark_step(self, step: int) -> float:
        """Note the end of a step: the time since the last mark was training. The first step is a warm-up."""
        self.mark, self.step = now, _ = time.monotonic(), step
        if self.first is None:
            self.first = (step, now, self.rest)
        return now

    def mark_training(self) -> float:
        """Count the time since the step (reading the loss waits for the device) as training."""
        self.mark = now = time.monotonic()
        return now

    def mark_pause(self) -> None:
        """Count the time since the last mark as an evaluation or a save."""
        now = time.monotonic()
        self.rest += now - self.mark
        self.mark = now

    def steps_per_second(self) -> float | None:
        """Return the speed of training alone; None before the second step."""
        if self.first is None or self.step <= self.first[0]:
            return None
        step, mark, rest = self.first
        return (self.step - step) / max(self.mark - mark - (self.rest - rest), 1e-9)

    def seconds_left(self, num_steps: int) -> float | None:
        """Return the seconds for so many steps, with as many pauses as so far; None before the second step."""
        if self.first is None or self.step <= self.first[0]:
            return None
        step, mark, _ = self.first
        return num_steps * (self.mark - mark) / (self.step - step)


def find_length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):  # a stream
        return None


def format_rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def format_size(done: int, total: int) -> str:
    """Format sizes: 0.41/1.20 GB, 24/80 MB."""
    return f"{done / 1e9:.2f}/{total / 1e9:.2f} GB" if total >= 1e9 else f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"


def format_duration(seconds: float | None) -> str:
    """Format seconds: 1:05, 2:01:05, 3 d 2:01:05."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    short = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {short}" if days else short
