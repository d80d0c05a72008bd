"""Curves of any length in bounded memory, without losing a spike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_POINTS = 2_000  # points kept of a curve; of a longer curve, at least half as many
_MIN_SPAN = 2  # a span in which all points are kept: the lowest and the highest of two
_BUFFER_SIZE = 1_000  # points of a curve that are thinned out together


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

    def find_lowest(self) -> tuple[int, float] | None:
        """Return the step and the value of the smallest; None if none is finite."""
        return self._find_extreme(-1)

    def find_highest(self) -> tuple[int, float] | None:
        """Return the step and the value of the largest; None if none is finite."""
        return self._find_extreme(1)

    def _find_extreme(self, sign: int) -> tuple[int, float] | None:
        finite = [(step, value) for step, value in zip(self.steps, self.values, strict=True) if math.isfinite(value)]
        return max(finite, key=lambda point: sign * point[1]) if finite else None

    def scale(self, factor: float) -> Curve:
        """Return the curve in another unit."""
        return replace(self, values=tuple(value * factor for value in self.values))

    def downsample(self, limit: int) -> Curve:
        """Return the curve with at most about `limit` points: the lowest and the highest of every stretch."""
        points = list(zip(self.steps, self.values, strict=True))
        while len(points) > max(limit, 8):
            points = _halve(points)
        is_whole = self.is_whole and len(points) == len(self)
        return Curve(tuple(step for step, _ in points), tuple(value for _, value in points), is_whole)


class GrowingCurve:
    """A curve that is being read. However many points are added, it holds about twice the limit.

    New points are buffered; then the lowest and the highest of every `_span` of them are kept. When too many points
    are kept, they are halved and the span is doubled, so that the whole curve is equally dense.
    """

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.limit = limit
        self._kept: list[tuple[int, float]] = []
        self._span = _MIN_SPAN
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
        if len(steps) > _BUFFER_SIZE:
            self._flush()

    def drop_after(self, step: int) -> None:
        """Drop the points after a step: the run continued from there and repeats those steps."""
        self._kept = [point for point in self._kept if point[0] <= step]
        waiting = [point for point in zip(self._steps, self._values, strict=True) if point[0] <= step]
        self._steps, self._values = [point[0] for point in waiting], [point[1] for point in waiting]

    def build_curve(self) -> Curve:
        """Return the curve that was read."""
        self._flush()
        ordered = sorted([*self._kept, *zip(self._steps, self._values, strict=True)], key=_get_step)
        is_whole = self._span == _MIN_SPAN
        return Curve(tuple(step for step, _ in ordered), tuple(value for _, value in ordered), is_whole)

    def _flush(self) -> None:
        """Thin out the buffer. The last point stays as it is, since another may replace it."""
        steps, values, span = self._steps[:-1], self._values[:-1], self._span
        if span == _MIN_SPAN:
            self._kept += zip(steps, values, strict=True)
        else:
            for begin in range(0, len(steps), span):
                self._kept += _select_extremes(steps[begin : begin + span], values[begin : begin + span])
        del self._steps[:-1], self._values[:-1]
        if len(self._kept) > 2 * self.limit:
            self._kept, self._span = _halve(self._kept), 2 * span


def _select_extremes(steps: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """Return the lowest and the highest of neighbours, and the first that is not finite."""
    if math.isfinite(sum(values)):
        low, high = values.index(min(values)), values.index(max(values))
        return [(steps[place], values[place]) for place in sorted({low, high})]
    return _select_points(list(zip(steps, values, strict=True)))


def _halve(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return two or three of every four neighbours; the first and the last point stay."""
    kept = [points[0]]
    for begin in range(1, len(points) - 1, 4):
        kept += _select_points(points[begin : min(begin + 4, len(points) - 1)])
    return [*kept, points[-1]]


def _select_points(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the lowest, the highest and the first that is not finite, which must not get lost among finite ones."""
    finite = [point for point in points if math.isfinite(point[1])]
    chosen = {id(min(finite, key=_get_value)), id(max(finite, key=_get_value))} if finite else set()
    bad = next((point for point in points if not math.isfinite(point[1])), None)
    return [point for point in points if id(point) in chosen or point is bad]


def _get_step(point: tuple[int, float]) -> int:
    return point[0]


def _get_value(point: tuple[int, float]) -> float:
    return point[1]
