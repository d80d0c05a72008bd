"""HTML components shared by the page of one run and the page of several, and the page around them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .downsample import Curve
from .journal_reader import RunRecord
from .text import number, safe

LOGO = (
    '<svg width="26" height="22" viewBox="0 0 26 22" aria-hidden="true"><g fill="currentColor">'
    '<rect x="0" y="8" width="3" height="6" rx="1.5"/><rect x="5" y="3" width="3" height="16" rx="1.5"/>'
    '<rect x="10" y="7" width="3" height="8" rx="1.5"/></g><g fill="var(--accent)">'
    '<rect x="15" y="8" width="3" height="6" rx="1.5"/><rect x="20" y="3" width="3" height="16" rx="1.5"/></g></svg>'
)
_NOT_WORTH_A_CURVE = ("_runtime", "_per_second", "total_flos", "num_input_tokens_seen", "_model_preparation_time")
_LONGEST = 400  # characters of a value in a table


@cache
def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def whole_page(title: str, what: str, body: str) -> str:
    """Return a self-contained page; its own content policy forbids it to load or send anything."""
    script = _beside("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{safe(title)}</title>\n<style>{_beside('page.css')}</style></head>\n<body>"
        f'<header class="top"><div class="brand">{LOGO} ostinato</div><div class="what">{safe(what)}</div></header>\n'
        f"<main>\n{body}\n</main>\n<script>{script}</script></body></html>\n"
    )


def write_page(page: str, path: Path) -> None:
    """Write a page atomically, so that a half-written page is never seen."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def panel(title: str, inside: str, *, note: str = "") -> str:
    """Return a box with a heading."""
    right = f'<span class="x">{safe(note)}</span>' if note else ""
    return f'<section class="panel"><div class="ph"><h3>{safe(title)}</h3>{right}</div>{inside}</section>'


def key_numbers(entries: Iterable[tuple[str, str, str, str]]) -> str:
    """Return large numbers in a row: name, value, unit, remark."""
    cells = "".join(
        f'<div class="kpi"><dt>{safe(name)}</dt><dd class="v">{safe(value)}'
        f"{f'<small>{safe(unit)}</small>' if unit else ''}</dd><dd>{safe(remark)}</dd></div>"
        for name, value, unit, remark in entries
    )
    return f'<dl class="panel kpis">{cells}</dl>' if cells else ""


def pairs(entries: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one pair per line."""
    return f'<dl class="kv">{"".join(f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>" for name, value in entries)}</dl>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Return a table whose cells are HTML already. `numbers` are the right-aligned columns."""

    def cell(tag: str, place: int, text: str) -> str:
        return f"<{tag}{' class=n' if place in numbers else ''}>{text}</{tag}>"

    heading = "".join(cell("th", place, safe(text)) for place, text in enumerate(head))
    lines = "".join(f"<tr>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{lines}</tbody></table></div>'


def value_text(value: Any) -> str:
    """Return the value of an argument as text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def outcome_pill(outcome: str) -> str:
    """Return a label that shows how a run ended."""
    kind = {"finished": "", "stopped": " warn", "failed": " bad"}.get(outcome, " mut")
    text = {"open": "no end written"}.get(outcome, outcome)
    return f'<span class="pill{kind}">{safe(text)}</span>'


def curve_names(curves: Mapping[str, Curve]) -> list[str]:
    """Return the names that deserve a chart, in the order they were first logged."""
    return [name for name in curves if not name.endswith(_NOT_WORTH_A_CURVE) and name != "train_loss"]


def typical_speed(run: RunRecord, speed: Curve) -> float:
    """Return the median of the rows or tokens per second; if some logs were left out, the mean of the rows."""
    if speed.is_whole:
        return statistics.median(speed.values)
    rows, spent = run.plan.get("rows_per_step"), run.seconds.get("computing", 0.0) + run.seconds.get("data", 0.0)
    return rows * (run.step - run.legs[0].from_step) / spent if isinstance(rows, int) and spent else math.nan


def title_of(name: str) -> str:
    """Return the name of a curve as a heading.

    >>> title_of("eval_f1_macro"), title_of("learning_rate")
    ('Eval f1 macro', 'Learning rate')
    """
    known = {"grad_norm": "Gradient norm", "learning_rate": "Learning rate", "loss": "Loss", "train_mfu": "MFU"}
    words = name.replace("_", " ").strip()
    return known.get(name) or words[:1].upper() + words[1:]


def step_text(step: Any) -> str:
    """Return a step as formatted text."""
    return number(step) if isinstance(step, int) else "?"
