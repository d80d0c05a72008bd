"""A page that compares runs: the settings that differ, the curves, and the first step at which the runs differ."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .charts import Mark, Series, render_chart
from .html import (
    compute_typical_speed,
    format_step,
    format_title,
    format_value,
    list_charted_names,
    render_outcome,
    render_page,
    render_panel,
    render_table,
)
from .journal_reader import RunRecord, as_mapping, parse_number, parse_step, read_events, read_run
from .text import escape, format_count, format_duration, format_number, replace_unprintable

MAX_RUNS = 8  # colours that can be distinguished
_MAX_CHARTS = 24
_MEMORY = ("memory/device_peak", "memory/rss")
_TITLES = {
    "speed/rows": "Rows per second",
    "speed/tokens": "Tokens per second",
    "memory/device_peak": "Memory in GB: device, peak",
    "memory/rss": "Memory in GB: process",
}
_COMPARED_NAMES = ("loss", "grad_norm", "learning_rate", "eval_loss")
_WINDOWED_NAME = "loss"  # the mean of all steps since the last log; the other names are values of the step itself
_IGNORED_ARGUMENTS = ("output_dir", "run_name", "logging_dir")


@dataclass
class LoggedValues:
    """All values that a run logged under one name: sixteen bytes for each."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    since: int | None = 0  # the step after which the first window starts; None if the run continued another

    def add(self, step: int, value: float | None) -> None:
        if value is not None and (not self.steps or self.steps[-1] < step):
            self.steps.append(step)
            self.values.append(value)

    def drop_after(self, step: int) -> None:
        """Drop the steps after `step`, which the run repeats."""
        while self.steps and self.steps[-1] > step:
            self.steps.pop()
            self.values.pop()

    def find_window_start(self, place: int) -> int | None:
        """Return the step of the previous log."""
        return self.steps[place - 1] if place else self.since


@dataclass(frozen=True)
class RunDifference:
    """The first difference between two runs, by comparing what both logged bit for bit."""

    compared: int  # logs of the same step
    step: int | None = None  # the first step that differs; None if none does
    name: str = ""
    one: float = math.nan
    other: float = math.nan
    before: int | None = None  # the last step at which all was equal
    other_windows: int = 0  # losses of the same step that are means of different steps

    def __str__(self) -> str:
        if not self.compared:
            windows = "; losses are means since the last log, and the runs logged at different steps"
            return f"have no common log that can be compared{windows if self.other_windows else ''}"
        if self.step is None:
            but = f"; {self.other_windows} losses are means of different steps, and were not compared"
            logs = f"all {self.compared} logs of the same steps" if self.compared > 1 else "the one log in common"
            equal = f"are equal bit for bit in {logs}"
            return f"{equal}{but if self.other_windows else ''}"
        since = "from their first common log" if self.before is None else f"equal up to step {self.before}"
        return f"differ at step {self.step}: {self.name} is {self.one!r} and {self.other!r}; {since}"


def find_first_difference(one: RunRecord, other: RunRecord) -> RunDifference:
    """Find the first step at which two runs logged different losses, gradient norms or rates.

    A loss is the mean since the last log, so it is compared only where the previous log of both runs was at the
    same step.

    Args:
        one: A run, from `read_run`.
        other: Another run.

    Returns:
        The difference; its `step` is None if there is none.

    >>> find_first_difference(read_run("baseline"), read_run("changed")).step  # doctest: +SKIP
    120
    """
    return _find_first(read_logged_values(one), read_logged_values(other))


def find_differences(runs: Sequence[RunRecord]) -> list[RunDifference]:
    """Return where each run differs from the first. Every journal is read once."""
    first = read_logged_values(runs[0])
    return [_find_first(first, read_logged_values(run)) for run in runs[1:]]


def _find_first(mine: dict[str, LoggedValues], theirs: dict[str, LoggedValues]) -> RunDifference:
    found = [_compare_values(name, mine[name], theirs[name]) for name in _COMPARED_NAMES]
    differences = [difference for difference in found if difference.step is not None]
    if differences:  # `min` keeps the order of names where several differ first at the same step
        return min(differences, key=lambda difference: difference.step or 0)
    most = max(found, key=lambda difference: difference.compared)
    return replace(most, other_windows=sum(difference.other_windows for difference in found))


def read_logged_values(run: RunRecord) -> dict[str, LoggedValues]:
    """Return what a run logged, by name."""
    found = {name: LoggedValues() for name in _COMPARED_NAMES}
    has_begun = False
    for event in read_events(run.path):
        if event is None or event.get("run") != run.run_id:
            continue
        step = parse_step(event.get("step"))
        if step is None:
            continue
        if event.get("event") == "start":
            for one in found.values():
                one.drop_after(step)
                one.since = one.since if has_begun or step == 0 else None
            has_begun = True
        elif event.get("event") == "log":
            logs = as_mapping(event.get("logs"))
            for name, one in found.items():
                one.add(step, parse_number(logs.get(name)))
    return found


