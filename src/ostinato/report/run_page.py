"""The page of one run: `report.html`, made from its journal alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..core.run_files import REPORT_NAME
from .charts import Mark, Series, chart
from .html import (
    curve_names,
    key_numbers,
    outcome_pill,
    pairs,
    panel,
    step_text,
    table,
    title_of,
    typical_speed,
    value_text,
    whole_page,
    write_page,
)
from .journal_reader import RunRecord, SavedModel, Saying, mapping_in, read_run, step_in
from .text import amount, clock, duration, moment, number, safe, share, size

_OPEN_CHARTS, _MOST_CHARTS, _MOST_SAVES = 15, 90, 30
_PURPOSES = {"computing": 1, "data": 2, "evaluation": 3, "saving": 4}
_PURPOSE_WORDS = {
    "computing": "Computing",
    "data": "Waiting for data",
    "evaluation": "Evaluating",
    "saving": "Saving",
}
_LOADER_BOUND = 0.2  # part of the time in which training could have computed
_WORTH_ADVICE = 1.0  # seconds of waiting: the first batches of a short run prove nothing
_SIGNS = {"warning": ("!", " warn"), "error": ("!", " bad"), "gap": ("!", " warn"), "notice": ("i", "")}


def write_report(place: str | Path, out: str | Path | None = None, run_id: str | None = None) -> Path:
    """Write the page of a run beside its journal, or to `out`, and return its path.

    >>> write_report("out")  # doctest: +SKIP
    PosixPath('out/report.html')
    """
    run = read_run(place, run_id)
    path = Path(out) if out is not None else page_path(place)
    write_page(render(run), path)
    return path


def page_path(place: str | Path) -> Path:
    """Return where the page of a run belongs: in the given directory, or beside the given file."""
    place = Path(place)
    return place / REPORT_NAME if place.is_dir() else place.with_name(REPORT_NAME)


def render(run: RunRecord) -> str:
    """Return the whole page."""
    body = "\n".join([_header(run), _key_numbers(run), _curves(run), _lower(run), _arguments(run), _footer(run)])
    return whole_page(f"{run.name} · ostinato", "Report of a run", body)


# ---- the head ---------------------------------------------------------------------------------------------------


def _header(run: RunRecord) -> str:
    meta = "".join(f"<span>{safe(text)}</span>" for text in _facts(run))
    planned = run.plan.get("steps")
    of_steps = f" of {number(planned)}" if isinstance(planned, int) and planned > 0 else ""
    spent = sum(run.seconds.values())
    told = [f"<span><strong>Step {step_text(run.step)}</strong>{safe(of_steps)}</span>"]
    if run.epoch is not None:
        epochs = run.plan.get("epochs")
        of_epochs = f" of {number(epochs)}" if isinstance(epochs, (int, float)) else ""
        told.append(f"<span><strong>Epoch {run.epoch:.2f}</strong>{safe(of_epochs)}</span>")
    if spent:
        told.append(f"<span>took <strong>{safe(duration(spent))}</strong></span>")
    signs = {"┆ evaluation": run.evaluated_at, "◇ checkpoint": run.saves}
    legend = f'<span class="lg">{"".join(f"<span>{sign}</span>" for sign, what in signs.items() if what)}</span>'
    return (
        f'<section class="panel hd"><h1>{safe(run.name)} {outcome_pill(run.outcome)}</h1>'
        f'<div class="meta">{meta}</div>'
        f'{_progress(run)}<div class="pt">{"".join(told)}{legend}</div>{_outcome_note(run)}</section>'
    )


def _facts(run: RunRecord) -> Iterator[str]:
    plan = run.plan
    model = plan.get("model")
    if isinstance(model, str):
        yield f"{model}, {amount(plan.get('parameters'))} parameters"
    trainable = plan.get("trainable")
    if isinstance(trainable, int) and trainable != plan.get("parameters"):
        yield f"{amount(trainable)} of them trained"
    rows = plan.get("train_rows")
    evaluated = plan.get("eval_rows")
    known = [one for one in evaluated.values() if isinstance(one, int)] if isinstance(evaluated, dict) else []
    if isinstance(rows, int):
        yield f"{number(rows)} train{f' / {number(sum(known))} eval' if known else ''} rows"
    device = run.environment.get("device_name") or run.environment.get("device")
    if isinstance(device, str):
        yield f"{run.processes} × {device}" if run.processes > 1 else device
    precision = plan.get("precision")
    if isinstance(precision, str) and precision != "no":
        yield precision
    if isinstance(plan.get("rows_per_step"), int):
        yield f"{number(plan['rows_per_step'])} rows per step"
    if run.began is not None:
        yield f"started {moment(run.began)}"


def _progress(run: RunRecord) -> str:
    planned = run.plan.get("steps")
    last = max(planned if isinstance(planned, int) else 0, run.step)
    if last <= 0:
        return ""
    few = run.evaluated_at if len(run.evaluated_at) <= 60 else ()
    evaluations = "".join(f'<i style="left:{step / last * 100:.2f}%"></i>' for step in few if step < run.step)
    best = run.best.get("step")
    saves = [save for save in run.saves if save.step <= last][-40:]
    marks = "".join(
        f'<b{" class=best" if save.step == best else ""} style="left:{save.step / last * 100:.2f}%"></b>'
        for save in saves
    )
    return (
        f'<div class="prog" role="img" aria-label="{run.step} of {last} steps">'
        f'<div class="bar" style="width:{min(run.step / last, 1) * 100:.2f}%"></div>{evaluations}{marks}</div>'
    )


def _outcome_note(run: RunRecord) -> str:
    saved = run.saves[-1] if run.saves else None
    go_on = f" The last checkpoint is {saved.path}." if saved is not None else " Nothing was saved."
    if not run.has_journal:
        if run.outcome == "finished":
            return ""
        return f'<div class="note">{safe(f"What was known at step {step_text(run.step)}: there is no journal.")}</div>'
    if run.outcome == "failed":
        trace = f"<details><summary>traceback</summary><pre>{safe(run.traceback)}</pre></details>"
        when = f"after step {step_text(run.step)}" if run.step else "before the first step was done"
        where = f"<b>Failed {safe(when)}.</b>{safe(go_on)}"
        return f'<div class="note bad">{where}<p>{safe(run.outcome_text)}</p>{trace if run.traceback else ""}</div>'
    if run.outcome == "stopped":
        reason = f"Stopped by {run.outcome_text} after step {step_text(run.step)}." + go_on
        return f'<div class="note warn">{safe(reason)}</div>'
    if run.outcome == "open":
        text = f"The journal tells of no end: the run is going on, or was killed after step {step_text(run.step)}."
        return f'<div class="note warn">{safe(text + go_on)}</div>'
    return ""


def _key_numbers(run: RunRecord) -> str:
    return key_numbers(_entries(run))


def _entries(run: RunRecord) -> Iterator[tuple[str, str, str, str]]:
    loss = run.curves.get("loss")
    if loss:
        first = _at("was", (loss.steps[0], loss.values[0])) if len(loss) > 1 else f"at step {step_text(loss.steps[0])}"
        yield "Train loss", number(loss.last), "", first
    evaluated = run.curves.get("eval_loss")
    if evaluated:
        yield "Eval loss", number(evaluated.last), "", _at("lowest", evaluated.lowest())
    name = _main_metric(run)
    if name is not None:
        curve = run.curves[name]
        best = run.best if run.best.get("metric") == name else {}
        told = _at("best", (best["step"], best["value"]) if best else _highest_or_lowest(run, name))
        yield title_of(name), number(curve.last), "", told
    spent = sum(run.seconds.values())
    if spent:
        yield "Time", duration(spent), "", f"in {len(run.legs)} parts" if len(run.legs) > 1 else moment(run.began)
    yield from _throughput(run)
    used = run.curves.get("train_mfu")
    if used:
        yield "MFU", f"{100 * used.last:.1f}", "%", "of what the devices can do at most"
    memory = run.curves.get("memory/device_peak") or run.curves.get("memory/rss")
    highest = memory.highest() if memory else None
    if highest is not None:
        value, _, unit = size(highest[1]).partition(" ")
        yield "Memory", value, unit, "peak, device" if "memory/device_peak" in run.curves else "peak, process"


def _throughput(run: RunRecord) -> Iterator[tuple[str, str, str, str]]:
    speed, unit = run.curves.get("speed/tokens"), "tokens/s"
    if not speed or not speed.is_whole:
        speed, unit = run.curves.get("speed/rows"), "rows/s"
    if speed:
        how = "median" if speed.is_whole else "mean"
        yield "Throughput", amount(typical_speed(run, speed)), unit, f"{how}, while training"


def _at(word: str, point: tuple[int, float] | None) -> str:
    return "" if point is None else f"{word} {number(point[1])} at step {step_text(point[0])}".strip()


def _main_metric(run: RunRecord) -> str | None:
    """Return the metric that selects the best model, or the first that is not a loss."""
    named = run.plan.get("metric")
    if isinstance(named, str):
        full = named if named.startswith("eval_") else f"eval_{named}"
        if full in run.curves and full != "eval_loss":
            return full
    others = [name for name in curve_names(run.curves) if name in run.evaluated and not name.endswith("loss")]
    return others[0] if others else None


def _highest_or_lowest(run: RunRecord, name: str) -> tuple[int, float] | None:
    """Return the best value of a metric; None if it is not known which direction is better."""
    metric = run.plan.get("metric")
    if metric not in (name, name.removeprefix("eval_")):
        return None
    curve = run.curves[name]
    return curve.highest() if run.plan.get("greater_is_better") else curve.lowest()


# ---- curves -----------------------------------------------------------------------------------------------------


def _curves(run: RunRecord) -> str:
    large, small = _large_charts(run), list(_small_charts(run))
    if not large and not small:
        return '<h2>Curves</h2><section class="panel"><div class="body">Nothing was logged.</div></section>'
    first, folded, left_out = small[:_OPEN_CHARTS], small[_OPEN_CHARTS:_MOST_CHARTS], len(small[_MOST_CHARTS:])
    shown = f'<h2>Curves <small>by step</small></h2><div class="charts">{"".join([*large, *_drawn(first)])}</div>'
    if not folded:
        return shown
    told = f"{len(folded)} more curves{f'; another {left_out} are in the journal' if left_out else ''}"
    inside = f'<div class="charts">{"".join(_drawn(folded))}</div>'
    return f'{shown}<details class="more"><summary>{told}</summary>{inside}</details>'


def _drawn(charts: Sequence[Callable[..., str]]) -> list[str]:
    return [draw(width=width) for draw, width in zip(charts, _widths(len(charts)), strict=True)]


def _widths(count: int) -> list[int]:
    """Return the widths of charts: three in a row, with the last rows full.

    >>> _widths(4), _widths(5)
    ([3, 3, 3, 3], [2, 2, 2, 3, 3])
    """
    wide = {0: 0, 1: min(count, 4), 2: 2}[count % 3]
    return [2] * (count - wide) + ([6] if wide == 1 else [3] * wide)


def _large_charts(run: RunRecord) -> list[str]:
    curves, losses, main, drawn = run.curves, _losses(run), _main_metric(run), []
    if losses:
        series = [
            Series(_series_name(name), curves[name], color + 1, dots=name != "loss", smooth=name == "loss")
            for color, name in enumerate(losses[:8])
        ]
        drawn.append(chart("Loss", series, width=4 if main else 6, height=262, until=run.step, marks=_marks(run)))
    if main is not None:
        one, told = Series(main, curves[main], 1, dots=True), _at("best", _highest_or_lowest(run, main))
        drawn.append(chart(title_of(main), [one], width=2 if losses else 6, height=262, until=run.step, note=told))
    return drawn


def _losses(run: RunRecord) -> list[str]:
    """Return the names of the losses. Training's comes first, so that it has the first colour on every page."""
    evaluated = [name for name in curve_names(run.curves) if name in run.evaluated and name.endswith("loss")]
    return [*(["loss"] if "loss" in run.curves else []), *(name for name in evaluated if name != "loss")]


