"""The page of one run: `report.html`, made from its journal and the pictures beside it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..core.run_files import REPORT_NAME
from .charts import Mark, Series, render_chart
from .html import (
    compute_typical_speed,
    format_step,
    format_title,
    format_value,
    list_charted_names,
    render_key_numbers,
    render_outcome,
    render_page,
    render_pairs,
    render_panel,
    render_table,
    write_page,
)
from .journal_reader import RunMessage, RunRecord, SavedModel, as_mapping, parse_step, read_run
from .pictures import render_galleries
from .text import (
    escape,
    format_count,
    format_date,
    format_duration,
    format_number,
    format_share,
    format_size,
    format_time,
)

_SHOWN_CHARTS, _MAX_CHARTS, _MAX_SAVES = 15, 90, 30
_PURPOSES = {"computing": 1, "data": 2, "evaluation": 3, "saving": 4}
_PURPOSE_WORDS = {
    "computing": "Computing",
    "data": "Waiting for data",
    "evaluation": "Evaluating",
    "saving": "Saving",
}
_LOADER_BOUND_SHARE = 0.2  # part of the time in which training could have computed
_MIN_WAIT_FOR_ADVICE = 1.0  # seconds of waiting: the first batches of a short run prove nothing
_MESSAGE_SIGNS = {"warning": ("!", " warn"), "error": ("!", " bad"), "gap": ("!", " warn"), "notice": ("i", "")}


def write_report(place: str | Path, out: str | Path | None = None, run_id: str | None = None) -> Path:
    """Write the page of a run.

    Args:
        place: The directory of the run, or its journal.
        out: The file to write; by default `report.html` beside the journal.
        run_id: The id of the run, if there are several; by default the one that began last.

    Returns:
        The path of the page.

    >>> write_report("out")  # doctest: +SKIP
    PosixPath('out/report.html')
    """
    run = read_run(place, run_id)
    path = Path(out) if out is not None else choose_page_path(place)
    write_page(render_run(run, render_galleries(choose_page_path(place).parent)), path)
    return path


def choose_page_path(place: str | Path) -> Path:
    """Return where the page of a run belongs: in the given directory, or beside the given file."""
    place = Path(place)
    return place / REPORT_NAME if place.is_dir() else place.with_name(REPORT_NAME)


def render_run(run: RunRecord, pictures: str = "") -> str:
    """Return the whole page; `pictures` is the HTML of the grids beside the journal."""
    body = "\n".join(
        [
            _render_header(run),
            _render_key_numbers(run),
            _render_curves(run),
            pictures,
            _render_panels(run),
            _render_settings(run),
            _render_footer(run),
        ]
    )
    return render_page(f"{run.name} · ostinato", "Report of a run", body)


# ---- the head ---------------------------------------------------------------------------------------------------


def _render_header(run: RunRecord) -> str:
    meta = "".join(f"<span>{escape(text)}</span>" for text in _describe_run(run))
    planned = run.plan.get("steps")
    of_steps = f" of {format_number(planned)}" if isinstance(planned, int) and planned > 0 else ""
    spent = sum(run.seconds.values())
    parts = [f"<span><strong>Step {format_step(run.step)}</strong>{escape(of_steps)}</span>"]
    if run.epoch is not None:
        epochs = run.plan.get("epochs")
        of_epochs = f" of {format_number(epochs)}" if isinstance(epochs, (int, float)) else ""
        parts.append(f"<span><strong>Epoch {run.epoch:.2f}</strong>{escape(of_epochs)}</span>")
    if spent:
        parts.append(f"<span>took <strong>{escape(format_duration(spent))}</strong></span>")
    signs = {"┆ evaluation": run.evaluated_at, "◇ checkpoint": run.saves}
    legend = f'<span class="lg">{"".join(f"<span>{sign}</span>" for sign, what in signs.items() if what)}</span>'
    return (
        f'<section class="panel hd"><h1>{escape(run.name)} {render_outcome(run.outcome)}</h1>'
        f'<div class="meta">{meta}</div>'
        f'{_render_progress(run)}<div class="pt">{"".join(parts)}{legend}</div>{_render_outcome_note(run)}</section>'
    )


def _describe_run(run: RunRecord) -> Iterator[str]:
    plan = run.plan
    model = plan.get("model")
    if isinstance(model, str):
        yield f"{model}, {format_count(plan.get('parameters'))} parameters"
    trainable = plan.get("trainable")
    if isinstance(trainable, int) and trainable != plan.get("parameters"):
        yield f"{format_count(trainable)} of them trained"
    rows = plan.get("train_rows")
    evaluated = plan.get("eval_rows")
    known = [one for one in evaluated.values() if isinstance(one, int)] if isinstance(evaluated, dict) else []
    if isinstance(rows, int):
        yield f"{format_number(rows)} train{f' / {format_number(sum(known))} eval' if known else ''} rows"
    device = run.environment.get("device_name") or run.environment.get("device")
    if isinstance(device, str):
        yield f"{run.processes} × {device}" if run.processes > 1 else device
    precision = plan.get("precision")
    if isinstance(precision, str) and precision != "no":
        yield precision
    if isinstance(plan.get("rows_per_step"), int):
        yield f"{format_number(plan['rows_per_step'])} rows per step"
    if run.began is not None:
        yield f"started {format_date(run.began)}"


def _render_progress(run: RunRecord) -> str:
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


def _render_outcome_note(run: RunRecord) -> str:
    saved = run.saves[-1] if run.saves else None
    last_save = f" The last checkpoint is {saved.path}." if saved is not None else " Nothing was saved."
    if not run.has_journal:
        if run.outcome == "finished":
            return ""
        return f'<div class="note">{escape(f"Known at step {format_step(run.step)}: there is no journal.")}</div>'
    if run.outcome == "failed":
        trace = f"<details><summary>traceback</summary><pre>{escape(run.traceback)}</pre></details>"
        when = f"after step {format_step(run.step)}" if run.step else "before the first step was done"
        where = f"<b>Failed {escape(when)}.</b>{escape(last_save)}"
        return f'<div class="note bad">{where}<p>{escape(run.outcome_text)}</p>{trace if run.traceback else ""}</div>'
    if run.outcome == "stopped":
        reason = f"Stopped by {run.outcome_text} after step {format_step(run.step)}." + last_save
        return f'<div class="note warn">{escape(reason)}</div>'
    if run.outcome == "open":
        text = f"The journal records no end: the run is in progress, or was killed after step {format_step(run.step)}."
        return f'<div class="note warn">{escape(text + last_save)}</div>'
    return ""


def _render_key_numbers(run: RunRecord) -> str:
    return render_key_numbers(_iterate_key_numbers(run))


def _iterate_key_numbers(run: RunRecord) -> Iterator[tuple[str, str, str, str]]:
    loss = run.curves.get("loss")
    if loss:
        first = (
            _format_point("was", (loss.steps[0], loss.values[0]))
            if len(loss) > 1
            else f"at step {format_step(loss.steps[0])}"
        )
        yield "Train loss", format_number(loss.last), "", first
    evaluated = run.curves.get("eval_loss")
    if evaluated:
        yield "Eval loss", format_number(evaluated.last), "", _format_point("lowest", evaluated.find_lowest())
    name = _find_main_metric(run)
    if name is not None:
        curve = run.curves[name]
        best = run.best if run.best.get("metric") == name else {}
        remark = _format_point("best", (best["step"], best["value"]) if best else _find_best_point(run, name))
        yield format_title(name), format_number(curve.last), "", remark
    spent = sum(run.seconds.values())
    if spent:
        yield (
            "Time",
            format_duration(spent),
            "",
            f"in {len(run.segments)} parts" if len(run.segments) > 1 else format_date(run.began),
        )
    yield from _iterate_throughput(run)
    used = run.curves.get("train_mfu")
    if used:
        yield "MFU", f"{100 * used.last:.1f}", "%", "of the devices' peak"
    memory = run.curves.get("memory/device_peak") or run.curves.get("memory/rss")
    highest = memory.find_highest() if memory else None
    if highest is not None:
        value, _, unit = format_size(highest[1]).partition(" ")
        yield "Memory", value, unit, "peak, device" if "memory/device_peak" in run.curves else "peak, process"


def _iterate_throughput(run: RunRecord) -> Iterator[tuple[str, str, str, str]]:
    speed, unit = run.curves.get("speed/tokens"), "tokens/s"
    if not speed or not speed.is_whole:
        speed, unit = run.curves.get("speed/rows"), "rows/s"
    if speed:
        how = "median" if speed.is_whole else "mean"
        yield "Throughput", format_count(compute_typical_speed(run, speed)), unit, f"{how}, while training"


def _format_point(word: str, point: tuple[int, float] | None) -> str:
    return "" if point is None else f"{word} {format_number(point[1])} at step {format_step(point[0])}".strip()


def _find_main_metric(run: RunRecord) -> str | None:
    """Return the metric that selects the best model, or the first that is not a loss."""
    named = run.plan.get("metric")
    if isinstance(named, str):
        full = named if named.startswith("eval_") else f"eval_{named}"
        if full in run.curves and full != "eval_loss":
            return full
    others = [name for name in list_charted_names(run.curves) if name in run.evaluated and not name.endswith("loss")]
    return others[0] if others else None


def _find_best_point(run: RunRecord, name: str) -> tuple[int, float] | None:
    """Return the best value of a metric; None if it is not known which direction is better."""
    metric = run.plan.get("metric")
    if metric not in (name, name.removeprefix("eval_")):
        return None
    curve = run.curves[name]
    return curve.find_highest() if run.plan.get("greater_is_better") else curve.find_lowest()


# ---- curves -----------------------------------------------------------------------------------------------------


def _render_curves(run: RunRecord) -> str:
    large, small = _render_large_charts(run), list(_build_small_charts(run))
    if not large and not small:
        return '<h2>Curves</h2><section class="panel"><div class="body">Nothing was logged.</div></section>'
    first, folded, left_out = small[:_SHOWN_CHARTS], small[_SHOWN_CHARTS:_MAX_CHARTS], len(small[_MAX_CHARTS:])
    shown = (
        f'<h2>Curves <small>by step</small></h2><div class="charts">{"".join([*large, *_draw_charts(first)])}</div>'
    )
    if not folded:
        return shown
    label = f"{len(folded)} more curves{f'; another {left_out} are in the journal' if left_out else ''}"
    inside = f'<div class="charts">{"".join(_draw_charts(folded))}</div>'
    return f'{shown}<details class="more"><summary>{label}</summary>{inside}</details>'


def _draw_charts(charts: Sequence[Callable[..., str]]) -> list[str]:
    return [draw(width=width) for draw, width in zip(charts, _choose_widths(len(charts)), strict=True)]


def _choose_widths(count: int) -> list[int]:
    """Return the widths of charts: three in a row, with the last rows full.

    >>> _choose_widths(4), _choose_widths(5)
    ([3, 3, 3, 3], [2, 2, 2, 3, 3])
    """
    wide = {0: 0, 1: min(count, 4), 2: 2}[count % 3]
    return [2] * (count - wide) + ([6] if wide == 1 else [3] * wide)


def _render_large_charts(run: RunRecord) -> list[str]:
    curves, losses, main, drawn = run.curves, _list_losses(run), _find_main_metric(run), []
    if losses:
        series = [
            Series(_format_series_name(name), curves[name], color + 1, dots=name != "loss", smooth=name == "loss")
            for color, name in enumerate(losses[:8])
        ]
        drawn.append(
            render_chart("Loss", series, width=4 if main else 6, height=262, until=run.step, marks=_build_marks(run))
        )
    if main is not None:
        one, note = Series(main, curves[main], 1, dots=True), _format_point("best", _find_best_point(run, main))
        drawn.append(
            render_chart(format_title(main), [one], width=2 if losses else 6, height=262, until=run.step, note=note)
        )
    return drawn


def _list_losses(run: RunRecord) -> list[str]:
    """Return the names of the losses. Training's comes first, so that it has the first colour on every page."""
    evaluated = [name for name in list_charted_names(run.curves) if name in run.evaluated and name.endswith("loss")]
    return [*(["loss"] if "loss" in run.curves else []), *(name for name in evaluated if name != "loss")]


