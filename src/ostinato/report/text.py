"""Formatting of numbers, times and sizes; escaping of text for a page."""

from __future__ import annotations

import html
import json
import math
from datetime import datetime, timezone
from typing import Any


def escape(text: Any) -> str:
    """Return text escaped for HTML, also for attributes.

    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return html.escape(replace_unprintable(str(text)), quote=True)


def replace_unprintable(text: str) -> str:
    """Replace characters that reverse the direction of text or break a page: control characters, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" or one.isprintable() or one == "\xad" else "\ufffd" for one in text)


def format_script_json(data: Any) -> str:
    """Return JSON for a script element, escaped so that no `<` can end it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def format_number(value: Any) -> str:
    """Return a number with four digits, whatever its size.

    >>> (
    ...     format_number(0.21300649),
    ...     format_number(3e-05),
    ...     format_number(12630),
    ...     format_number(float("nan")),
    ...     format_number(1.0),
    ... )
    ('0.213', '3e-05', '12,630', 'NaN', '1')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e15 or size < 1e-4:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"
    if size >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if "e" in f"{value:.4g}" else _strip_zeros(f"{value:.{_count_decimals(size)}f}")


def _count_decimals(size: float) -> int:
    return max(0, 3 - math.floor(math.log10(size)))


def _strip_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_tick(value: float) -> str:
    """Return a number for the axis of a chart.

    >>> format_tick(2000), format_tick(0.5), format_tick(0.00003), format_tick(1500000)
    ('2k', '0.5', '3e-5', '1.5M')
    """
    size = abs(value)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.4g}{name}" if size < 1e16 else f"{value:.0e}"
    if 0 < size < 1e-3:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def format_duration(seconds: float) -> str:
    """Return a time span in two units.

    >>> format_duration(0.0312), format_duration(5.25), format_duration(171), format_duration(8000)
    ('31 ms', '5.2 s', '2 min 51 s', '2 h 13 min')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def format_size(count: float) -> str:
    """Return a number of bytes as text.

    >>> format_size(1_300_000_000), format_size(512)
    ('1.3 GB', '512 bytes')
    """
    for name, unit in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} bytes"


def format_count(count: Any) -> str:
    """Return a count as text.

    >>> format_count(67_000_000), format_count(513), format_count(None)
    ('67.0 M', '513', 'unknown')
    """
    if isinstance(count, bool) or not isinstance(count, (int, float)) or not math.isfinite(count):
        return "unknown"
    for name, unit in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:,.0f}"


def format_date(time: float | None) -> str:
    """Return a point in time, in UTC: the page may be read in another time zone.

    >>> format_date(0.0)
    '1970-01-01 00:00 UTC'
    """
    return "an unknown time" if time is None else _format_utc(time, "%Y-%m-%d %H:%M UTC")


def format_time(time: float | None) -> str:
    """Return the time of day, in UTC."""
    return "" if time is None else _format_utc(time, "%H:%M:%S")


def _format_utc(time: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(time, timezone.utc).strftime(form)
    except (OverflowError, OSError, ValueError):
        return "an unknown time"


def format_share(part: float, whole: float) -> str:
    """Return a part of a whole in per cent.

    >>> format_share(1, 3), format_share(1, 1000), format_share(0, 1)
    ('33 %', '0.1 %', '0 %')
    """
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"
