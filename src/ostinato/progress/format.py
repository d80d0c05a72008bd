"""Format a log as a line of columns, an evaluation as a line or a small table: pieces of text, each with a style.

step  500  epoch 1.33  loss 0.3127  lr 2.8e-05  grad 1.9
step  500  epoch 1.33  eval  loss 0.2914 ↓  accuracy 0.8912 ↑ best  1.6 s

step  500  epoch 1.33  eval  loss      accuracy            of several sets, each row when it is known
  clean                      0.2914 ↓  0.8912 ↑ best  1.6 s
  noisy                      0.4102 ↓  0.8011 ↓       1.7 s

step  500  epoch 1.33  eval  1.6 s                         with more metrics than a line has room for
    loss      0.2914 ↓       precision_macro  0.8841 ↑
    accuracy  0.8912 ↑ best  recall_macro     0.8799 ↑
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from .plain import format_epoch, format_label, format_value, select_shown, to_number, to_single_line
from .speed import format_rate

Line = list[tuple[str, str]]  # pieces of text, each with the name of its style

# A log whose names all begin like this is about one thing: `eval  loss 0.29  accuracy 0.89`.
SUBJECTS = ("eval", "train", "test", "predict")
SPEEDS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
COLUMN_WIDTHS = {"loss": 6, "learning_rate": 8, "grad_norm": 4}  # enough for most runs
INDENT = ("    ", "")  # of continuation lines
NUMBER_WIDTH = len("0.1234 ↑")
MAX_LAYOUTS = 50  # remembered: one for each set of names


class LogRecord(NamedTuple):
    """A log that is waiting to be drawn."""

    step: int
    max_steps: int
    epoch: Any
    logs: Mapping[str, Any]
    best: str | None


class Entry(NamedTuple):
    """One number of a log."""

    name: Any  # in the log
    short: str  # without what it shares with the others
    label: str  # on a line
    column: str
    is_speed: bool


class LogLayout(NamedTuple):
    """What all logs with the same names have in common."""

    subject: str | None
    data: str  # which of several evaluation sets
    entries: list[Entry]


class Cell(NamedTuple):
    """A metric in a table."""

    label: str
    column: str
    value: str
    change: str
    best: str

    @property
    def width(self) -> int:
        return measure_width(self.value) + len(self.change) + len(self.best)

    def format_pieces(self, width: int) -> Line:
        filled = " " * (width - self.width)
        return [("  ", ""), (self.value, ""), (self.change, "quiet"), (self.best, "best"), (filled, "")]


@dataclass
class Columns:
    """Formats logs as lines; remembers the widths of columns and the results of the last evaluation."""

    max_str_len: int
    is_ascii: bool
    _layouts: dict[tuple[str, ...], LogLayout] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=dict)  # of the widest value so far, by column
    _measured: dict[str, float] = field(default_factory=dict)  # by the evaluation before
    _table: tuple[int, list[str]] | None = None  # the step and the columns of the rows that came last

    def format_lines(self, record: LogRecord, width: int) -> Iterator[Line]:
        """Yield the lines of a log: usually one."""
        layout = self._find_layout(record.logs)
        is_evaluation = layout.subject is not None and layout.subject != "train"
        changes = (
            {one.name: self._format_change(one, record.logs[one.name]) for one in layout.entries}
            if is_evaluation
            else {}
        )
        table = self._format_row(record, layout, changes, width) if layout.data else []
        if table:
            yield from table
            return
        self._table = None
        line = self._format_line(record, layout, changes)
        if is_evaluation and not fits_width(line, width):
            yield from self._format_grid(record, layout, changes, width)
        else:
            yield line

    def load_history(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Remember what was measured before the run was resumed."""
        for log in history:
            measured = {name: to_number(value) for name, value in log.items() if str(name).startswith("eval_")}
            self._measured.update({name: value for name, value in measured.items() if value is not None})

    # ---- one line --------------------------------------------------------------------------------

    def _format_line(self, record: LogRecord, layout: LogLayout, changes: Mapping[str, str]) -> Line:
        """Format a log as one line."""
        logs, widths, line = record.logs, self._widths, self._format_prefix(record, layout)
        for name, short, label, column, is_speed in layout.entries:
            text = (
                self._format_speed(layout, short, logs[name])
                if is_speed
                else format_value(short, logs[name], self.max_str_len)
            )
            if not text:
                continue
            width = widths.get(column, 0)
            if len(text) > width:
                widths[column] = width = len(text)
            line.append((f"  {label} " if label else "  ", "quiet"))
            line.append((text.ljust(width), ""))
            if changes:
                line.append((changes[name], "quiet"))
            if name == record.best:
                line.append((" best", "best"))
        return line

    def _format_prefix(self, record: LogRecord, layout: LogLayout) -> Line:
        step = str(record.step).rjust(len(str(record.max_steps)))
        line: Line = [("step ", "quiet"), (f"{step}  ", ""), ("epoch ", "quiet"), (format_epoch(record.epoch), "")]
        if layout.subject is not None and layout.entries:
            line.append((f"  {layout.subject} {layout.data}".rstrip(), "subject"))
        return line

    def _format_speed(self, layout: LogLayout, short: str, value: Any) -> str:
        """Format a speed; of an evaluation only its seconds are shown, to leave room for its metrics."""
        number = to_number(value)
        if number is not None and short == "runtime":
            return f"{number:,.1f} s"
        is_news = layout.subject == "train" and short == "samples_per_second"
        return f"{format_rate(number)} samples/s" if number is not None and is_news else ""

    def _format_change(self, entry: Entry, value: Any) -> str:
        """Return an arrow if a metric has changed since the last evaluation."""
        now = None if entry.is_speed else to_number(value)
        if now is None:
            return ""
        before, self._measured[entry.name] = self._measured.get(entry.name, now), now
        return format_change(before, now, is_ascii=self.is_ascii)

    # ---- small tables ----------------------------------------------------------------------------

    def _format_row(self, record: LogRecord, layout: LogLayout, changes: Mapping[str, str], width: int) -> list[Line]:
        """Format one of several sets as a row, below a head if it is the first; return nothing if there is no room."""
        cells = self._build_cells(record, layout, changes)
        columns = [cell.column for cell in cells]
        head = self._format_prefix(record, layout._replace(data=""))
        reach = max(sum(len(text) for text, _ in head), measure_width(layout.data) + 2, self._widths.get("sets", 0))
        known = [self._widths.get(f"table {column}", NUMBER_WIDTH) for column in columns]
        widths = [max(cell.width, measure_width(cell.label), each) for cell, each in zip(cells, known, strict=True)]
        took = self._format_duration(record, layout)
        if reach + sum(widths) + 2 * len(widths) + len(took) > width:
            return []
        self._widths["sets"] = reach
        self._widths.update({f"table {column}": each for column, each in zip(columns, widths, strict=True)})
        head.append((" " * (reach - sum(len(text) for text, _ in head)), ""))
        head += [(f"  {pad(cell.label, each)}", "quiet") for cell, each in zip(cells, widths, strict=True)]
        row: Line = [(f"  {pad(layout.data, reach - 2)}", "subject")]
        for cell, each in zip(cells, widths, strict=True):
            row += cell.format_pieces(each)
        row.append((took, "quiet"))
        before, self._table = self._table, (record.step, columns)
        return [row] if before == self._table else [head, row]

    def _format_grid(
        self, record: LogRecord, layout: LogLayout, changes: Mapping[str, str], width: int
    ) -> Iterator[Line]:
        """Yield all metrics of one evaluation in as many columns as fit; they read downwards."""
        head = self._format_prefix(record, layout)
        yield [*head, (self._format_duration(record, layout), "quiet")]
        cells = self._build_cells(record, layout, changes)
        values = min(max(NUMBER_WIDTH, *(cell.width for cell in cells)), width // 2)
        labels = min(max(measure_width(cell.label) for cell in cells), max(width - 4 - 2 - values, 1))
        across = max((width - 4 + 3) // (labels + 2 + values + 3), 1)
        down = -(-len(cells) // across)
        for first in range(down):
            line: Line = [("  ", "")]
            for cell in cells[first::down]:
                shown = cell._replace(value=cut(cell.value, values - len(cell.change) - len(cell.best)))
                line += [
                    (f"  {pad(cut(cell.label, labels), labels)}", "quiet"),
                    *shown.format_pieces(values),
                    (" ", ""),
                ]
            yield line

    def _build_cells(self, record: LogRecord, layout: LogLayout, changes: Mapping[str, str]) -> list[Cell]:
        def value(entry: Entry) -> str:
            return format_value(entry.short, record.logs[entry.name], self.max_str_len)

        return [
            Cell(one.label, one.column, value(one), changes[one.name], " best" if one.name == record.best else "")
            for one in layout.entries
            if not one.is_speed
        ]

    def _format_duration(self, record: LogRecord, layout: LogLayout) -> str:
        texts = [
            self._format_speed(layout, one.short, record.logs[one.name]) for one in layout.entries if one.is_speed
        ]
        return "".join(f"  {text}" for text in texts if text)

    # ---- layouts ---------------------------------------------------------------------

    def _find_layout(self, logs: Mapping[str, Any]) -> LogLayout:
        names = tuple(logs)
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
                self._widths.clear()
            self._layouts[names] = layout = find_layout(logs)
            for one in layout.entries:
                self._widths.setdefault(one.column, COLUMN_WIDTHS.get(one.short, 0))
        return layout


def find_layout(logs: Mapping[str, Any]) -> LogLayout:
    """Find out what a log is about: the name of its runtime tells which of several evaluation sets it is of.

    >>> find_layout({"eval_clean_loss": 0.3, "eval_clean_runtime": 1.5, "epoch": 1.0})[:2]
    ('eval', 'clean')
    """
    names = {str(name): name for name in select_shown(logs)}
    timed = [name.removesuffix("_runtime") for name in names if name.endswith("_runtime")]
    prefix = next((one for one in (*timed, *SUBJECTS) if all(name.startswith(f"{one}_") for name in names)), "")
    subject = next((one for one in SUBJECTS if f"{prefix}_".startswith(f"{one}_")), None)
    entries = []
    for text in sorted(names, key=lambda name: name.endswith(SPEEDS)):  # speeds last
        short = text if subject is None else text.removeprefix(f"{prefix}_")
        is_speed = subject is not None and short in SPEEDS
        entries.append(
            Entry(names[text], short, "" if is_speed else format_label(short), f"{subject} {short}", is_speed)
        )
    data = "" if subject is None else prefix.removeprefix(subject).removeprefix("_")
    return LogLayout(subject, to_single_line(data), entries)


def format_change(before: float, now: float, *, is_ascii: bool) -> str:
    """Return an arrow up, an arrow down, or nothing."""
    if before == now:
        return ""
    up, down = ("+", "-") if is_ascii else ("↑", "↓")
    return f" {up if now > before else down}"


# ---- widths ---------------------------------------------------------------------------------------------------------


def measure_width(text: str) -> int:
    """Return the number of cells that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def fits_width(line: Line, width: int) -> bool:
    return measure_width("".join([text for text, _ in line])) <= width


def pad(text: str, width: int) -> str:
    return text + " " * (width - measure_width(text))


def cut(text: str, width: int) -> str:
    """Cut a text to a width, and mark it as cut."""
    if measure_width(text) <= width:
        return text
    while measure_width(text) > max(width - 2, 0):
        text = text[:-1]
    return f"{text}.."[:width]


def wrap_line(line: Line, width: int) -> Iterator[Line]:
    """Wrap a line that is too long: before a name, whose value follows."""
    texts = [text for text, _ in line]
    whole = "".join(texts)
    measure = len if whole.isascii() else measure_width
    if measure(whole) <= width:
        yield line
        return
    ends = [*accumulate(map(measure, texts)), measure(whole)]
    first, begins_at = 0, 0  # of the current line: its first piece, and where that is
    for place in [place for place, text in enumerate(texts) if text.startswith("  ")]:
        blanks = len(texts[place + 1]) - len(texts[place + 1].rstrip()) if place + 1 < len(texts) else 0
        if ends[place + 1] - blanks - begins_at > width and place:
            yield [INDENT, *line[first:place]] if first else line[:place]
            first, begins_at = place, ends[place - 1] - len(INDENT[0])
    yield [INDENT, *line[first:]] if first else line