def _build_small_charts(run: RunRecord) -> Iterator[Callable[..., str]]:
    curves, last, main, losses = run.curves, run.step, _find_main_metric(run), _list_losses(run)
    for name, note in (("learning_rate", _describe_schedule(run)), ("grad_norm", _describe_clipping(run))):
        if name in curves:
            one = Series(format_title(name), curves[name], 1, smooth=name == "grad_norm", fill=name == "learning_rate")
            yield partial(
                render_chart, format_title(name), [one], until=last, note=note, from_zero=name == "learning_rate"
            )
    yield from _build_speed_and_memory_charts(run, last)
    for name in list_charted_names(curves):
        if name not in (*losses, main, "learning_rate", "grad_norm") and "/" not in name[:7]:
            one = Series(name, curves[name], 1, dots=name in run.evaluated, smooth=name not in run.evaluated)
            yield partial(render_chart, format_title(name), [one], until=last)


def _build_speed_and_memory_charts(run: RunRecord, last: int) -> Iterator[Callable[..., str]]:
    for name, title in (("speed/rows", "Rows per second"), ("speed/tokens", "Tokens per second")):
        if name in run.curves:
            one = Series(title, run.curves[name], 1, fill=True, smooth=True)
            yield partial(render_chart, title, [one], until=last, from_zero=True, note="while training")
    memory = [
        Series(title, run.curves[name].scale(1e-9), color)
        for color, (name, title) in enumerate((("memory/rss", "process"), ("memory/device_peak", "device, peak")), 1)
        if name in run.curves
    ]
    if memory:
        yield partial(render_chart, "Memory in GB", memory, until=last, from_zero=True)