def _small_charts(run: RunRecord) -> Iterator[Callable[..., str]]:
    curves, last, main, losses = run.curves, run.step, _main_metric(run), _losses(run)
    for name, note in (("learning_rate", _schedule(run)), ("grad_norm", _clipping(run))):
        if name in curves:
            one = Series(title_of(name), curves[name], 1, smooth=name == "grad_norm", fill=name == "learning_rate")
            yield partial(chart, title_of(name), [one], until=last, note=note, from_zero=name == "learning_rate")
    yield from _speed_and_memory(run, last)
    for name in curve_names(curves):
        if name not in (*losses, main, "learning_rate", "grad_norm") and "/" not in name[:7]:
            one = Series(name, curves[name], 1, dots=name in run.evaluated, smooth=name not in run.evaluated)
            yield partial(chart, title_of(name), [one], until=last)


def _speed_and_memory(run: RunRecord, last: int) -> Iterator[Callable[..., str]]:
    for name, title in (("speed/rows", "Rows per second"), ("speed/tokens", "Tokens per second")):
        if name in run.curves:
            one = Series(title, run.curves[name], 1, fill=True, smooth=True)
            yield partial(chart, title, [one], until=last, from_zero=True, note="while training")
    memory = [
        Series(title, run.curves[name].times(1e-9), color)
        for color, (name, title) in enumerate((("memory/rss", "process"), ("memory/device_peak", "device, peak")), 1)
        if name in run.curves
    ]
    if memory:
        yield partial(chart, "Memory in GB", memory, until=last, from_zero=True)


