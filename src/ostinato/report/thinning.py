"""Curves of any length in bounded memory, without losing a spike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

LIMIT = 2_000  # points that are kept of a curve, at least half of them once there were more


@dataclass(frozen=True)
class Curve:
    """Values by step, in the order of steps. NaN where a value was not a number."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def last(self) -> float:
        return self.values[-1]

    def lowest(self) -> tuple[int, float] | None:
        """The step and the value of the smallest; None if there is no finite one."""
        return self._extreme(-1)

    def highest(self) -> tuple[int, float] | None:
        """The step and the value of the largest; None if there is no finite one."""
        return self._extreme(1)

    def _extreme(self, sign: int) -> tuple[int, float] | None:
        finite = [(step, value) for step, value in zip(self.steps, self.values, strict=True) if math.isfinite(value)]
        return max(finite, key=lambda point: sign * point[1]) if finite else None

    def thinned(self, limit: int) -> Curve:
        """The same with at most about so many points: of every stretch its lowest and its highest."""
        points = list(zip(self.steps, self.values, strict=True))
        while len(points) > max(limit, 4):
            points = _halved(points)
        return Curve(tuple(step for step, _ in points), tuple(value for _, value in points))


@dataclass
class GrowingCurve:
    """A curve that is being read. However much is added, it holds no more than twice the limit."""

    limit: int = LIMIT
    points: list[tuple[int, float]] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Add a point. The same step again replaces the last one: the later line is the one that counts."""
        if self.points and self.points[-1][0] == step:
            self.points[-1] = (step, value)
            return
        self.points.append((step, value))
        if len(self.points) > 2 * self.limit:
            self.points = _halved(self.points)

    def forget_after(self, step: int) -> None:
        """Drop what lies after a step: the run went on from there, and takes those steps again."""
        self.points = [point for point in self.points if point[0] <= step]

    def done(self) -> Curve:
        """What was read."""
        ordered = sorted(self.points, key=lambda point: point[0])
        return Curve(tuple(step for step, _ in ordered), tuple(value for _, value in ordered))


def _halved(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Of four neighbours the lowest and the highest, or one that is no number; the first and the last point stay."""
    kept = [points[0]]
    for begin in range(1, len(points) - 1, 4):
        four = points[begin : min(begin + 4, len(points) - 1)]
        finite = [point for point in four if math.isfinite(point[1])]
        chosen = {id(min(finite, key=_value)), id(max(finite, key=_value))} if finite else set()
        bad = next((point for point in four if not math.isfinite(point[1])), None)
        if bad is not None and len(chosen) < 2:
            chosen.add(id(bad))
        kept += [point for point in four if id(point) in chosen]
    return [*kept, points[-1]]


def _value(point: tuple[int, float]) -> float:
    return point[1]
