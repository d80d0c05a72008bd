"""Curves of any length in bounded memory, without losing a spike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

LIMIT = 2_000  # points kept of a curve; of a longer curve, at least half as many
_ALL = 2  # a span in which all points are kept: the lowest and the highest of two
_WAITING = 1_000  # points of a curve that are thinned out together


@dataclass(frozen=True)
class Curve:
    """Values by step, in the order of steps. NaN where a value was not a number."""

    steps: tuple[int, ...]
    values: tuple[float, ...]
    is_whole: bool = True  # no point was left out; otherwise only the extremes are exact, not the distribution

    def __len__(self) -> int:
        return len(self.steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def last(self) -> float:
        return self.values[-1]

    def lowest(self) -> tuple[int, float] | None:
        """Return the step and the value of the smallest; None if none is finite."""
        return self._extreme(-1)

    def highest(self) -> tuple[int, float] | None:
        """Return the step and the value of the largest; None if none is finite."""
        return self._extreme(1)

    def _extreme(self, sign: int) -> tuple[int, float] | None:
        finite = [(step, value) for step, value in zip(self.steps, self.values, strict=True) if math.isfinite(value)]
        return max(finite, key=lambda point: sign * point[1]) if finite else None

    def times(self, factor: float) -> Curve:
        """Return the curve in another unit."""
        return replace(self, values=tuple(value * factor for value in self.values))

    def thinned(self, limit: int) -> Curve:
        """Return the curve with at most about `limit` points: the lowest and the highest of every stretch."""
        points = list(zip(self.steps, self.values, strict=True))
        while len(points) > max(limit, 8):
            points = _halved(points)
        is_whole = self.is_whole and len(points) == len(self)
        return Curve(tuple(step for step, _ in points), tuple(value for _, value in points), is_whole)


class GrowingCurve:
    """A curve that is being read. However many points are added, it holds about twice the limit.

    New points are buffered; then the lowest and the highest of every `_span` of them are kept. When too many points
    are kept, they are halved and the span is doubled, so that the whole curve is equally dense.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._kept: list[tuple[int, float]] = []
        self._span = _ALL
        self._steps: list[int] = []  # the buffer
        self._values: list[float] = []

    def __len__(self) -> int:
        return len(self._kept) + len(self._steps)

    def add(self, step: int, value: float) -> None:
        """Add a point. A repeated step replaces the last point: the later line of the journal counts."""
        steps = self._steps
        if steps and steps[-1] == step:
            self._values[-1] = value
            return
        steps.append(step)
        self._values.append(value)
        if len(steps) > _WAITING:
            self._settle()

    def forget_after(self, step: int) -> None:
        """Drop the points after a step: the run continued from there and repeats those steps."""
        self._kept = [point for point in self._kept if point[0] <= step]
        waiting = [point for point in zip(self._steps, self._values, strict=True) if point[0] <= step]
        self._steps, self._values = [point[0] for point in waiting], [point[1] for point in waiting]

    def done(self) -> Curve:
        """Return the curve that was read."""
        self._settle()
        ordered = sorted([*self._kept, *zip(self._steps, self._values, strict=True)], key=_step)
        is_whole = self._span == _ALL
        return Curve(tuple(step for step, _ in ordered), tuple(value for _, value in ordered), is_whole)

    def _settle(self) -> None:
        """Thin out the buffer. The last point stays as it is, since another may replace it."""
        steps, values, span = self._steps[:-1], self._values[:-1], self._span
        if span == _ALL:
            self._kept += zip(steps, values, strict=True)
        else:
            for begin in range(0, len(steps), span):
                self._kept += _ends_of(steps[begin : begin + span], values[begin : begin + span])
        del self._steps[:-1], self._values[:-1]
        if len(self._kept) > 2 * self.limit:
            self._kept, self._span = _halved(self._kept), 2 * span


def _ends_of(steps: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """Return the lowest and the highest of neighbours, and the first that is not finite."""
    if math.isfinite(sum(values)):
        low, high = values.index(min(values)), values.index(max(values))
        return [(steps[place], values[place]) for place in sorted({low, high})]
    return _of_neighbours(list(zip(steps, values, strict=True)))


def _halved(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return two or three of every four neighbours; the first and the last point stay."""
    kept = [points[0]]
    for begin in range(1, len(points) - 1, 4):
        kept += _of_neighbours(points[begin : min(begin + 4, len(points) - 1)])
    return [*kept, points[-1]]


def _of_neighbours(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the lowest, the highest and the first that is not finite, which must not get lost among finite ones."""
    finite = [point for point in points if math.isfinite(point[1])]
    chosen = {id(min(finite, key=_value)), id(max(finite, key=_value))} if finite else set()
    bad = next((point for point in points if not math.isfinite(point[1])), None)
    return [point for point in points if id(point) in chosen or point is bad]


def _step(point: tuple[int, float]) -> int:
    return point[0]


def _value(point: tuple[int, float]) -> float:
    return point[1]