def _format_series_name(name: str) -> str:
    return "train" if name == "loss" else name.removesuffix("_loss")


def _build_marks(run: RunRecord) -> list[Mark]:
    """Return marks where epochs begin and where the run was resumed, unless there are too many to distinguish."""
    batches, accumulation = run.plan.get("batches_per_epoch"), run.plan.get("accumulation")
    resumed = [Mark(segment.from_step, "resumed") for segment in run.segments[1:] if segment.from_step > 0][:6]
    if not isinstance(batches, int) or not isinstance(accumulation, int) or min(batches, accumulation) <= 0:
        return resumed
    per_epoch = -(-batches // accumulation)
    if run.step // per_epoch > 8:
        return resumed
    begins = range(per_epoch, run.step, per_epoch)
    return resumed + [Mark(step, f"epoch {place}") for place, step in enumerate(begins, 2)]


def _describe_schedule(run: RunRecord) -> str:
    kind = run.arguments.get("lr_scheduler_type")
    return kind if isinstance(kind, str) else ""


def _describe_clipping(run: RunRecord) -> str:
    limit, curve = run.arguments.get("max_grad_norm"), run.curves.get("grad_norm")
    if not isinstance(limit, (int, float)) or isinstance(limit, bool) or limit <= 0 or curve is None:
        return ""
    if not curve.is_whole:
        return f"clipped above {format_number(limit)}"
    above = sum(value > limit for value in curve.values)
    return f"above {format_number(limit)}, and clipped, in {format_share(above, len(curve))}"


# ---- the lower part ---------------------------------------------------------------------------------------------


def _render_panels(run: RunRecord) -> str:
    if not run.has_journal:
        return ""
    left = [_render_checkpoints(run), _render_time(run)]
    right = [_render_messages(run), _render_data(run), _render_command(run)]
    return f'<div class="low"><div>{"".join(left)}</div><div>{"".join(right)}</div></div>'


def _render_checkpoints(run: RunRecord) -> str:
    best_step = run.best.get("step")
    metric = str(run.best.get("metric") or "eval_loss")
    name = _find_main_metric(run) or metric
    curves = [(format_title(one), run.curves[one]) for one in dict.fromkeys((name, "eval_loss")) if one in run.curves]
    by_step = [dict(zip(curve.steps, curve.values, strict=True)) for _, curve in curves]
    saves = list({save.path: save for save in run.saves}.values())[-_MAX_SAVES:]
    rows = [
        [
            f"{escape(save.path)}{_render_best_mark(run, save)}",
            *(format_number(values[save.step]) if save.step in values else "–" for values in by_step),
            escape(format_size(save.size)),
            escape(format_duration(save.seconds)),
        ]
        for save in reversed(saves)
    ]
    best = f"best {metric} {format_number(run.best['value'])} at step {format_step(best_step)}" if run.best else ""
    if not rows:
        text = best or "No checkpoint was written."
        return render_panel("Checkpoints", f'<div class="body">{escape(text)}</div>')
    head = ["Written", *(title for title, _ in curves), "Size", "Took"]
    limit = run.arguments.get("save_total_limit")
    note = f"save_total_limit={limit}: older ones were deleted, except the best."
    is_over = isinstance(limit, int) and 0 < limit < len(saves)
    kept = f'<div class="body mut">{escape(note)}</div>' if is_over else ""
    return render_panel("Checkpoints", render_table(head, rows, numbers=range(1, len(head))) + kept, note=best)


def _render_best_mark(run: RunRecord, save: SavedModel) -> str:
    """Return a mark for the best model. One that was saved before its evaluation is recognised by its name."""
    is_best = save.step == run.best.get("step") and (save.is_best or save.path == run.best_checkpoint)
    return ' <span class="pill acc plain">best</span>' if is_best else ""


def _render_time(run: RunRecord) -> str:
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
        f"<dd>{escape(format_duration(part))}</dd><dd>{escape(format_share(part, whole))}</dd>"
        for purpose, part in seconds.items()
    )
    ledger = f'<div class="ledger" aria-hidden="true">{bar}</div><dl class="parts">{parts}</dl>'
    inside = ledger + _render_advice(run, seconds)
    return render_panel("Where the time went", f'<div class="body">{inside}</div>', note=format_duration(whole))


