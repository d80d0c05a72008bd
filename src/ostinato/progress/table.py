"""Format all evaluations of a run as one table.

evaluations
   step  epoch  loss      accuracy
    250   0.67  0.3391    0.8712
    500   1.33  0.2914 ↓  0.8912 ↑  best
    ...  1 more
   1000   2.67  0.2801 ↑  0.8834 ↓
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .format import SPEEDS, Line, cut, find_layout, format_change, measure_width, pad
from .plain import format_epoch, format_label, format_value, to_number

FIRST_SHOWN, LAST_SHOWN = 3, 6
MAX_LENGTH = 20  # of a value


def collect_evaluations(history: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the evaluations of a history by the name of their set, without the prefixes of names.

    >>> collect_evaluations(
    ...     [{"loss": 2.0, "step": 5}, {"eval_loss": 0.5, "eval_runtime": 1.0, "epoch": 1.0, "step": 5}]
    ... )
    {'': [{'step': 5, 'epoch': 1.0, 'loss': 0.5}]}
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for log in history:
        layout = find_layout(log) if any(str(name).startswith("eval_") for name in log) else None
        if layout is None or layout.subject != "eval":
            continue
        numbers = {one.short: log[one.name] for one in layout.entries if to_number(log[one.name]) is not None}
        row = {name: value for name, value in numbers.items() if name not in SPEEDS}
        if row:
            found.setdefault(layout.data, []).append({"step": log.get("step"), "epoch": log.get("epoch"), **row})
    return found


def build_tables(
    history: Sequence[Mapping[str, Any]],
    metric: str | None,
    *,
    greater_is_better: bool | None,
    width: int,
    is_ascii: bool,
) -> list[Line]:
    """Return a table for every set that was evaluated more than once. `metric` decides which row is best."""
    wanted = (metric or "loss").removeprefix("eval_")
    greater = not wanted.endswith("loss") if greater_is_better is None else greater_is_better
    lines: list[Line] = []
    for data, rows in collect_evaluations(history).items():
        if len(rows) > 1:
            lines.append([(f"evaluations of {data}" if data else "evaluations", "subject")])
            lines += build_table(rows, _strip_set_name(data, wanted), greater=greater, width=width, is_ascii=is_ascii)
    return lines


def build_table(
    rows: list[dict[str, Any]], metric: str, *, greater: bool, width: int, is_ascii: bool
) -> Iterator[Line]:
    """Yield a row for each evaluation, with arrows for changes and a mark for the best."""
    names = _sort_by_importance(rows, metric)
    marks = [to_number(row.get(metric)) for row in rows]
    best = _find_best(marks, greater=greater)
    cells = {name: _format_cells(rows, name, is_ascii=is_ascii) for name in ("step", "epoch", *names)}
    widths = {name: max(measure_width(format_label(name)), *map(len, texts)) for name, texts in cells.items()}
    shown, used = ["step", "epoch"], 2 + widths["step"] + 2 + widths["epoch"] + len("  best")
    for name in names:
        used += 2 + widths[name]
        if used > width:
            break
        shown.append(name)
    yield [("  " + "  ".join(_align(format_label(name), name, widths[name]) for name in shown), "quiet")]
    last = -1
    for place in _choose_rows(len(rows), best):
        if place > last + 1:
            yield [(f"  {'...'.rjust(widths['step'])}  {place - last - 1} more", "quiet")]
        texts = [_align(cells[name][place], name, widths[name]) for name in shown]
        yield [(f"  {'  '.join(texts)}", ""), ("  best" if place == best else "", "best")]
        last = place
    left_out = names[len(shown) - 2 :]
    if left_out:
        note = f"  not shown: {', '.join(map(format_label, left_out))}"
        yield [(cut(note, width), "quiet")]


def _strip_set_name(data: str, wanted: str) -> str:
    """Return the metric's name without that of its evaluation set."""
    return wanted.removeprefix(f"{data}_") if data else wanted


def _sort_by_importance(rows: list[dict[str, Any]], metric: str) -> list[str]:
    """Return the loss first, then the metric of the best model, then the others in order."""
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("step", "epoch")))
    return sorted(names, key=lambda name: (name != "loss", name != metric))


def _find_best(marks: list[float | None], *, greater: bool) -> int | None:
    known = [(mark if greater else -mark, -place) for place, mark in enumerate(marks) if mark is not None]
    return -max(known)[1] if known else None


def _format_cells(rows: list[dict[str, Any]], name: str, *, is_ascii: bool) -> list[str]:
    if name in ("step", "epoch"):
        values = [row.get(name) for row in rows]
        return ["" if one is None else str(one) if name == "step" else format_epoch(one) for one in values]
    texts, before = [], None
    for row in rows:
        now = to_number(row.get(name))
        if now is None:
            texts.append("")
            continue
        changed = "" if before is None else format_change(before, now, is_ascii=is_ascii)
        texts.append(f"{format_value(name, row[name], MAX_LENGTH)}{changed}")
        before = now
    return texts


def _align(text: str, name: str, width: int) -> str:
    return text.rjust(width) if name in ("step", "epoch") else pad(text, width)


def _choose_rows(count: int, best: int | None) -> list[int]:
    """Return the first few rows, the best and the last few; a gap of one row is filled."""
    if count <= FIRST_SHOWN + LAST_SHOWN + 2:
        return list(range(count))
    chosen = {*range(FIRST_SHOWN), *range(count - LAST_SHOWN, count), *([] if best is None else [best])}
    return [place for place in range(count) if place in chosen or {place - 1, place + 1} <= chosen]
