"""A page that compares runs: the settings that differ, the curves, and the first step at which the runs differ."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .charts import Mark, Series, chart
from .html import (
    curve_names,
    outcome_pill,
    panel,
    step_text,
    table,
    title_of,
    typical_speed,
    value_text,
    whole_page,
)
from .journal_reader import RunRecord, events, mapping_in, read_run, step_in, value_in
from .text import amount, duration, number, printable, safe

MOST = 8  # colours that can be distinguished
_MOST_CHARTS = 24
_MEMORY = ("memory/device_peak", "memory/rss")
_TITLES = {
    "speed/rows": "Rows per second",
    "speed/tokens": "Tokens per second",
    "memory/device_peak": "Memory in GB: device, peak",
    "memory/rss": "Memory in GB: process",
}
_COMPARED = ("loss", "grad_norm", "learning_rate", "eval_loss")
_OF_A_WINDOW = "loss"  # the mean of all steps since the last log; the other names are values of the step itself
_NOT_SETTINGS = ("output_dir", "run_name", "logging_dir")


@dataclass
class Logged:
    """All values that a run logged under one name: sixteen bytes for each."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    since: int | None = 0  # the step after which the first window starts; None if the run continued another

    def add(self, step: int, value: float | None) -> None:
        if value is not None and (not self.steps or self.steps[-1] < step):
            self.steps.append(step)
            self.values.append(value)

    def go_back(self, step: int) -> None:
        """Drop the steps after `step`, which the run repeats."""
        while self.steps and self.steps[-1] > step:
            self.steps.pop()
            self.values.pop()

    def window_of(self, place: int) -> int | None:
        """Return the step of the previous log."""
        return self.steps[place - 1] if place else self.since


@dataclass(frozen=True)
class Parting:
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
            windows = "; losses are means since the last log, and they logged at other steps"
            return f"share no log that can be compared{windows if self.other_windows else ''}"
        if self.step is None:
            but = f"; {self.other_windows} losses are means of different steps, and were not compared"
            logs = f"all {self.compared} logs of the same steps" if self.compared > 1 else "the one log they share"
            equal = f"equal bit for bit in {logs}"
            return f"{equal}{but if self.other_windows else ''}"
        since = "from the first log they share" if self.before is None else f"equal up to step {self.before}"
        return f"part at step {self.step}: {self.name} is {self.one!r} and {self.other!r}; {since}"


def first_parting(one: RunRecord, other: RunRecord) -> Parting:
    """Return the first step at which two runs logged different losses, gradient norms or rates.

    A loss is the mean since the last log, so it is compared only where the previous log of both runs was at the
    same step.
    """
    return _first_of(logged(one), logged(other))


def partings(runs: Sequence[RunRecord]) -> list[Parting]:
    """Return where each run differs from the first. Every journal is read once."""
    first = logged(runs[0])
    return [_first_of(first, logged(run)) for run in runs[1:]]


def _first_of(mine: dict[str, Logged], theirs: dict[str, Logged]) -> Parting:
    found = [_parting(name, mine[name], theirs[name]) for name in _COMPARED]
    parted = [parting for parting in found if parting.step is not None]
    if parted:  # `min` keeps the order of names where several differ first at the same step
        return min(parted, key=lambda parting: parting.step or 0)
    most = max(found, key=lambda parting: parting.compared)
    return replace(most, other_windows=sum(parting.other_windows for parting in found))


def logged(run: RunRecord) -> dict[str, Logged]:
    """Return what a run logged, by name."""
    found = {name: Logged() for name in _COMPARED}
    has_begun = False
    for event in events(run.path):
        if event is None or event.get("run") != run.run_id:
            continue
        step = step_in(event.get("step"))
        if step is None:
            continue
        if event.get("event") == "start":
            for one in found.values():
                one.go_back(step)
                one.since = one.since if has_begun or step == 0 else None
            has_begun = True
        elif event.get("event") == "log":
            logs = mapping_in(event.get("logs"))
            for name, one in found.items():
                one.add(step, value_in(logs.get(name)))
    return found