def _render_advice(run: RunRecord, seconds: dict[str, float]) -> str:
    training = seconds.get("computing", 0.0) + seconds.get("data", 0.0)
    waiting = seconds.get("data", 0.0) / training if training else 0.0
    if waiting < _LOADER_BOUND_SHARE or seconds.get("data", 0.0) < _MIN_WAIT_FOR_ADVICE:
        return ""
    workers = run.arguments.get("dataloader_num_workers")
    more = workers * 2 if isinstance(workers, int) and 0 < workers < 64 else 4
    text = f"Training waited for data {waiting:.0%} of its time: try dataloader_num_workers={more}."
    return f'<div class="note warn">{escape(text)}</div>'


def _render_data(run: RunRecord) -> str:
    rows = []
    for one in run.coverage[-12:]:
        whole = one.of or 0
        part = min(one.done / whole, 1.0) if one.done is not None and whole else 0.0
        text = f"{format_number(one.done)} of {format_number(whole)} rows" if one.done is not None and whole else ""
        text = text or f"{format_number(one.batches)} batches"
        text += f", {format_number(one.skipped)} skipped" if one.skipped else ""
        track = f'<div class="trk"><i style="width:{part * 100:.1f}%"></i></div>' if whole else "<span></span>"
        rows.append(f"<span>Epoch {one.epoch + 1}</span>{track}<span>{escape(text)}</span>")
    columns, left_out = run.plan.get("columns"), run.plan.get("columns_left_out")
    facts = []
    if isinstance(columns, list) and columns:
        facts.append(("Columns used", ", ".join(map(str, columns[:50]))))
    if isinstance(left_out, list):
        facts.append(("Columns left out", ", ".join(map(str, left_out[:50])) or "none"))
    if not rows and not facts:
        return ""
    older = f"the last 12 of {len(run.coverage)} epochs" if len(run.coverage) > 12 else ""
    inside = f'<div class="cover">{"".join(rows)}</div>{render_pairs(facts) if facts else ""}'
    return render_panel("Data seen", f'<div class="body">{inside}</div>', note=older)