def _series_name(name: str) -> str:
    return "train" if name == "loss" else name.removesuffix("_loss")


def _marks(run: RunRecord) -> list[Mark]:
    """Return marks where epochs begin and where the run was resumed, unless there are too many to distinguish."""
    batches, accumulation = run.plan.get("batches_per_epoch"), run.plan.get("accumulation")
    resumed = [Mark(leg.from_step, "resumed") for leg in run.legs[1:] if leg.from_step > 0][:6]
    if not isinstance(batches, int) or not isinstance(accumulation, int) or min(batches, accumulation) <= 0:
        return resumed
    per_epoch = -(-batches // accumulation)
    if run.step // per_epoch > 8:
        return resumed
    begins = range(per_epoch, run.step, per_epoch)
    return resumed + [Mark(step, f"epoch {place}") for place, step in enumerate(begins, 2)]


def _schedule(run: RunRecord) -> str:
    kind = run.arguments.get("lr_scheduler_type")
    return kind if isinstance(kind, str) else ""


def _clipping(run: RunRecord) -> str:
    limit, curve = run.arguments.get("max_grad_norm"), run.curves.get("grad_norm")
    if not isinstance(limit, (int, float)) or isinstance(limit, bool) or limit <= 0 or curve is None:
        return ""
    if not curve.is_whole:
        return f"clipped above {number(limit)}"
    above = sum(value > limit for value in curve.values)
    return f"above {number(limit)}, and clipped, in {share(above, len(curve))}"


# ---- the lower part ---------------------------------------------------------------------------------------------


def _lower(run: RunRecord) -> str:
    if not run.has_journal:
        return ""
    left = [_models(run), _time(run)]
    right = [_events(run), _data(run), _command(run)]
    return f'<div class="low"><div>{"".join(left)}</div><div>{"".join(right)}</div></div>'


def _models(run: RunRecord) -> str:
    best_step = run.best.get("step")
    metric = str(run.best.get("metric") or "eval_loss")
    name = _main_metric(run) or metric
    curves = [(title_of(one), run.curves[one]) for one in dict.fromkeys((name, "eval_loss")) if one in run.curves]
    by_step = [dict(zip(curve.steps, curve.values, strict=True)) for _, curve in curves]
    saves = list({save.path: save for save in run.saves}.values())[-_MOST_SAVES:]
    rows = [
        [
            f"{safe(save.path)}{_best_mark(run, save)}",
            *(number(values[save.step]) if save.step in values else "–" for values in by_step),
            safe(size(save.size)),
            safe(duration(save.seconds)),
        ]
        for save in reversed(saves)
    ]
    best = f"best {metric} {number(run.best['value'])} at step {step_text(best_step)}" if run.best else ""
    if not rows:
        text = best or "No checkpoint was written."
        return panel("Checkpoints", f'<div class="body">{safe(text)}</div>')
    head = ["Written", *(title for title, _ in curves), "Size", "Took"]
    limit = run.arguments.get("save_total_limit")
    told = f"save_total_limit={limit}: older ones were deleted, but for the best."
    is_over = isinstance(limit, int) and 0 < limit < len(saves)
    kept = f'<div class="body mut">{safe(told)}</div>' if is_over else ""
    return panel("Checkpoints", table(head, rows, numbers=range(1, len(head))) + kept, note=best)


def _best_mark(run: RunRecord, save: SavedModel) -> str:
    """Return a mark for the best model. One that was saved before its evaluation is recognised by its name."""
    is_best = save.step == run.best.get("step") and (save.is_best or save.path == run.best_checkpoint)
    return ' <span class="pill acc plain">best</span>' if is_best else ""


def _time(run: RunRecord) -> str:
    seconds = {purpose: part for purpose, part in run.seconds.items() if purpose in _PURPOSES}
    whole = sum(seconds.values())
    if not whole:
        return ""
    bar = "".join(
        f'<span style="--c:var(--r{_PURPOSES[purpose]});flex:{part / whole:.4f}"></span>'
        for purpose, part in seconds.items()
        if part / whole > 0.001
    )
    parts = "".join(
        f'<dt style="--c:var(--r{_PURPOSES[purpose]})">{_PURPOSE_WORDS[purpose]}</dt>'
        f"<dd>{safe(duration(part))}</dd><dd>{safe(share(part, whole))}</dd>"
        for purpose, part in seconds.items()
    )
    inside = f'<div class="ledger" aria-hidden="true">{bar}</div><dl class="parts">{parts}</dl>{_advice(run, seconds)}'
    return panel("Where the time went", f'<div class="body">{inside}</div>', note=duration(whole))


def _advice(run: RunRecord, seconds: dict[str, float]) -> str:
    training = seconds.get("computing", 0.0) + seconds.get("data", 0.0)
    waiting = seconds.get("data", 0.0) / training if training else 0.0
    if waiting < _LOADER_BOUND or seconds.get("data", 0.0) < _WORTH_ADVICE:
        return ""
    workers = run.arguments.get("dataloader_num_workers")
    more = workers * 2 if isinstance(workers, int) and 0 < workers < 64 else 4
    text = f"Training waited for data {waiting:.0%} of its time: try dataloader_num_workers={more}."
    return f'<div class="note warn">{safe(text)}</div>'


def _data(run: RunRecord) -> str:
    rows = []
    for one in run.coverage[-12:]:
        whole = one.of or 0
        part = min(one.done / whole, 1.0) if one.done is not None and whole else 0.0
        told = f"{number(one.done)} of {number(whole)} rows" if one.done is not None and whole else ""
        told = told or f"{number(one.batches)} batches"
        told += f", {number(one.skipped)} skipped" if one.skipped else ""
        track = f'<div class="trk"><i style="width:{part * 100:.1f}%"></i></div>' if whole else "<span></span>"
        rows.append(f"<span>Epoch {one.epoch + 1}</span>{track}<span>{safe(told)}</span>")
    columns, left_out = run.plan.get("columns"), run.plan.get("columns_left_out")
    facts = []
    if isinstance(columns, list) and columns:
        facts.append(("Columns used", ", ".join(map(str, columns[:50]))))
    if isinstance(left_out, list):
        facts.append(("Columns left out", ", ".join(map(str, left_out[:50])) or "none"))
    if not rows and not facts:
        return ""
    older = f"the last 12 of {len(run.coverage)} epochs" if len(run.coverage) > 12 else ""
    inside = f'<div class="cover">{"".join(rows)}</div>{pairs(facts) if facts else ""}'
    return panel("Data seen", f'<div class="body">{inside}</div>', note=older)


def _events(run: RunRecord) -> str:
    sayings = run.sayings
    if not sayings:
        return panel("Warnings and notices", '<div class="body">There were none.</div>')
    lines = f'<div class="evs">{"".join(map(_event, sayings[:60]))}</div>'
    rest = "".join(map(_event, sayings[60:]))
    more = f'<div class="body mut">and {run.more_sayings} more in the journal</div>' if run.more_sayings else ""
    folded = f"<details><summary>{len(sayings) - 60} more</summary>{rest}</details>" if rest else ""
    counts = {kind: sum(one.kind == kind for one in sayings) for kind in ("error", "warning")}
    told = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    return panel("Warnings and notices", f"{lines}{folded}{more}", note=", ".join(told) or "no warnings")


def _event(one: Saying) -> str:
    sign, kind = _SIGNS.get(one.kind, ("i", ""))
    return (
        f'<div class="ev"><span class="t">{safe(clock(one.time))}</span>'
        f'<span class="g{kind}" role="img" aria-label="{safe(one.kind)}">{sign}</span><p>{safe(one.text)}</p></div>'
    )


def _command(run: RunRecord) -> str:
    line, facts = shlex.join(_words(run)), []
    if isinstance(run.command.get("directory"), str):
        facts.append(("In", run.command["directory"]))
    if isinstance(run.code.get("commit"), str):
        branch = f" ({run.code['branch']})" if isinstance(run.code.get("branch"), str) else ""
        facts.append(("Commit", f"{run.code['commit']}{branch}"))
    if started := _started(run):
        facts.append(("Started", started))
    if len(run.legs) > 1:
        facts.append(("Resumed", f"in {len(run.legs)} parts: this is how the last was started"))
    if run.legs and run.legs[0].from_step:
        facts.append(("Went on from", f"step {step_text(run.legs[0].from_step)} of another run"))
    if run.forked_from:
        facts.append(("Forked from", f"{run.forked_from.get('checkpoint')} of run {run.forked_from.get('run_id')}"))
    pre = f'<pre class="all" tabindex="0" aria-label="the command">{safe(line)}</pre>' if line else ""
    if not pre and not facts:
        return ""
    return panel("To repeat this run", f'<div class="body" style="display:grid;gap:10px">{pre}{pairs(facts)}</div>')


def _words(run: RunRecord) -> list[str]:
    """Return the command line with the launcher of the processes; empty for a notebook, where it is the kernel's."""
    words = run.command.get("words")
    if not isinstance(words, list) or run.command.get("notebook") is True:
        return []
    words, per_node = [str(word) for word in words], mapping_in(run.command.get("launcher")).get("per_node")
    if len(words) < 2 or step_in(per_node) is None:
        return words
    program = words[2:] if words[1] == "-u" else words[1:]  # the launcher adds -u itself
    return ["torchrun", "--nproc-per-node", str(per_node), *program]


def _started(run: RunRecord) -> str:
    """Return how the run was started, where the command line alone does not show it."""
    nodes = step_in(mapping_in(run.command.get("launcher")).get("nodes"))
    if run.command.get("notebook") is True:
        return "in a notebook: run its cells again"
    if nodes is not None:
        return f"by torchrun on {nodes} nodes: on each, with the same --nnodes and --rdzv options" if nodes > 1 else ""
    if run.processes > 1:
        return f"with {run.processes} processes: use the same launcher"
    words = run.command.get("words")
    if isinstance(words, list) and words and (words[1:] in ([], ["-"], ["-i"])):
        return "by hand, or from standard input: the program itself is not written down"
    return ""


def _arguments(run: RunRecord) -> str:
    if not run.arguments and not run.environment:
        return ""
    chosen = [name for name in run.arguments if run.origins.get(name, "").startswith(("given", "changed", "environ"))]
    others = [name for name in run.arguments if name not in chosen]

    def rows(names: list[str]) -> list[list[str]]:
        return [
            [
                f"<code>{safe(name)}</code>",
                f"<code>{safe(value_text(run.arguments[name]))}</code>",
                f'<span class="mut">{safe(run.origins.get(name, "default"))}</span>',
            ]
            for name in names
        ]

    head = ["Argument", "Value", "From"]
    told = table(head, rows(chosen)) if chosen else '<div class="body">All are the defaults.</div>'
    rest = f"<details><summary>The other {len(others)} arguments</summary>{table(head, rows(others))}</details>"
    environment = pairs(_environment(run))
    count = f"{len(chosen)} of {len(run.arguments)} set for this run"
    return (
        f'<h2>Settings <small>{count}</small></h2><div class="low" style="margin-top:0"><div>'
        f"{panel('Arguments', told + (rest if others else ''))}</div>"
        f'<div>{panel("Environment", f"""<div class="body">{environment}</div>""")}</div></div>'
    )


def _environment(run: RunRecord) -> Iterator[tuple[str, str]]:
    for name, value in run.environment.items():
        if name == "packages" and isinstance(value, dict):
            yield "packages", ", ".join(f"{package} {version}" for package, version in value.items())
        elif name == "device_memory" and isinstance(value, (int, float)):
            yield "device memory", size(value)
        elif value is not None:
            yield name.replace("_", " "), value_text(value)


def _footer(run: RunRecord) -> str:
    told = [*([f"run {run.run_id}"] if run.has_journal else []), f"made from {run.path.name}"]
    if run.other_runs:
        told.append(f"which also tells of {run.other_runs} earlier run{'' if run.other_runs == 1 else 's'}")
    if run.bad_lines:
        told.append(f"{run.bad_lines} line{'' if run.bad_lines == 1 else 's'} of it could not be read")
    if run.newer:
        told.append("written by a later version of ostinato: some of it may not be shown")
    return f"<footer>{safe(' · '.join(told))}</footer>"
