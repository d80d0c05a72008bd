"""A log as a line of columns, an evaluation as a line or a small table: pieces of text, each with a style.

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

from .plain import epoch_text, label_of, number_in, on_one_line, shown, value_text
from .speed import rate_text

Line = list[tuple[str, str]]  # pieces of text, each with the name of its style

# A log whose names all begin like this is about one thing: `eval  loss 0.29  accuracy 0.89`.
SUBJECTS = ("eval", "train", "test", "predict")
SPEEDS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
COLUMN_WIDTHS = {"loss": 6, "learning_rate": 8, "grad_norm": 4}  # what most runs need
INDENT = ("    ", "")  # of what does not fit a line
NUMBER_WIDTH = len("0.1234 ↑")
KINDS_REMEMBERED = 50  # of logs: with the same names, and so with the same look


class Noted(NamedTuple):
    """What somebody logged, until there is time to write it."""

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


class Look(NamedTuple):
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
        return width_of(self.value) + len(self.change) + len(self.best)

    def pieces(self, width: int) -> Line:
        filled = " " * (width - self.width)
        return [("  ", ""), (self.value, ""), (self.change, "quiet"), (self.best, "best"), (filled, "")]


@dataclass
class Columns:
    """Turns logs into lines; remembers how wide columns are and what the last evaluation measured."""

    max_str_len: int
    is_ascii: bool
    _looks: dict[tuple[str, ...], Look] = field(default_factory=dict)
    _widths: dict[str, int] = field(default_factory=dict)  # of the widest value so far, by column
    _measured: dict[str, float] = field(default_factory=dict)  # by the evaluation before
    _table: tuple[int, list[str]] | None = None  # the step and the columns of the rows that came last

    def lines(self, noted: Noted, width: int) -> Iterator[Line]:
        """Usually one."""
        look = self._look_of(noted.logs)
        is_evaluation = look.subject is not None and look.subject != "train"
        changes = {one.name: self._change(one, noted.logs[one.name]) for one in look.entries} if is_evaluation else {}
        table = self._row(noted, look, changes, width) if look.data else []
        if table:
            yield from table
            return
        self._table = None
        line = self._line(noted, look, changes)
        if is_evaluation and not fits(line, width):
            yield from self._grid(noted, look, changes, width)
        else:
            yield line

    def recall(self, history: Sequence[Mapping[str, Any]]) -> None:
        """What was measured before a run was resumed."""
        for log in history:
            measured = {name: number_in(value) for name, value in log.items() if str(name).startswith("eval_")}
            self._measured.update({name: value for name, value in measured.items() if value is not None})

    # ---- one line --------------------------------------------------------------------------------

    def _line(self, noted: Noted, look: Look, changes: Mapping[str, str]) -> Line:
        """What is known by its place needs no long name."""
        logs, widths, line = noted.logs, self._widths, self._beginning(noted, look)
        for name, short, label, column, is_speed in look.entries:
            text = (
                self._speed(look, short, logs[name]) if is_speed else value_text(short, logs[name], self.max_str_len)
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
            if name == noted.best:
                line.append((" best", "best"))
        return line

    def _beginning(self, noted: Noted, look: Look) -> Line:
        step = str(noted.step).rjust(len(str(noted.max_steps)))
        line: Line = [("step ", "quiet"), (f"{step}  ", ""), ("epoch ", "quiet"), (epoch_text(noted.epoch), "")]
        if look.subject is not None and look.entries:
            line.append((f"  {look.subject} {look.data}".rstrip(), "subject"))
        return line

    def _speed(self, look: Look, short: str, value: Any) -> str:
        """Of an evaluation the seconds are enough: a line is better spent on its metrics."""
        number = number_in(value)
        if number is not None and short == "runtime":
            return f"{number:,.1f} s"
        is_news = look.subject == "train" and short == "samples_per_second"
        return f"{rate_text(number)} samples/s" if number is not None and is_news else ""

    def _change(self, entry: Entry, value: Any) -> str:
        """Whether a metric is more or less than the last time."""
        now = None if entry.is_speed else number_in(value)
        if now is None:
            return ""
        before, self._measured[entry.name] = self._measured.get(entry.name, now), now
        return arrow(before, now, is_ascii=self.is_ascii)

    # ---- small tables ----------------------------------------------------------------------------

    def _row(self, noted: Noted, look: Look, changes: Mapping[str, str], width: int) -> list[Line]:
        """One of several sets, below the names of its metrics, which the first has; nothing if there is no room."""
        cells = self._cells(noted, look, changes)
        columns = [cell.column for cell in cells]
        head = self._beginning(noted, look._replace(data=""))
        reach = max(sum(len(text) for text, _ in head), width_of(look.data) + 2, self._widths.get("sets", 0))
        known = [self._widths.get(f"table {column}", NUMBER_WIDTH) for column in columns]
        widths = [max(cell.width, width_of(cell.label), each) for cell, each in zip(cells, known, strict=True)]
        took = self._took(noted, look)
        if reach + sum(widths) + 2 * len(widths) + len(took) > width:
            return []
        self._widths["sets"] = reach
        self._widths.update({f"table {column}": each for column, each in zip(columns, widths, strict=True)})
        head.append((" " * (reach - sum(len(text) for text, _ in head)), ""))
        head += [(f"  {pad(cell.label, each)}", "quiet") for cell, each in zip(cells, widths, strict=True)]
        row: Line = [(f"  {pad(look.data, reach - 2)}", "subject")]
        for cell, each in zip(cells, widths, strict=True):
            row += cell.pieces(each)
        row.append((took, "quiet"))
        before, self._table = self._table, (noted.step, columns)
        return [row] if before == self._table else [head, row]

    def _grid(self, noted: Noted, look: Look, changes: Mapping[str, str], width: int) -> Iterator[Line]:
        """All metrics of one evaluation, in as many columns as there is room for; they read downwards."""
        head = self._beginning(noted, look)
        yield [*head, (self._took(noted, look), "quiet")]
        cells = self._cells(noted, look, changes)
        values = min(max(NUMBER_WIDTH, *(cell.width for cell in cells)), width // 2)
        labels = min(max(width_of(cell.label) for cell in cells), max(width - 4 - 2 - values, 1))
        across = max((width - 4 + 3) // (labels + 2 + values + 3), 1)
        down = -(-len(cells) // across)
        for first in range(down):
            line: Line = [("  ", "")]
            for cell in cells[first::down]:
                shown = cell._replace(value=cut(cell.value, values - len(cell.change) - len(cell.best)))
                line += [(f"  {pad(cut(cell.label, labels), labels)}", "quiet"), *shown.pieces(values), (" ", "")]
            yield line

    def _cells(self, noted: Noted, look: Look, changes: Mapping[str, str]) -> list[Cell]:
        def value(entry: Entry) -> str:
            return value_text(entry.short, noted.logs[entry.name], self.max_str_len)

        return [
            Cell(one.label, one.column, value(one), changes[one.name], " best" if one.name == noted.best else "")
            for one in look.entries
            if not one.is_speed
        ]

    def _took(self, noted: Noted, look: Look) -> str:
        texts = [self._speed(look, one.short, noted.logs[one.name]) for one in look.entries if one.is_speed]
        return "".join(f"  {text}" for text in texts if text)

    # ---- what a log is about ---------------------------------------------------------------------

    def _look_of(self, logs: Mapping[str, Any]) -> Look:
        names = tuple(logs)
        look = self._looks.get(names)
        if look is None:
            if len(self._looks) >= KINDS_REMEMBERED:
                self._looks.clear()
                self._widths.clear()
            self._looks[names] = look = look_of(logs)
            for one in look.entries:
                self._widths.setdefault(one.column, COLUMN_WIDTHS.get(one.short, 0))
        return look


def look_of(logs: Mapping[str, Any]) -> Look:
    """What a log is about: of several evaluation sets, the name of the time it took tells which.

    >>> look_of({"eval_clean_loss": 0.3, "eval_clean_runtime": 1.5, "epoch": 1.0})[:2]
    ('eval', 'clean')
    """
    names = {str(name): name for name in shown(logs)}
    timed = [name.removesuffix("_runtime") for name in names if name.endswith("_runtime")]
    prefix = next((one for one in (*timed, *SUBJECTS) if all(name.startswith(f"{one}_") for name in names)), "")
    subject = next((one for one in SUBJECTS if f"{prefix}_".startswith(f"{one}_")), None)
    entries = []
    for text in sorted(names, key=lambda name: name.endswith(SPEEDS)):  # speeds last
        short = text if subject is None else text.removeprefix(f"{prefix}_")
        is_speed = subject is not None and short in SPEEDS
        entries.append(Entry(names[text], short, "" if is_speed else label_of(short), f"{subject} {short}", is_speed))
    data = "" if subject is None else prefix.removeprefix(subject).removeprefix("_")
    return Look(subject, on_one_line(data), entries)


def arrow(before: float, now: float, *, is_ascii: bool) -> str:
    """Up, down, or nothing."""
    if before == now:
        return ""
    up, down = ("+", "-") if is_ascii else ("↑", "↓")
    return f" {up if now > before else down}"


# ---- room -----------------------------------------------------------------------------------------------------------


def width_of(text: str) -> int:
    """The cells that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def fits(line: Line, width: int) -> bool:
    return width_of("".join([text for text, _ in line])) <= width


def pad(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def cut(text: str, width: int) -> str:
    """The beginning, and a sign that there was more."""
    if width_of(text) <= width:
        return text
    while width_of(text) > max(width - 2, 0):
        text = text[:-1]
    return f"{text}.."[:width]


def broken(line: Line, width: int) -> Iterator[Line]:
    """A line that is too long is broken before a name, whose value follows."""
    texts = [text for text, _ in line]
    whole = "".join(texts)
    measure = len if whole.isascii() else width_of
    if measure(whole) <= width:
        yield line
        return
    ends = [*accumulate(map(measure, texts)), measure(whole)]
    first, begins_at = 0, 0  # of the part at hand: which piece, and where it is
    for place in [place for place, text in enumerate(texts) if text.startswith("  ")]:
        blanks = len(texts[place + 1]) - len(texts[place + 1].rstrip()) if place + 1 < len(texts) else 0
        if ends[place + 1] - blanks - begins_at > width and place:
            yield [INDENT, *line[first:place]] if first else line[:place]
            first, begins_at = place, ends[place - 1] - len(INDENT[0])
    yield [INDENT, *line[first:]] if first else line