def _render_messages(run: RunRecord) -> str:
    messages = run.messages
    if not messages:
        return render_panel("Warnings and notices", '<div class="body">There were none.</div>')
    lines = f'<div class="evs">{"".join(map(_render_message, messages[:60]))}</div>'
    rest = "".join(map(_render_message, messages[60:]))
    more = (
        f'<div class="body mut">and {run.num_omitted_messages} more in the journal</div>'
        if run.num_omitted_messages
        else ""
    )
    folded = f"<details><summary>{len(messages) - 60} more</summary>{rest}</details>" if rest else ""
    counts = {kind: sum(one.kind == kind for one in messages) for kind in ("error", "warning")}
    totals = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    return render_panel("Warnings and notices", f"{lines}{folded}{more}", note=", ".join(totals) or "no warnings")


def _render_message(one: RunMessage) -> str:
    sign, kind = _MESSAGE_SIGNS.get(one.kind, ("i", ""))
    return (
        f'<div class="ev"><span class="t">{escape(format_time(one.time))}</span>'
        f'<span class="g{kind}" role="img" aria-label="{escape(one.kind)}">{sign}</span>'
        f"<p>{escape(one.text)}</p></div>"
    )


def _render_command(run: RunRecord) -> str:
    line, facts = shlex.join(_build_command_line(run)), []
    if isinstance(run.command.get("directory"), str):
        facts.append(("In", run.command["directory"]))
    if isinstance(run.code.get("commit"), str):
        branch = f" ({run.code['branch']})" if isinstance(run.code.get("branch"), str) else ""
        facts.append(("Commit", f"{run.code['commit']}{branch}"))
    if started := _describe_launch(run):
        facts.append(("Started", started))
    if len(run.segments) > 1:
        facts.append(("Resumed", f"in {len(run.segments)} parts: the command is that of the last part"))
    if run.segments and run.segments[0].from_step:
        facts.append(("Continued from", f"step {format_step(run.segments[0].from_step)} of another run"))
    if run.forked_from:
        facts.append(("Forked from", f"{run.forked_from.get('checkpoint')} of run {run.forked_from.get('run_id')}"))
    pre = f'<pre class="all" tabindex="0" aria-label="the command">{escape(line)}</pre>' if line else ""
    if not pre and not facts:
        return ""
    return render_panel(
        "To repeat this run", f'<div class="body" style="display:grid;gap:10px">{pre}{render_pairs(facts)}</div>'
    )


