"""Show a run in a notebook: a bar, a table of what was logged, and the curve of the loss.

One display per run, drawn anew in its place. Only text and SVG: a saved notebook shows it as it was.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..callbacks.events import QuietCallback
from ..core.state import TrainerControl, TrainerState
from .messages import ObservedRun, find_best_step, format_closing, format_header
from .plain import format_epoch, format_plain_line, format_value, print_line, select_shown, to_number
from .speed import Clock, find_length, format_duration, format_rate

SECONDS_BETWEEN_DRAWINGS = 0.5
ROWS_SHOWN = 200  # the newest; the rest is in `trainer.state.log_history`
POINTS_DRAWN = 300
WIDTH, HEIGHT, MARGIN = 520, 160, 8
NOT_IN_TABLE = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "epoch", "step")


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, without importing anything."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


class NotebookProgressCallback(QuietCallback):
    """Shows a run in a notebook: steps and time left, a table, a curve. The default in a notebook.

    >>> trainer.add_callback(NotebookProgressCallback)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._page: _Page | None = None
        self._watched: ObservedRun | None = None
        self._batches = 0

    def watch(self, run: ObservedRun) -> None:
        """Show this run, from its beginning to its end.

        Args:
            run: The run.
        """
        self._watched = run

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._page = None
        if state.is_world_process_zero:
            samples = args.train_batch_size * args.data_size * args.gradient_accumulation_steps
            self._page = _Page(state, self._watched, samples, getattr(args, "metric_for_best_model", None))
            self._page.draw()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._page is not None:
            if self._page.clock.first is None and self._watched is not None and not control.should_log:
                self._page.first_loss = self._watched.first_loss()
            self._page.mark_step(state)

    def on_prediction_step(
        self, args: Any, state: TrainerState, control: TrainerControl, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        self._batches += 1
        if self._page is not None:
            self._page.evaluating = (self._batches, find_length(eval_dataloader))
            self._page.draw_if_due()

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        if self._page is None:  # an evaluation without training
            print_line(format_plain_line(state, logs))
        else:
            self._page.log(state, logs)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        self._batches = 0
        if self._page is not None:
            self._page.evaluating = None
            self._page.clock.mark_pause()
            self._page.draw()

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        self._batches = 0

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._page is not None:
            duration = format_duration(time.monotonic() - self._page.clock.started)
            results = args.output_dir if self._watched is None else self._watched.results
            self._page.end(format_closing(args, state, duration, str(results)))
        self._page, self._watched, self._batches = None, None, 0

    def stop(self) -> None:
        """Mark an interrupted run as such. Safe to call at any time."""
        page, self._page = self._page, None
        self._watched, self._batches = None, 0
        if page is not None:
            page.end(f"interrupted after {format_duration(page.clock.mark - page.clock.started)}")


class _Page:
    """The display of one run."""

    def __init__(
        self, state: TrainerState, watched: ObservedRun | None, samples_per_step: int, metric: str | None = None
    ) -> None:
        self.clock = Clock()
        self.evaluating: tuple[int, int | None] | None = None
        self.first_loss: float | None = None
        self._state, self._samples_per_step, self._metric = state, samples_per_step, metric
        self._head = "" if watched is None else format_header(watched.header, watched.expected())
        self._ended: str | None = None
        self._best: tuple[float | None, int | None] = (None, None)  # the metric and its step
        self._rows: dict[int, dict[str, Any]] = {}  # by step
        self._columns: list[str] = []
        self._left_out = 0
        self._curves: dict[str, list[tuple[float, float]]] = {"loss": [], "eval_loss": []}
        self._display: Any = None
        self._due_at = -math.inf

    def mark_step(self, state: TrainerState) -> None:
        self._state = state
        if self.clock.mark_step(state.global_step) >= self._due_at:
            self.draw()

    def log(self, state: TrainerState, logs: Mapping[str, Any]) -> None:
        """Add a log to the table: one row per step."""
        self._state = state
        numbers = {name: value for name, value in select_shown(logs).items() if not name.endswith(NOT_IN_TABLE)}
        if all(name.startswith("train_") for name in numbers):  # the summary, which the last line has
            return
        row = self._rows.setdefault(state.global_step, {})
        row.update(numbers)
        self._columns += [name for name in numbers if name not in self._columns]
        for name, curve in self._curves.items():
            value = numbers.get(name)
            number = to_number(value)
            if number is not None and math.isfinite(number):
                curve.append((state.global_step, number))
                self._curves[name] = _thin_out(curve)
        while len(self._rows) > ROWS_SHOWN:
            del self._rows[next(iter(self._rows))]
            self._left_out += 1
        self.draw_if_due()

    def end(self, line: str) -> None:
        """Show the last line."""
        self._ended, self.evaluating = line, None
        self.draw()

    def draw_if_due(self) -> None:
        if time.monotonic() >= self._due_at:
            self.draw()

    def draw(self) -> None:
        """Draw the page in place of the last one."""
        from IPython.display import HTML, display  # noqa: PLC0415

        content = HTML(self._render_html())
        if self._display is None:
            self._display = display(content, display_id=True)
        else:
            self._display.update(content)
        self._due_at = time.monotonic() + SECONDS_BETWEEN_DRAWINGS

    # ---- HTML --------------------------------------------------------------------

    def _render_html(self) -> str:
        head = f"<div>{html.escape(self._head)}</div>" if self._head else ""
        tail = "" if self._ended is None else f"<div><b>{html.escape(self._ended)}</b></div>"
        body = f"{self._render_bar()}{self._render_table()}{self._render_plot()}"
        return f"<div style='font-family: sans-serif'>{head}{body}{tail}</div>"

    def _render_bar(self) -> str:
        state, total = self._state, max(self._state.max_steps, 1)
        parts = [f"step {state.global_step}/{state.max_steps}", f"epoch {format_epoch(state.epoch or 0)}"]
        if self.first_loss is not None and not self._rows:
            parts.append(f"first loss {format_value('loss', self.first_loss, 20)}")
        speed = self.clock.steps_per_second()
        if speed is not None:
            parts.append(f"{format_rate(speed * self._samples_per_step)} samples/s")
        if self._ended is None:
            parts.append(f"{format_duration(self.clock.seconds_left(max(total - state.global_step, 0)))} left")
        if self.evaluating is not None:
            done, batches = self.evaluating
            parts.append(f"evaluating {done}{'' if batches is None else f'/{batches}'}")
        words = html.escape(" · ".join(parts))
        return (
            f"<div><progress value='{state.global_step}' max='{total}' style='width: 300px'></progress> {words}</div>"
        )

    def _render_table(self) -> str:
        if not self._rows:
            return ""
        names = "".join(f"<th style='text-align: left'>{html.escape(name)}</th>" for name in ["step", *self._columns])
        lines, best_step = [], self._find_best_step()
        for step, row in self._rows.items():
            cells = [str(step), *(format_value(name, row[name], 40) if name in row else "" for name in self._columns)]
            best = " style='font-weight: bold'" if step == best_step else ""
            mark = "<td>best</td>" if step == best_step else ""
            lines.append(f"<tr{best}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}{mark}</tr>")
        more = f"<div>{self._left_out} earlier rows are in trainer.state.log_history</div>" if self._left_out else ""
        return f"{more}<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"

    def _find_best_step(self) -> int | None:
        metric = self._state.best_metric
        if self._metric and metric != self._best[0]:  # searching a long history takes time
            self._best = (metric, find_best_step(self._metric, self._state))
        return self._best[1]

    def _render_plot(self) -> str:
        curves = {name: points for name, points in self._curves.items() if len(points) > 1}
        if not curves:
            return ""
        values = [value for points in curves.values() for _, value in points]
        low, high, last = min(values), max(values), max(self._state.max_steps, 1)
        colours = {"loss": "#5b7cfa", "eval_loss": "#e0783c"}
        lines = []
        for name, points in curves.items():
            heights = [_scale_y((value - low) / (high - low or 1)) for _, value in points]
            places = [f"{_scale_x(step / last):.1f},{y:.1f}" for (step, _), y in zip(points, heights, strict=True)]
            line = f"<polyline points='{' '.join(places)}' fill='none' stroke='{colours[name]}' stroke-width='2'/>"
            lines.append(line)
        names = " ".join(f"<span style='color: {colours[name]}'>{name}</span>" for name in curves)
        words = f"{names} from {high:.4g} (top) to {low:.4g} (bottom)"
        size = f"width='{WIDTH}' viewBox='0 0 {WIDTH} {HEIGHT}' style='max-width: 100%'"  # narrower on a phone
        drawing = f"<svg {size} role='img' aria-label='the loss over the steps'>{''.join(lines)}</svg>"
        return f"{drawing}<div>{words}</div>"


def _scale_x(share: float) -> float:
    return MARGIN + share * (WIDTH - 2 * MARGIN)


def _scale_y(share: float) -> float:
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)


def _thin_out(curve: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Drop every second point of a curve that has twice as many as can be seen, but not the newest."""
    return curve if len(curve) < 2 * POINTS_DRAWN else [*curve[:-1:2], curve[-1]]
