"""Parallel coordinates: one vertical axis per parameter, and one line per trial across them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .text import escape, format_tick

_HEIGHT, _TOP, _BOTTOM, _SIDE, _STEP = 300, 44, 22, 70, 150  # in units of the picture
_NARROW_WIDTH, _NARROW_SIDE, _NARROW_TOP, _NARROW_STEP = 330, 12, 34, 66  # of the one for narrow pages
_MAX_CHOICES = 12  # labels of an axis
_MAX_NARROW_CHOICES = 4
_MAX_LABEL = 22  # characters
_HALO = 'stroke="var(--panel)" stroke-width="3" paint-order="stroke"'  # of text over lines


@dataclass(frozen=True)
class Axis:
    """One axis: numbers, logarithmic or not, or choices if any value is not a number."""

    name: str
    logarithmic: bool = False


Line = tuple[Sequence[Any], bool, str]  # a value for each axis, whether it is among the best, its name


def render_parallel_plot(axes: Sequence[Axis], lines: Sequence[Line]) -> str:
    """Return the picture as SVG: with axes beside one another, and for narrow pages with axes below one another."""
    columns = [_scale(axis, [values[place] for values, _, _ in lines]) for place, axis in enumerate(axes)]
    width = 2 * _SIDE + _STEP * max(len(axes) - 1, 1)
    height = 2 * _NARROW_TOP + _NARROW_STEP * max(len(axes) - 1, 1)
    xs = [_SIDE + _STEP * place for place in range(len(axes))]
    ys = [_NARROW_TOP + _NARROW_STEP * place for place in range(len(axes))]
    frames = [
        _render_axis(axis, column, x, is_last=x == xs[-1]) for axis, column, x in zip(axes, columns, xs, strict=True)
    ]
    rows = [_render_row(axis, column, y) for axis, column, y in zip(axes, columns, ys, strict=True)]
    wide = _render_lines(lines, columns, lambda place, position: (xs[place], _to_y(position)))
    narrow = _render_lines(lines, columns, lambda place, position: (_to_x(position), ys[place]))
    label = escape(f"{len(lines)} trials over {', '.join(axis.name for axis in axes)}")
    return (
        f'<div class="scroll on-wide" style="padding:8px 16px 14px"><svg viewBox="0 0 {width} {_HEIGHT}" role="img" '
        f'aria-label="{label}" style="width:100%;min-width:{min(width, 900)}px;max-height:380px;display:block">'
        f"{''.join(frames)}{wide}</svg></div>"
        f'<div class="on-narrow" style="padding:4px 4px 10px"><svg viewBox="0 0 {_NARROW_WIDTH} {height}" role="img" '
        f'aria-label="{label}" style="width:100%;display:block">{narrow}{"".join(rows)}</svg></div>'
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


def _to_x(position: float) -> float:
    return _NARROW_SIDE + position * (_NARROW_WIDTH - 2 * _NARROW_SIDE)


def _render_row(axis: Axis, scale: _Scale, y: float) -> str:
    """Return a horizontal axis: its name above it, its labels below."""
    labels = "".join(
        f'<text x="{_to_x(place):.1f}" y="{y + 13}" text-anchor="{_anchor(place)}" font-size="10" {_HALO} '
        f'fill="var(--ink3)">{escape(_cut(text))}</text>'
        for place, text in scale.ticks[:: max(1, math.ceil((len(scale.ticks) - 1) / (_MAX_NARROW_CHOICES - 1)))]
    )
    return (
        f'<line x1="{_to_x(0)}" x2="{_to_x(1)}" y1="{y}" y2="{y}" stroke="var(--line2)"/>'
        f'<text x="{_to_x(0)}" y="{y - 7}" font-size="11.5" {_HALO} fill="var(--ink2)">{escape(_title(axis))}</text>'
        f"{labels}"
    )


def _anchor(position: float) -> str:
    return "start" if position == 0 else "end" if position == 1 else "middle"


def _render_axis(axis: Axis, scale: _Scale, x: float, *, is_last: bool) -> str:
    style = 'font-size="11" fill="var(--ink3)"'
    labels = "".join(
        f'<text x="{x + 6 if is_last else x - 6}" y="{_to_y(place) + 4:.1f}" '
        f'text-anchor="{"start" if is_last else "end"}" {style}>{escape(_cut(text))}</text>'
        for place, text in scale.ticks
    )
    return (
        f'<line x1="{x}" x2="{x}" y1="{_to_y(1):.1f}" y2="{_to_y(0):.1f}" stroke="var(--line2)"/>'
        f'<text x="{x}" y="18" text-anchor="middle" font-size="12" fill="var(--ink2)">{escape(_title(axis))}</text>'
        f"{labels}"
    )


def _title(axis: Axis) -> str:
    return _cut(axis.name) + (" (log)" if axis.logarithmic else "")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"


def _render_lines(
    lines: Sequence[Line], columns: Sequence[_Scale], locate: Callable[[int, float], tuple[float, float]]
) -> str:
    """Return one line for each trial, the best last."""
    drawn = []
    for values, is_best, name in sorted(lines, key=lambda line: line[1]):
        positions = [column.locate(value) for value, column in zip(values, columns, strict=True)]
        found = [locate(place, position) for place, position in enumerate(positions) if position is not None]
        points = " ".join(f"{x:.4g},{y:.1f}" for x, y in found)
        look = 'stroke="var(--accent)" stroke-width="2.5"' if is_best else 'stroke="var(--r7)" opacity=".4"'
        drawn.append(f'<polyline points="{points}" fill="none" {look}><title>{escape(name)}</title></polyline>')
    return "".join(drawn)
