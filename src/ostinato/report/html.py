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
from .text import escape, format_number

LOGO = (
    '<svg width="26" height="22" viewBox="0 0 26 22" aria-hidden="true"><g fill="currentColor">'
    '<rect x="0" y="8" width="3" height="6" rx="1.5"/><rect x="5" y="3" width="3" height="16" rx="1.5"/>'
    '<rect x="10" y="7" width="3" height="8" rx="1.5"/></g><g fill="var(--accent)">'
    '<rect x="15" y="8" width="3" height="6" rx="1.5"/><rect x="20" y="3" width="3" height="16" rx="1.5"/></g></svg>'
)
_NOT_CHARTED = ("_runtime", "_per_second", "total_flos", "num_input_tokens_seen", "_model_preparation_time")
_MAX_VALUE_LENGTH = 400  # characters of a value in a table


@cache
def _read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def render_page(title: str, what: str, body: str) -> str:
    """Return a self-contained page; its own content policy forbids it to load or send anything."""
    script = _read_asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title>\n<style>{_read_asset('page.css')}</style></head>\n<body>"
        f'<header class="top"><div class="brand">{LOGO} ostinato</div><div class="what">{escape(what)}</div>'
        "</header>\n"
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


def render_panel(title: str, inside: str, *, note: str = "") -> str:
    """Return a box with a heading."""
    right = f'<span class="x">{escape(note)}</span>' if note else ""
    return f'<section class="panel"><div class="ph"><h3>{escape(title)}</h3>{right}</div>{inside}</section>'


def render_key_numbers(entries: Iterable[tuple[str, str, str, str]]) -> str:
    """Return large numbers in a row: name, value, unit, remark."""
    cells = "".join(
        f'<div class="kpi"><dt>{escape(name)}</dt><dd class="v">{escape(value)}'
        f"{f'<small>{escape(unit)}</small>' if unit else ''}</dd><dd>{escape(remark)}</dd></div>"
        for name, value, unit, remark in entries
    )
    return f'<dl class="panel kpis">{cells}</dl>' if cells else ""


def render_pairs(entries: Iterable[tuple[str, str]]) -> str:
    """Return names and values, one pair per line."""
    return (
        f'<dl class="kv">{"".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in entries)}</dl>'
    )


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Return a table whose cells are HTML already. `numbers` are the right-aligned columns."""

    def render_cell(tag: str, place: int, text: str) -> str:
        return f"<{tag}{' class=n' if place in numbers else ''}>{text}</{tag}>"

    heading = "".join(render_cell("th", place, escape(text)) for place, text in enumerate(head))
    lines = "".join(
        f"<tr>{''.join(render_cell('td', place, text) for place, text in enumerate(row))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{lines}</tbody></table></div>'


def format_value(value: Any) -> str:
    """Return the value of an argument as text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"


def render_outcome(outcome: str) -> str:
    """Return a label that shows how a run ended."""
    kind = {"finished": "", "stopped": " warn", "failed": " bad"}.get(outcome, " mut")
    text = {"open": "no end written"}.get(outcome, outcome)
    return f'<span class="pill{kind}">{escape(text)}</span>'


def list_charted_names(curves: Mapping[str, Curve]) -> list[str]:
    """Return the names that deserve a chart, in the order they were first logged."""
    return [name for name in curves if not name.endswith(_NOT_CHARTED) and name != "train_loss"]


def compute_typical_speed(run: RunRecord, speed: Curve) -> float:
    """Return the median of the rows or tokens per second; if some logs were left out, the mean of the rows."""
    if speed.is_whole:
        return statistics.median(speed.values)
    rows, spent = run.plan.get("rows_per_step"), run.seconds.get("computing", 0.0) + run.seconds.get("data", 0.0)
    return rows * (run.step - run.segments[0].from_step) / spent if isinstance(rows, int) and spent else math.nan


def format_title(name: str) -> str:
    """Return the name of a curve as a heading.

    >>> format_title("eval_f1_macro"), format_title("learning_rate")
    ('Eval f1 macro', 'Learning rate')
    """
    known = {"grad_norm": "Gradient norm", "learning_rate": "Learning rate", "loss": "Loss", "train_mfu": "MFU"}
    words = name.replace("_", " ").strip()
    return known.get(name) or words[:1].upper() + words[1:]


def format_step(step: Any) -> str:
    """Return a step as formatted text."""
    return format_number(step) if isinstance(step, int) else "?"
