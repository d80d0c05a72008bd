"""Charts as inline SVG. Lines are stretched to the width of the page; text is not, so it is readable on a phone.

The drawing has a thousand units in each direction. All data comes from a journal: names are escaped, and numbers
that are not finite are left out of the line and marked below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .downsample import Curve
from .text import escape, format_number, format_script_json, format_tick

_MAX_POINTS = 600  # points of a line on a page
_MIN_POINTS_TO_SMOOTH = 80  # points; a shorter curve is not smoothed
_LOG_AXIS_RATIO = 60  # ratio of the largest value to the median above which the axis is logarithmic
_SIDE = 1000.0
_LETTER_WIDTH = 0.018  # part of the width that a letter of a mark takes on a narrow page
_MAX_VALUE = 1e100  # values beyond it are drawn at the edge


@dataclass(frozen=True)
class Series:
    """One curve of a chart."""

    name: str
    curve: Curve
    color: int  # index into the palette, from 1
    dots: bool = False  # mark every point, as for evaluations
    joined: bool = True  # by a line; else the points alone
    smooth: bool = False
    fill: bool = False


@dataclass(frozen=True)
class Mark:
    """A vertical line at a step, with a label."""

    step: int
    text: str


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def locate(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 at the bottom to 1 at the top."""
        low, high, value = self.low, self.high, min(max(value, -_MAX_VALUE), _MAX_VALUE)
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(max((value - low) / (high - low), -0.02), 1.02) if high > low else 0.5


def render_chart(
    title: str,
    series: Sequence[Series],
    *,
    width: int = 2,
    height: int = 150,
    note: str = "",
    until: int = 0,
    from_zero: bool = False,
    marks: Sequence[Mark] = (),
) -> str:
    """Return one panel as HTML. `width` is in sixths of the page; `until` is the last step of the axis."""
    shown = [one for one in series if one.curve]
    drawn = [(one, one.curve.downsample(_MAX_POINTS)) for one in shown]
    last = max([until, *(one.curve.steps[-1] for one in shown)], default=0) or 1
    axis = _choose_axis([value for _, curve in drawn for value in curve.values], from_zero=from_zero)
    lines = "".join(_render_line(one, curve, axis, last) for one, curve in drawn)
    note = f"{note}, logarithmic" if note and axis.logarithmic else note or ("logarithmic" * axis.logarithmic)
    steps, description = _list_step_ticks(last), escape(_describe_chart(title, shown))
    return (
        f'<figure class="panel ch w{width}"><figcaption><h3>{escape(title)}</h3><span class="k">'
        f"{_render_legend(shown) if len(shown) > 1 else ''}{f'<span>{escape(note)}</span>' if note else ''}</span>"
        "</figcaption>"
        f'<div class="plot" style="height:{height}px" tabindex="0" role="img" aria-label="{description}">'
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" aria-hidden="true">{_render_grid(axis, steps, last)}'
        f"{_render_mark_lines(marks, last)}{lines}</svg>{_render_labels(axis, steps, last)}"
        f"{_render_mark_labels(marks, last)}</div>"
        f'<script type="application/json">{format_script_json(_build_hover_data(drawn, last))}</script></figure>'
    )


# ---- axes -----------------------------------------------------------------------------------------------------------


