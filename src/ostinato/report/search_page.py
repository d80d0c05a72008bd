"""The page of a search: its history, the importance of its parameters, parallel coordinates, and a table of trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.run_files import REPORT_NAME
from ..journal.study_record import COMPLETE, FAILED, PRUNED, StudyRecord, TrialRecord, describe_reason, find_study_path
from .charts import Series, render_chart
from .downsample import Curve
from .html import render_key_numbers, render_page, render_panel, render_table
from .parallel_plot import Axis, render_parallel_plot
from .parameter_effects import compute_effects
from .text import escape, format_count, format_duration, format_number, format_time

_PILLS = {COMPLETE: "", PRUNED: " warn", FAILED: " bad"}
_BAR = "height:8px;border-radius:4px;margin-top:5px;min-width:2px"
_MAX_REASON = 160  # characters of a reason in the table


def choose_study_page(place: str | Path) -> Path:
    """Return where the page of a search is written: beside its record."""
    path = find_study_path(place)
    return (path.parent if path is not None else Path(place)) / REPORT_NAME


def render_study(study: StudyRecord) -> str:
    """Return the whole page."""
    best = study.find_best()
    titles = _name_objectives(study)
    parts = [
        _render_head(study),
        _render_key_numbers(study, best),
        '<h2>History</h2><div class="charts">',
        *(_render_history(study, place, title) for place, title in enumerate(titles)),
        *(_render_trade_off(study, titles) if len(titles) == 2 else []),
        _render_curves(study),
        "</div>",
        *_render_importance(study, titles),
        _render_parallel(study, titles),
        "<h2>Trials</h2>",
        _render_trials(study, titles, {one.number for one in best}),
    ]
    return render_page(f"{study.output_dir.resolve().name} · search · ostinato", "Search", "\n".join(parts))


# ---- parts ---------------------------------------------------------------------------------------------------------


def _name_objectives(study: StudyRecord) -> list[str]:
    known = list(study.objectives)
    return known if len(known) == len(study.directions) else [f"objective {n}" for n, _ in enumerate(study.directions)]


def _render_head(study: StudyRecord) -> str:
    counted = {state: sum(one.state == state for one in study.trials) for state in (COMPLETE, PRUNED, FAILED)}
    running = len(study.trials) - sum(counted.values())
    facts = [
        f"{study.backend} ({study.engine})",
        f"began {format_time(study.began)}",
        f"study {study.name}",
        *(f"{count} {state}" for state, count in counted.items() if count),
        *([f"{running} without an end"] if running else []),
    ]
    meta = "".join(f"<span>{escape(fact)}</span>" for fact in facts)
    return (
        f'<section class="panel hd"><h1>{escape(study.output_dir.resolve().name)}</h1><div class="meta">{meta}</div>'
        "</section>"
    )


def _render_key_numbers(study: StudyRecord, best: Sequence[TrialRecord]) -> str:
    spent = sum(one.seconds or 0.0 for one in study.trials)
    entries = [("Trials", format_count(len(study.trials)), "", f"of {study.num_trials}" if study.num_trials else "")]
    entries.append(("Time of all trials", format_duration(spent), "", "of the processes that ended them"))
    if len(best) == 1 and best[0].values is not None:
        name = _name_objectives(study)[0]
        entries.append((f"Best {name}", format_number(best[0].values[0]), "", f"trial {best[0].number}"))
        entries += [(name, _format_value(value), "", "of the best trial") for name, value in best[0].params.items()]
    elif best:
        entries.append(("Best trials", str(len(best)), "", "none of which surpasses another"))
    return render_key_numbers(entries[:9])


def _render_history(study: StudyRecord, place: int, title: str) -> str:
    """Return the chart of an objective by trial, with the best so far."""
    done = [one for one in study.trials if one.state == COMPLETE and one.values is not None]
    numbers = [(one.number, (one.values or ())[place]) for one in done]
    sign = -1 if study.directions[place] == "maximize" else 1
    best, so_far = math.inf, []
    for number, value in numbers:
        best = min(best, sign * value)
        so_far.append((number, sign * best))
    every, lowest = (Curve(tuple(n for n, _ in part), tuple(v for _, v in part)) for part in (numbers, so_far))
    ended = [(one.number, one.values[place]) for one in study.trials if one.state == PRUNED and one.values is not None]
    pruned = Curve(tuple(n for n, _ in ended), tuple(v for _, v in ended))
    series = [Series("best so far", lowest, 1), Series("complete", every, 2, dots=True, joined=False)]
    series.append(Series("pruned", pruned, 7, dots=True, joined=False))
    width = 6 if len(study.directions) == 1 else 3
    until = max((one.number for one in study.trials), default=1)
    return render_chart(
        title, series, width=width, height=190, note=f"{study.directions[place]}, by trial", until=until
    )


def _render_trade_off(study: StudyRecord, titles: Sequence[str]) -> list[str]:
    best = {one.number for one in study.find_best()}
    axes = [Axis(title) for title in titles]
    done = [one for one in study.trials if one.state == COMPLETE and one.values is not None]
    lines = [(list(one.values or ()), one.number in best, f"trial {one.number}") for one in done]
    return [f'<div class="w6">{render_panel("Objectives", render_parallel_plot(axes, lines))}</div>'] if done else []


def _render_curves(study: StudyRecord) -> str:
    """Return the objective of the best and the other trials by step."""
    if len(study.directions) > 1:
        return ""
    best = {one.number for one in study.find_best()}
    with_curve = [one for one in study.trials if len(one.curve) > 1]
    chosen = sorted(with_curve, key=lambda one: (one.number not in best, one.number))[:8]
    series = [
        Series(
            f"trial {one.number}",
            Curve(tuple(value.step for value in one.curve), tuple(value.values[0] for value in one.curve)),
            place,
            dots=True,
        )
        for place, one in enumerate(chosen, 1)
    ]
    note = "of the best and the first others, by step" if len(with_curve) > len(chosen) else "by step"
    return render_chart("During the trials", series, width=6, height=190, note=note) if series else ""


def _render_importance(study: StudyRecord, titles: Sequence[str]) -> list[str]:
    panels = [panel for place, title in enumerate(titles) if (panel := _render_effects(study, place, title))]
    if not panels:
        return []
    return [
        "<h2>Importance</h2>",
        '<div class="charts">',
        *(f'<div class="w6">{one}</div>' for one in panels),
        "</div>",
    ]


def _render_effects(study: StudyRecord, place: int, title: str) -> str:
    """Return the bars of how much each parameter alone explains."""
    effects = compute_effects(study, place)
    if not effects:
        return ""
    rows = [
        [
            f'<span class="name">{escape(name)}</span>',
            f'<div style="{_BAR};background:var(--grid)"><div style="{_BAR};width:{100 * effect:.1f}%;'
            'background:var(--accent)"></div></div>',
            f"{100 * effect:.0f} %",
        ]
        for name, effect in effects.items()
    ]
    note = "the share of the order of complete trials that the parameter alone explains, less what chance would"
    table = render_table(["Parameter", "", "Share"], rows, numbers=[2])
    return render_panel(f"Importance for {title}", table, note=note)


def _render_parallel(study: StudyRecord, titles: Sequence[str]) -> str:
    """Return one line per trial over the axes of its parameters and objectives; the best are drawn last."""
    done = [one for one in study.trials if one.state == COMPLETE and one.values is not None]
    names = list(dict.fromkeys(name for one in done for name in one.params))
    if len(done) < 2 or not names:
        return ""
    logarithmic = {one["name"] for one in study.space or [] if one.get("log")}
    axes = [Axis(name, logarithmic=name in logarithmic) for name in names] + [Axis(title) for title in titles]
    best = {one.number for one in study.find_best()}
    lines = [
        ([*(one.params.get(name) for name in names), *(one.values or ())], one.number in best, f"trial {one.number}")
        for one in done
    ]
    plot = render_parallel_plot(axes, lines)
    return f"<h2>Parallel coordinates</h2>{render_panel('Trials', plot, note='best in colour')}"


def _render_trials(study: StudyRecord, titles: Sequence[str], best: set[int]) -> str:
    names = list(dict.fromkeys(name for one in study.trials for name in one.params))
    head = ["Trial", "Outcome", *titles, *names, "Steps", "Time", "Run"]
    rows = []
    for one in study.trials:
        pill = "acc" if one.number in best else _PILLS.get(one.state, " mut")
        state = "best" if one.number in best else one.state if one.is_finished else "no end written"
        outcome = f'<span class="pill {pill}">{escape(state)}</span>'
        if one.reason is not None:
            text = describe_reason(one.reason)
            short = text if len(text) <= _MAX_REASON else f"{text[: _MAX_REASON - 1]}…"
            outcome += f'<br><small title="{escape(text)}">{escape(short)}</small>'
        values = one.values or (math.nan,) * len(titles)
        rows.append(
            [
                str(one.number),
                outcome,
                *("" if math.isnan(value) else escape(format_number(value)) for value in values),
                *(escape(_format_value(one.params[name])) if name in one.params else "" for name in names),
                f"{one.step}" + (f" of {one.steps}" if one.steps and one.steps != one.step else ""),
                "" if one.seconds is None else escape(format_duration(one.seconds)),
                f"<code>{escape(one.directory)}</code>",
            ]
        )
    numbers = [0, *range(2, 2 + len(titles) + len(names)), 2 + len(titles) + len(names), 3 + len(titles) + len(names)]
    return f'<section class="panel">{render_table(head, rows, numbers=numbers)}</section>'


def _format_value(value: Any) -> str:
    return format_number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