def _parting(name: str, one: Logged, other: Logged) -> Parting:
    there, compared, before, other_windows = 0, 0, None, 0
    for here, step in enumerate(one.steps):
        while there < len(other.steps) and other.steps[there] < step:
            there += 1
        if there == len(other.steps):
            break
        if other.steps[there] != step:
            continue
        windows = {one.window_of(here), other.window_of(there)}
        if name == _OF_A_WINDOW and len(windows) > 1 and None not in windows:
            other_windows += 1
            continue
        compared += 1
        if not _same(one.values[here], other.values[there]):
            return Parting(compared, step, name, one.values[here], other.values[there], before)
        before = step
    return Parting(compared, before=before, other_windows=other_windows)


def _same(one: float, other: float) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or struct.pack("<d", one) == struct.pack("<d", other)


# ---- settings ---------------------------------------------------------------------------------------------------


def differing_settings(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Return the arguments, versions and plan entries that differ between runs, with the value of each run."""
    told = [_settings(run) for run in runs]
    names = dict.fromkeys(name for one in told for name in one)
    values = {name: [one.get(name, "–") for one in told] for name in names}
    return {name: row for name, row in values.items() if any(value_text(one) != value_text(row[0]) for one in row)}


def _settings(run: RunRecord) -> dict[str, Any]:
    found = {name: value for name, value in run.arguments.items() if name not in _NOT_SETTINGS}
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


def comparison(places: Sequence[str | Path]) -> str:
    """Return the page that compares the runs of two or more journals."""
    runs = [read_run(place) for place in places]
    return render_comparison(runs, partings(runs))


def render_comparison(runs: Sequence[RunRecord], parted: Sequence[Parting]) -> str:
    """Return the whole page; `parted` holds where each run but the first differs from the first."""
    names = _distinct_names(runs)
    body = "\n".join(
        [
            f"<h1>{len(runs)} runs compared</h1>",
            _verdicts(names, parted),
            _results(runs, names),
            _charts(runs, names, parted),
            _settings_panel(runs, names),
        ]
    )
    return whole_page(f"{', '.join(names)} · ostinato", "Runs compared", body)


def _distinct_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return distinct names: the run's own, else as much of its directory as is needed, else with its id."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = _without_what_is_common([run.path.resolve().parent for run in runs])
    if len(set(names)) < len(names):
        names = [f"{name} {run.run_id}" for name, run in zip(names, runs, strict=True)]
    return names


def _without_what_is_common(folders: Sequence[Path]) -> list[str]:
    """Return the paths from the first folder that differs.

    >>> _without_what_is_common([Path("/runs/a/out"), Path("/runs/b/out")])
    ['a/out', 'b/out']
    """
    common = 0
    while len({folder.parts[: common + 1] for folder in folders}) == 1 and common < min(
        len(folder.parts) - 1 for folder in folders
    ):
        common += 1
    return ["/".join(folder.parts[common:]) for folder in folders]


def _swatch(place: int, name: str) -> str:
    return f'<span class="swatch" style="--c:var(--r{place + 1})"></span>{safe(name)}'


def _verdicts(names: Sequence[str], parted: Sequence[Parting]) -> str:
    lines = []
    for place, (name, parting) in enumerate(zip(names[1:], parted, strict=True), 1):
        equal = parting.step is None and parting.compared
        lines.append(
            f'<div class="note{" ok" if equal else ""}">{_swatch(0, names[0])} and {_swatch(place, name)} '
            f"{safe(parting)}.</div>"
        )
    return "".join(lines)


def _results(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    metrics = list(dict.fromkeys(name for run in runs for name in run.final if _is_result(name)))[:12]
    best = {name: _best_of(runs, name) for name in metrics}
    head = ["Run", *map(title_of, metrics), "Steps", "Time", "Rows/s", "Ended"]
    rows = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        speed = run.curves.get("speed/rows")
        rows.append(
            [
                f'<span class="name">{_swatch(place, name)}</span>',
                *(_result(run.final.get(one), best[one]) for one in metrics),
                step_text(run.step),
                safe(duration(sum(run.seconds.values()))),
                safe(amount(typical_speed(run, speed))) if speed else "–",
                outcome_pill(run.outcome),
            ]
        )
    inside = table(head, rows, numbers=range(1, len(head) - 1))
    return f'<div style="margin-top:14px">{panel("Results", inside, note="the last of each")}</div>'


def _best_of(runs: Sequence[RunRecord], name: str) -> float | None:
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


def _result(value: float | None, best: float | None) -> str:
    if value is None:
        return "–"
    return f"<strong>{safe(number(value))}</strong>" if value == best else safe(number(value))


def _is_result(name: str) -> bool:
    is_speed = name.endswith(("_runtime", "_per_second", "_model_preparation_time"))
    return not is_speed and (name.startswith(("eval_", "test_")) or name in ("loss", "train_loss"))


def _charts(runs: Sequence[RunRecord], names: Sequence[str], parted: Sequence[Parting]) -> str:
    wanted = list(dict.fromkeys(name for run in runs for name in curve_names(run.curves)))
    if all("memory/device_peak" in run.curves for run in runs):  # it holds the model and its data
        wanted = [name for name in wanted if name != "memory/rss"]
    shared = {name for name in wanted if sum(name in run.curves for run in runs) > 1}
    wanted.sort(key=lambda name: name not in shared)  # curves of a single run come last
    order = ["loss", *(name for name in wanted if name.startswith("eval_"))]
    order += [name for name in wanted if name not in order]
    last = max(run.step for run in runs)
    places = zip(names[1:], parted, strict=True)
    marks = [Mark(parting.step, f"{name} parts") for name, parting in places if parting.step is not None]
    shown, drawn = [one for one in order if one in wanted][:_MOST_CHARTS], []
    alone = shown[-1] if len(shown) % 2 != ("loss" in shown) else None  # the chart that takes a whole row
    for name in shown:
        present = [(place, run) for place, run in enumerate(runs) if name in run.curves]
        evaluated = any(name in run.evaluated for run in runs)
        series = [
            Series(
                names[place],
                run.curves[name].times(1e-9) if name in _MEMORY else run.curves[name],
                place + 1,
                dots=evaluated,
                smooth=not evaluated and name != "learning_rate" and name not in _MEMORY,
            )
            for place, run in present
        ]
        title = _TITLES.get(name) or title_of(name)
        is_first = name == "loss"
        drawn.append(
            chart(
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
    told = f"by step{f'; {more} more in the journals' if more else ''}"
    return f'<h2>Curves <small>{told}</small></h2><div class="charts">{"".join(drawn)}</div>' if drawn else ""


def _settings_panel(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    differing = differing_settings(runs)
    known = max((len(_settings(run)) for run in runs), default=0)
    told = f"{len(differing)} of {known} settings; the rest are equal" if differing else "all settings are equal"
    rows = [
        [f"<code>{safe(name)}</code>", *(f"<code>{safe(value_text(value))}</code>" for value in values)]
        for name, values in differing.items()
    ]
    inside = f'<section class="panel">{table(["Setting", *names], rows)}</section>' if rows else ""
    return f"<h2>What differs <small>{safe(told)}</small></h2>{inside}"


def summary(runs: Sequence[RunRecord], parted: Sequence[Parting]) -> Iterator[str]:
    """Yield the comparison as a few lines for a terminal."""
    names = _distinct_names(runs)
    for name, parting in zip(names[1:], parted, strict=True):
        yield printable(f"{names[0]} and {name} {parting}")
    for setting, values in differing_settings(runs).items():
        yield printable(f"  {setting}: {' | '.join(value_text(value) for value in values)}")