def _build_command_line(run: RunRecord) -> list[str]:
    """Return the command line with the launcher of the processes; empty for a notebook, where it is the kernel's."""
    words = run.command.get("words")
    if not isinstance(words, list) or run.command.get("notebook") is True:
        return []
    words, per_node = [str(word) for word in words], as_mapping(run.command.get("launcher")).get("per_node")
    if len(words) < 2 or parse_step(per_node) is None:
        return words
    program = words[2:] if words[1] == "-u" else words[1:]  # the launcher adds -u itself
    return ["torchrun", "--nproc-per-node", str(per_node), *program]


def _describe_launch(run: RunRecord) -> str:
    """Return how the run was started, where the command line alone does not show it."""
    nodes = parse_step(as_mapping(run.command.get("launcher")).get("nodes"))
    if run.command.get("notebook") is True:
        return "in a notebook: run its cells again"
    if nodes is not None:
        return f"by torchrun on {nodes} nodes: on each, with the same --nnodes and --rdzv options" if nodes > 1 else ""
    if run.processes > 1:
        return f"with {run.processes} processes: use the same launcher"
    words = run.command.get("words")
    if isinstance(words, list) and words and (words[1:] in ([], ["-"], ["-i"])):
        return "interactively, or from standard input: the program itself is not recorded"
    return ""


def _render_settings(run: RunRecord) -> str:
    if not run.arguments and not run.environment:
        return ""
    chosen = [name for name in run.arguments if run.origins.get(name, "").startswith(("given", "changed", "environ"))]
    others = [name for name in run.arguments if name not in chosen]

    def build_rows(names: list[str]) -> list[list[str]]:
        return [
            [
                f"<code>{escape(name)}</code>",
                f"<code>{escape(format_value(run.arguments[name]))}</code>",
                f'<span class="mut">{escape(run.origins.get(name, "default"))}</span>',
            ]
            for name in names
        ]

    head = ["Argument", "Value", "From"]
    shown = render_table(head, build_rows(chosen)) if chosen else '<div class="body">All are the defaults.</div>'
    others_table = render_table(head, build_rows(others))
    rest = f"<details><summary>The other {len(others)} arguments</summary>{others_table}</details>"
    environment = render_pairs(_iterate_environment(run))
    count = f"{len(chosen)} of {len(run.arguments)} set for this run"
    return (
        f'<h2>Settings <small>{count}</small></h2><div class="low" style="margin-top:0"><div>'
        f"{render_panel('Arguments', shown + (rest if others else ''))}</div>"
        f'<div>{render_panel("Environment", f"""<div class="body">{environment}</div>""")}</div></div>'
    )


def _iterate_environment(run: RunRecord) -> Iterator[tuple[str, str]]:
    for name, value in run.environment.items():
        if name == "packages" and isinstance(value, dict):
            yield "packages", ", ".join(f"{package} {version}" for package, version in value.items())
        elif name == "device_memory" and isinstance(value, (int, float)):
            yield "device memory", format_size(value)
        elif value is not None:
            yield name.replace("_", " "), format_value(value)


def _render_footer(run: RunRecord) -> str:
    parts = [*([f"run {run.run_id}"] if run.has_journal else []), f"made from {run.path.name}"]
    if run.other_runs:
        parts.append(f"which also holds {run.other_runs} earlier run{'' if run.other_runs == 1 else 's'}")
    if run.bad_lines:
        parts.append(f"{run.bad_lines} line{'' if run.bad_lines == 1 else 's'} of it could not be read")
    if run.newer:
        parts.append("written by a later version of ostinato: some of it may not be shown")
    return f"<footer>{escape(' · '.join(parts))}</footer>"