def _choose_axis(values: Iterable[float], *, from_zero: bool) -> _Axis:
    finite = sorted(min(max(value, -_MAX_VALUE), _MAX_VALUE) for value in values if math.isfinite(value))
    if not finite:
        return _Axis(0.0, 1.0, (0.0, 1.0))
    low, high, middle = finite[0], finite[-1], finite[len(finite) // 2]
    if low > 0 and not from_zero and high / max(middle, 1e-300) > _LOG_AXIS_RATIO:
        return _build_log_axis(low, high)
    if low >= 0 and (from_zero or low < high / 3):
        low = 0.0
    if high - low < 1e-12 * max(abs(high), abs(low), 1e-300) or high == low:
        spread = abs(high) / 10 or 1.0
        low, high = low - (spread if low != 0 else 0), high + spread
    step = _choose_tick_step(high - low, 4)
    if not math.isfinite(step) or step <= 0:
        return _Axis(low, high, (low, high))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # A wide gap above the line shows nothing: the axis ends a little above the highest value.
    top = max(high + 0.04 * (high - low), high)
    ticks = [one * step for one in range(first, min(last, first + 12) + 1)]
    bottom = low if low == 0 else max(first * step, low - 0.06 * (high - low))
    return _Axis(bottom, top, tuple(one for one in ticks if bottom - 1e-12 <= one <= top))


def _build_log_axis(low: float, high: float) -> _Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, (last - first) // 4)
    ticks = tuple(10.0**one for one in range(first, last + 1, every) if low / 1.5 <= 10.0**one <= high * 1.5)
    return _Axis(low / 1.2, high * 1.2, ticks, logarithmic=True)


def _choose_tick_step(span: float, count: int) -> float:
    """Return a round number that fits about `count` times into the span."""
    rough = span / count
    if not math.isfinite(rough) or rough <= 0:
        return math.nan
    power = 10.0 ** math.floor(math.log10(rough))
    return next((factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999), 10 * power)


def _list_step_ticks(last: int) -> list[int]:
    step = max(1, round(_choose_tick_step(float(last), 6)))
    return list(range(0, last + 1, step))


def _render_grid(axis: _Axis, steps: Sequence[int], last: int) -> str:
    across = "".join(f"M0 {_format_y(axis, tick)}H1000" for tick in axis.ticks)
    down = "".join(f"M{_format_x(step, last)} 0V1000" for step in steps if 0 < step < last)
    return f'<path class="grid" d="{across}{down}"/>'


def _render_labels(axis: _Axis, steps: Sequence[int], last: int) -> str:
    left = "".join(
        f'<span class="y" style="top:{(1 - axis.locate(tick)) * 100:.2f}%">{escape(format_tick(tick))}</span>'
        for tick in axis.ticks
    )
    below = "".join(
        f'<span class="x" style="left:{step / last * 100:.2f}%">{escape(format_tick(step))}</span>'
        for step in steps
        if step <= last
    )
    return left + below


def _render_mark_lines(marks: Sequence[Mark], last: int) -> str:
    lines = "".join(f"M{_format_x(mark.step, last)} 0V1000" for mark in marks if 0 <= mark.step <= last)
    return f'<path class="mark" d="{lines}"/>' if lines else ""


def _render_mark_labels(marks: Sequence[Mark], last: int) -> str:
    labels, line, free_from = [], 0, 0.0
    for mark in sorted(marks, key=lambda mark: mark.step):
        if mark.text and 0 <= mark.step <= last:
            at = mark.step / last
            line = line + 1 if at < free_from else 0  # below the previous label where there is no room beside it
            free_from, side = at + _LETTER_WIDTH * len(mark.text), " left" if at > 0.75 else ""
            place = f"left:{at * 100:.2f}%;top:{2 + 14 * min(line, 6)}px"
            labels.append(f'<span class="ml{side}" style="{place}">{escape(mark.text)}</span>')
    return "".join(labels)


def _format_x(step: float, last: int) -> str:
    return _format_coordinate(step / last * _SIDE)


def _format_y(axis: _Axis, value: float) -> str:
    return _format_coordinate((1 - axis.locate(value)) * _SIDE)


def _format_coordinate(position: float) -> str:
    return f"{position:.1f}".removesuffix(".0")


# ---- lines ----------------------------------------------------------------------------------------------------------


def _render_line(series: Series, curve: Curve, axis: _Axis, last: int) -> str:
    color, smooth = f"var(--r{series.color})", series.smooth and len(curve) >= _MIN_POINTS_TO_SMOOTH
    parts = []
    if series.fill and not smooth and len(curve) > 1:
        path = _build_path(curve.steps, curve.values, axis, last)
        if path.count("M") == 1:
            parts.append(
                f'<path class="fill" style="fill:{color}" d="{path}L{_format_x(curve.steps[-1], last)} 1000'
                f'L{_format_x(curve.steps[0], last)} 1000Z"/>'
            )
    path = _build_path(curve.steps, curve.values, axis, last)
    kind = "raw" if smooth else "thin" if series.dots else "ln"
    if series.joined:
        parts.append(f'<path class="{kind}" style="stroke:{color}" d="{path}"/>')
    if smooth:
        smoothed = _build_path(curve.steps, _smooth(curve.values, logarithmic=axis.logarithmic), axis, last)
        parts.append(f'<path class="ln" style="stroke:{color}" d="{smoothed}"/>')
    if series.dots or len(curve) == 1:
        places = _build_dots(curve, axis, last)
        parts.append(f'<path class="dot" style="stroke:{color}" d="{places}"/><path class="hole" d="{places}"/>')
    bad = "".join(
        f"M{_format_x(step, last)} 1000h.01"
        for step, value in zip(curve.steps, curve.values, strict=True)
        if not math.isfinite(value)
    )
    return "".join(parts) + (f'<path class="bad" d="{bad}"/>' if bad else "")


def _build_path(steps: Sequence[int], values: Sequence[float], axis: _Axis, last: int) -> str:
    """Return the path of a line, broken where a value is not finite."""
    parts, pen = [], "M"
    for step, value in zip(steps, values, strict=True):
        if math.isfinite(value):
            parts.append(f"{pen}{_format_x(step, last)} {_format_y(axis, value)}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _build_dots(curve: Curve, axis: _Axis, last: int) -> str:
    """Return points as lines of zero length: their round ends stay round however the drawing is stretched."""
    return "".join(
        f"M{_format_x(step, last)} {_format_y(axis, value)}h.01"
        for step, value in zip(curve.steps, curve.values, strict=True)
        if math.isfinite(value)
    )


def _smooth(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """Return an exponential running mean without its bias towards the start.

    On a logarithmic axis the mean is taken of the logarithms; otherwise one spike would lift the line for long.
    """
    if logarithmic:
        return [math.exp(one) for one in _smooth([_take_log(value) for value in values], logarithmic=False)]
    keep, sum_, weight, smoothed = 1 - 1 / max(2.0, len(values) / 25), 0.0, 0.0, []
    for value in values:
        if math.isfinite(value):
            sum_, weight = sum_ * keep + value * (1 - keep), weight * keep + (1 - keep)
        smoothed.append(sum_ / weight if weight and math.isfinite(value) else math.nan)
    return smoothed


def _take_log(value: float) -> float:
    return math.log(value) if value > 0 and math.isfinite(value) else math.nan


# ---- text and data --------------------------------------------------------------------------------------------------


def _render_legend(series: Sequence[Series]) -> str:
    return "".join(
        f'<span class="s{" ring" if one.dots else ""}" style="--c:var(--r{one.color})">{escape(one.name)}</span>'
        for one in series
    )


def _describe_chart(title: str, series: Sequence[Series]) -> str:
    """Return a description of the chart for screen readers."""
    parts = []
    for one in series:
        lowest, highest = one.curve.find_lowest(), one.curve.find_highest()
        if lowest is None or highest is None:
            parts.append(f"{one.name}: no finite number")
            continue
        first, last = format_number(one.curve.values[0]), format_number(one.curve.last)
        parts.append(
            f"{one.name}: {first} at step {one.curve.steps[0]}, {last} at step {one.curve.steps[-1]}, "
            f"lowest {format_number(lowest[1])} at step {lowest[0]}, "
            f"highest {format_number(highest[1])} at step {highest[0]}"
        )
    return f"{title}. {'; '.join(parts) or 'nothing was logged'}."


def _build_hover_data(drawn: Sequence[tuple[Series, Curve]], last: int) -> dict[str, object]:
    """Return the data that is shown under the pointer."""
    return {
        "last": last,
        "series": [
            {
                "name": one.name,
                "color": one.color,
                "steps": curve.steps,
                "values": [format_number(v) for v in curve.values],
            }
            for one, curve in drawn
        ],
    }
