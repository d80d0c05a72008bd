"""All evaluations of a run as one table.

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

from .format import SPEEDS, Line, arrow, cut, look_of, pad, width_of
from .plain import epoch_text, label_of, number_in, value_text

FIRST_SHOWN, LAST_SHOWN = 3, 6
MAX_LENGTH = 20  # of a value


def evaluations(history: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The evaluations of a history, by the name of their set: step, epoch, and numbers without their prefix.

    >>> evaluations([{"loss": 2.0, "step": 5}, {"eval_loss": 0.5, "eval_runtime": 1.0, "epoch": 1.0, "step": 5}])
    {'': [{'step': 5, 'epoch': 1.0, 'loss': 0.5}]}
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for log in history:
        look = look_of(log) if any(str(name).startswith("eval_") for name in log) else None
        if look is None or look.subject != "eval":
            continue
        numbers = {one.short: log[one.name] for one in look.entries if number_in(log[one.name]) is not None}
        row = {name: value for name, value in numbers.items() if name not in SPEEDS}
        if row:
            found.setdefault(look.data, []).append({"step": log.get("step"), "epoch": log.get("epoch"), **row})
    return found


def tables(
    history: Sequence[Mapping[str, Any]],
    metric: str | None,
    *,
    greater_is_better: bool | None,
    width: int,
    is_ascii: bool,
) -> list[Line]:
    """One table for every set that was evaluated more than once. `metric` decides which row is best."""
    wanted = (metric or "loss").removeprefix("eval_")
    greater = not wanted.endswith("loss") if greater_is_better is None else greater_is_better
    lines: list[Line] = []
    for data, rows in evaluations(history).items():
        if len(rows) > 1:
            lines.append([(f"evaluations of {data}" if data else "evaluations", "subject")])
            lines += table(rows, _metric_of(data, wanted), greater=greater, width=width, is_ascii=is_ascii)
    return lines


def table(rows: list[dict[str, Any]], metric: str, *, greater: bool, width: int, is_ascii: bool) -> Iterator[Line]:
    """A row for each evaluation: arrows for what has changed since the one before, and a mark for the best."""
    names = _by_importance(rows, metric)
    marks = [number_in(row.get(metric)) for row in rows]
    best = _best_of(marks, greater=greater)
    cells = {name: _cells(rows, name, is_ascii=is_ascii) for name in ("step", "epoch", *names)}
    widths = {name: max(width_of(label_of(name)), *map(len, texts)) for name, texts in cells.items()}
    shown, used = ["step", "epoch"], 2 + widths["step"] + 2 + widths["epoch"] + len("  best")
    for name in names:
        used += 2 + widths[name]
        if used > width:
            break
        shown.append(name)
    yield [("  " + "  ".join(_aligned(label_of(name), name, widths[name]) for name in shown), "quiet")]
    last = -1
    for place in _places(len(rows), best):
        if place > last + 1:
            yield [(f"  {'...'.rjust(widths['step'])}  {place - last - 1} more", "quiet")]
        texts = [_aligned(cells[name][place], name, widths[name]) for name in shown]
        yield [(f"  {'  '.join(texts)}", ""), ("  best" if place == best else "", "best")]
        last = place
    left_out = names[len(shown) - 2 :]
    if left_out:
        said = f"  not shown: {', '.join(map(label_of, left_out))}"
        yield [(cut(said, width), "quiet")]


def _metric_of(data: str, wanted: str) -> str:
    """The metric of one of several sets is asked for with the set's name."""
    return wanted.removeprefix(f"{data}_") if data else wanted


def _by_importance(rows: list[dict[str, Any]], metric: str) -> list[str]:
    """Loss first, then what the best is chosen by, then the others as they came."""
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("step", "epoch")))
    return sorted(names, key=lambda name: (name != "loss", name != metric))


def _best_of(marks: list[float | None], *, greater: bool) -> int | None:
    known = [(mark if greater else -mark, -place) for place, mark in enumerate(marks) if mark is not None]
    return -max(known)[1] if known else None


def _cells(rows: list[dict[str, Any]], name: str, *, is_ascii: bool) -> list[str]:
    if name in ("step", "epoch"):
        values = [row.get(name) for row in rows]
        return ["" if one is None else str(one) if name == "step" else epoch_text(one) for one in values]
    texts, before = [], None
    for row in rows:
        now = number_in(row.get(name))
        if now is None:
            texts.append("")
            continue
        changed = "" if before is None else arrow(before, now, is_ascii=is_ascii)
        texts.append(f"{value_text(name, row[name], MAX_LENGTH)}{changed}")
        before = now
    return texts


def _aligned(text: str, name: str, width: int) -> str:
    return text.rjust(width) if name in ("step", "epoch") else pad(text, width)


def _places(count: int, best: int | None) -> list[int]:
    """The first few, the best, the last few; a gap of one is no gap."""
    if count <= FIRST_SHOWN + LAST_SHOWN + 2:
        return list(range(count))
    chosen = {*range(FIRST_SHOWN), *range(count - LAST_SHOWN, count), *([] if best is None else [best])}
    return [place for place in range(count) if place in chosen or {place - 1, place + 1} <= chosen]