def _compare_values(name: str, one: LoggedValues, other: LoggedValues) -> RunDifference:
    there, compared, before, other_windows = 0, 0, None, 0
    for here, step in enumerate(one.steps):
        while there < len(other.steps) and other.steps[there] < step:
            there += 1
        if there == len(other.steps):
            break
        if other.steps[there] != step:
            continue
        windows = {one.find_window_start(here), other.find_window_start(there)}
        if name == _WINDOWED_NAME and len(windows) > 1 and None not in windows:
            other_windows += 1
            continue
        compared += 1
        if not _is_same(one.values[here], other.values[there]):
            return RunDifference(compared, step, name, one.values[here], other.values[there], before)
        before = step
    return RunDifference(compared, before=before, other_windows=other_windows)


def _is_same(one: float, other: float) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or struct.pack("<d", one) == struct.pack("<d", other)


# ---- settings ---------------------------------------------------------------------------------------------------


def find_differing_settings(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Return the arguments, versions and plan entries that differ between runs, with the value of each run."""
    settings = [_collect_settings(run) for run in runs]
    names = dict.fromkeys(name for one in settings for name in one)
    values = {name: [one.get(name, "–") for one in settings] for name in names}
    return {name: row for name, row in values.items() if any(format_value(one) != format_value(row[0]) for one in row)}


def _collect_settings(run: RunRecord) -> dict[str, Any]:
    found = {name: value for name, value in run.arguments.items() if name not in _IGNORED_ARGUMENTS}
    for name in ("model", "parameters", "trainable", "train_rows", "eval_rows", "columns", "columns_left_out"):
        if run.plan.get(name) is not None:
            found[name.replace("_", " ")] = run.plan[name]
    found["processes"] = run.processes
    found["commit"] = run.code.get("commit", "–")
    for name, value in run.environment.items():
        if isinstance(value, dict):
            found.update({f"{package} version": version for package, version in value.items()})
        else:
            found[name.replace("_", " ")] = value
    return found


# ---- the page ---------------------------------------------------------------------------------------------------


def compare_runs(places: Sequence[str | Path]) -> str:
    """Compare the runs of two or more journals.

    Args:
        places: Directories of runs, or journals. Each run is compared with the first.

    Returns:
        A page of HTML that needs no other file.

    >>> Path("comparison.html").write_text(compare_runs(["baseline", "changed"]))  # doctest: +SKIP
    """
    runs = [read_run(place) for place in places]
    return render_comparison(runs, find_differences(runs))


def render_comparison(runs: Sequence[RunRecord], differences: Sequence[RunDifference]) -> str:
    """Return the whole page; `differences` holds where each run but the first differs from the first."""
    names = _build_distinct_names(runs)
    body = "\n".join(
        [
            f"<h1>{len(runs)} runs compared</h1>",
            _render_differences(names, differences),
            _render_results(runs, names),
            _render_charts(runs, names, differences),
            _render_settings(runs, names),
        ]
    )
    return render_page(f"{', '.join(names)} · ostinato", "Runs compared", body)


def _build_distinct_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return distinct names: the run's own, else as much of its directory as is needed, else with its id."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = _strip_common_folders([run.path.resolve().parent for run in runs])
    if len(set(names)) < len(names):
        names = [f"{name} {run.run_id}" for name, run in zip(names, runs, strict=True)]
    return names


def _strip_common_folders(folders: Sequence[Path]) -> list[str]:
    """Return the paths from the first folder that differs.

    >>> _strip_common_folders([Path("/runs/a/out"), Path("/runs/b/out")])
    ['a/out', 'b/out']
    """
    common = 0
    while len({folder.parts[: common + 1] for folder in folders}) == 1 and common < min(
        len(folder.parts) - 1 for folder in folders
    ):
        common += 1
    return ["/".join(folder.parts[common:]) for folder in folders]


def _render_swatch(place: int, name: str) -> str:
    return f'<span class="swatch" style="--c:var(--r{place + 1})"></span>{escape(name)}'


def _render_differences(names: Sequence[str], differences: Sequence[RunDifference]) -> str:
    lines = []
    for place, (name, difference) in enumerate(zip(names[1:], differences, strict=True), 1):
        equal = difference.step is None and difference.compared
        lines.append(
            f'<div class="note{" ok" if equal else ""}">{_render_swatch(0, names[0])} and '
            f"{_render_swatch(place, name)} {escape(difference)}.</div>"
        )
    return "".join(lines)


def _render_results(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    metrics = list(dict.fromkeys(name for run in runs for name in run.final if _is_result(name)))[:12]
    best = {name: _find_best(runs, name) for name in metrics}
    head = ["Run", *map(format_title, metrics), "Steps", "Time", "Rows/s", "Ended"]
    rows = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        speed = run.curves.get("speed/rows")
        rows.append(
            [
                f'<span class="name">{_render_swatch(place, name)}</span>',
                *(_format_result(run.final.get(one), best[one]) for one in metrics),
                format_step(run.step),
                escape(format_duration(sum(run.seconds.values()))),
                escape(format_count(compute_typical_speed(run, speed))) if speed else "–",
                render_outcome(run.outcome),
            ]
        )
    inside = render_table(head, rows, numbers=range(1, len(head) - 1))
    return f'<div style="margin-top:14px">{render_panel("Results", inside, note="the last of each")}</div>'


def _find_best(runs: Sequence[RunRecord], name: str) -> float | None:
    """Return the best value of the runs, if it is known which direction is better."""
    values = [value for run in runs if (value := run.final.get(name)) is not None and math.isfinite(value)]
    if len(values) < 2 or len(set(values)) == 1:
        return None
    if name.endswith("loss"):
        return min(values)
    known = [run.plan for run in runs if run.plan.get("metric") in (name, name.removeprefix("eval_"))]
    if not known or not isinstance(known[0].get("greater_is_better"), bool):
        return None
    return max(values) if known[0]["greater_is_better"] else min(values)


def _format_result(value: float | None, best: float | None) -> str:
    if value is None:
        return "–"
    return f"<strong>{escape(format_number(value))}</strong>" if value == best else escape(format_number(value))


def _is_result(name: str) -> bool:
    is_speed = name.endswith(("_runtime", "_per_second", "_model_preparation_time"))
    return not is_speed and (name.startswith(("eval_", "test_")) or name in ("loss", "train_loss"))


def _render_charts(runs: Sequence[RunRecord], names: Sequence[str], differences: Sequence[RunDifference]) -> str:
    wanted = list(dict.fromkeys(name for run in runs for name in list_charted_names(run.curves)))
    if all("memory/device_peak" in run.curves for run in runs):  # it holds the model and its data
        wanted = [name for name in wanted if name != "memory/rss"]
    shared = {name for name in wanted if sum(name in run.curves for run in runs) > 1}
    wanted.sort(key=lambda name: name not in shared)  # curves of a single run come last
    order = ["loss", *(name for name in wanted if name.startswith("eval_"))]
    order += [name for name in wanted if name not in order]
    last = max(run.step for run in runs)
    places = zip(names[1:], differences, strict=True)
    marks = [Mark(difference.step, f"{name} differs") for name, difference in places if difference.step is not None]
    shown, drawn = [one for one in order if one in wanted][:_MAX_CHARTS], []
    alone = shown[-1] if len(shown) % 2 != ("loss" in shown) else None  # the chart that takes a whole row
    for name in shown:
        present = [(place, run) for place, run in enumerate(runs) if name in run.curves]
        evaluated = any(name in run.evaluated for run in runs)
        series = [
            Series(
                names[place],
                run.curves[name].scale(1e-9) if name in _MEMORY else run.curves[name],
                place + 1,
                dots=evaluated,
                smooth=not evaluated and name != "learning_rate" and name not in _MEMORY,
            )
            for place, run in present
        ]
        title = _TITLES.get(name) or format_title(name)
        is_first = name == "loss"
        drawn.append(
            render_chart(
                title,
                series,
                width=6 if is_first or name == alone else 3,
                height=260 if is_first else 190,
                until=last,
                marks=marks if is_first else (),
                from_zero=name in _TITLES,
            )
        )
    more = len(wanted) - len(shown)
    note = f"by step{f'; {more} more in the journals' if more else ''}"
    return f'<h2>Curves <small>{note}</small></h2><div class="charts">{"".join(drawn)}</div>' if drawn else ""


def _render_settings(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    differing = find_differing_settings(runs)
    known = max((len(_collect_settings(run)) for run in runs), default=0)
    note = f"{len(differing)} of {known} settings; the rest are equal" if differing else "all settings are equal"
    rows = [
        [
            f"<code>{escape(name)}</code>",
            *(f"<code>{escape(format_value(value))}</code>" for value in values),
        ]
        for name, values in differing.items()
    ]
    inside = f'<section class="panel">{render_table(["Setting", *names], rows)}</section>' if rows else ""
    return f"<h2>What differs <small>{escape(note)}</small></h2>{inside}"


def summarize_comparison(runs: Sequence[RunRecord], differences: Sequence[RunDifference]) -> Iterator[str]:
    """Yield the compare_runs as a few lines for a terminal."""
    names = _build_distinct_names(runs)
    for name, difference in zip(names[1:], differences, strict=True):
        yield replace_unprintable(f"{names[0]} and {name} {difference}")
    for setting, values in find_differing_settings(runs).items():
        yield replace_unprintable(f"  {setting}: {' | '.join(format_value(value) for value in values)}")
