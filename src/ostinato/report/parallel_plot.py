"""Parallel coordinates: one vertical axis per parameter, and one line per trial across them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .text import escape, format_tick

_HEIGHT, _TOP, _BOTTOM, _SIDE, _STEP = 300, 44, 22, 70, 150  # in units of the picture
_MAX_CHOICES = 12  # labels of an axis
_MAX_LABEL = 22  # characters


@dataclass(frozen=True)
class Axis:
    """One axis: numbers, logarithmic or not, or choices if any value is not a number."""

    name: str
    logarithmic: bool = False


Line = tuple[Sequence[Any], bool, str]  # a value for each axis, whether it is among the best, its name


def render_parallel_plot(axes: Sequence[Axis], lines: Sequence[Line]) -> str:
    """Return the picture as SVG."""
    width = 2 * _SIDE + _STEP * max(len(axes) - 1, 1)
    columns = [_scale(axis, [values[place] for values, _, _ in lines]) for place, axis in enumerate(axes)]
    places = [_SIDE + _STEP * place for place in range(len(axes))]
    drawn = "".join(
        _render_line(values, columns, places, name, is_best=is_best)
        for values, is_best, name in sorted(lines, key=lambda line: line[1])
    )
    frames = "".join(
        _render_axis(axis, column, x, is_last=x == places[-1])
        for axis, column, x in zip(axes, columns, places, strict=True)
    )
    label = escape(f"{len(lines)} trials over {', '.join(axis.name for axis in axes)}")
    return (
        f'<div class="scroll" style="padding:8px 16px 14px"><svg viewBox="0 0 {width} {_HEIGHT}" role="img" '
        f'aria-label="{label}" style="width:100%;min-width:{min(width, 900)}px;max-height:380px;display:block">'
        f"{frames}{drawn}</svg></div>"
    )


@dataclass(frozen=True)
class _Scale:
    ticks: tuple[tuple[float, str], ...]  # position from 0 to 1, label
    positions: dict[Any, float]

    def locate(self, value: Any) -> float | None:
        return self.positions.get(_make_key(value))


def _make_key(value: Any) -> Any:
    return (type(value).__name__, value) if isinstance(value, (bool, str)) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _scale(axis: Axis, values: Sequence[Any]) -> _Scale:
    present = [value for value in values if value is not None]
    if not all(_is_number(value) for value in present):
        choices = list(dict.fromkeys(map(str, sorted(present, key=str))))
        last = max(len(choices) - 1, 1)
        where = {choice: place / last for place, choice in enumerate(choices)}
        ticks = tuple((where[choice], choice) for choice in choices[:_MAX_CHOICES])
        return _Scale(ticks, {_make_key(value): where[str(value)] for value in present})
    if not present:
        return _Scale((), {})
    take = math.log if axis.logarithmic and min(present) > 0 else float
    low, high = take(min(present)), take(max(present))
    positions = {value: (take(value) - low) / (high - low) if high > low else 0.5 for value in present}
    middle = math.exp((low + high) / 2) if take is math.log else (low + high) / 2
    ends = [(0.5, present[0])] if high == low else [(0.0, min(present)), (0.5, middle), (1.0, max(present))]
    return _Scale(tuple((place, format_tick(value)) for place, value in ends), positions)


def _to_y(position: float) -> float:
    return _HEIGHT - _BOTTOM - position * (_HEIGHT - _TOP - _BOTTOM)


def _render_axis(axis: Axis, scale: _Scale, x: float, *, is_last: bool) -> str:
    style = 'font-size="11" fill="var(--ink3)"'
    labels = "".join(
        f'<text x="{x + 6 if is_last else x - 6}" y="{_to_y(place) + 4:.1f}" '
        f'text-anchor="{"start" if is_last else "end"}" {style}>{escape(_cut(text))}</text>'
        for place, text in scale.ticks
    )
    title = _cut(axis.name) + (" (log)" if axis.logarithmic else "")
    return (
        f'<line x1="{x}" x2="{x}" y1="{_to_y(1):.1f}" y2="{_to_y(0):.1f}" stroke="var(--line2)"/>'
        f'<text x="{x}" y="18" text-anchor="middle" font-size="12" fill="var(--ink2)">{escape(title)}</text>{labels}'
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"


def _render_line(
    values: Sequence[Any], columns: Sequence[_Scale], places: Sequence[float], name: str, *, is_best: bool
) -> str:
    found = [(x, column.locate(value)) for value, column, x in zip(values, columns, places, strict=True)]
    points = " ".join(f"{x},{_to_y(place):.1f}" for x, place in found if place is not None)
    look = 'stroke="var(--accent)" stroke-width="2.5"' if is_best else 'stroke="var(--r7)" opacity=".4"'
    return f'<polyline points="{points}" fill="none" {look}><title>{escape(name)}</title></polyline>'
