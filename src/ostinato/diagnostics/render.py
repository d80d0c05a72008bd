"""Render sections of aligned rows as plain text, Markdown, HTML or a tree for a terminal."""

from __future__ import annotations

import dataclasses
import html
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.tree import Tree

WIDTH = 100
_INDENT, _GAP = " " * 5, "  "
_MAX_NAMES = 8  # in a list of names
_MIN_WIDTH = 24  # of a column that has to make room

Mark = Literal["", "mistake", "warning"]
_STYLES: dict[Mark, str] = {"": "bold", "mistake": "bold red", "warning": "bold yellow"}
_SIGNS: dict[Mark, str] = {"": "", "mistake": "X", "warning": "!"}


@dataclass(frozen=True)
class Section:
    """A heading with a sentence, followed by rows of cells and by lines of text."""

    title: str
    summary: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    mark: Mark = ""


@dataclass(frozen=True)
class Page:
    """A title and sections, before they are rendered."""

    title: str
    sections: tuple[Section, ...]


class Printable:
    """A frozen dataclass that can be rendered; `build_page` returns what to render.

    >>> print(trainer.plan())  # doctest: +SKIP
    >>> trainer.plan().to_json()  # doctest: +SKIP
    """

    def build_page(self) -> Page:
        """Return the page to render."""
        raise NotImplementedError

    def __str__(self) -> str:
        return render_text(self.build_page())

    def __repr__(self) -> str:  # what a console shows of a value
        return str(self)

    def to_markdown(self) -> str:
        """Return the page as Markdown, with a table for every section."""
        return render_markdown(self.build_page())

    def to_dict(self) -> dict[str, Any]:
        """Return the data behind the page, as plain dicts and lists."""
        return _to_plain(self)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the data behind the page as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def _repr_html_(self) -> str:  # what a notebook shows of a value
        return render_html(self.build_page())

    def __rich__(self) -> Tree:  # what rich prints
        return render_tree(self.build_page())


def _to_plain(value: Any) -> Any:
    """Convert dataclasses to dicts, tuples to lists, and values that JSON does not have to text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _to_plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _to_plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(one) for one in value]
    if isinstance(value, Enum):
        return _to_plain(value.value)
    if isinstance(value, float) and value - value != 0:  # NaN or infinite: JSON has neither
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


# ---- plain text -------------------------------------------------------------------------------------------------


def render_text(page: Page, width: int = WIDTH) -> str:
    """Render the page in lines of at most `width` characters, as far as words allow.

    >>> print(render_text(Page("Title", (Section("rows", "two", (("a", "1"), ("bc", "2"))),))))
    Title
    <BLANKLINE>
    1  rows  two
         a   1
         bc  2
    """
    lines = [page.title]
    widest = max((len(section.title) for section in page.sections), default=0)
    for number, section in enumerate(page.sections, start=1):
        lines += ["", *_render_section(section, number, widest, width)]
    return "\n".join(line.rstrip() for line in lines)


def _render_section(section: Section, number: int, widest: int, width: int) -> Iterator[str]:
    yield from _render_heading(section, number, widest, width)
    widths = _fit_widths(section.rows, width)
    for row in section.rows:
        yield from _render_row(row, widths)
    for note in section.notes:
        yield from textwrap.wrap(note, width, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _render_heading(section: Section, number: int, widest: int, width: int) -> list[str]:
    start = f"{_SIGNS[section.mark] or number:<3}{section.title:<{widest}}{_GAP}"
    return textwrap.wrap(section.summary, width, initial_indent=start, subsequent_indent=" " * len(start)) or [start]


def _fit_widths(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """Return the width of each column: that of its widest cell, unless wide columns have to make room."""
    count = max((len(row) for row in rows), default=0)
    widths = [max((len(row[place]) for row in rows if len(row) > place), default=0) for place in range(count)]
    room = width - len(_INDENT) - len(_GAP) * (count - 1)
    while sum(widths) > room and max(widths[1:], default=0) > _MIN_WIDTH:
        widest = max(range(1, count), key=widths.__getitem__)
        second = max((each for place, each in enumerate(widths[1:], start=1) if place != widest), default=0)
        widths[widest] = max(widths[widest] - (sum(widths) - room), second - 1, _MIN_WIDTH)
    return widths


def _render_row(row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    cells = [
        textwrap.wrap(cell, max(each, 1), break_long_words=False) for cell, each in zip(row, widths, strict=False)
    ]
    for number in range(max(map(len, cells), default=0)):
        parts = (lines[number] if number < len(lines) else "" for lines in cells)
        yield _INDENT + _GAP.join(f"{part:<{each}}" for part, each in zip(parts, widths, strict=False))


# ---- Markdown and HTML --------------------------------------------------------------------------------------------


def render_markdown(page: Page) -> str:
    """Render the page for a README, an issue or a chat."""
    blocks = [f"# {page.title}"]
    for number, section in enumerate(page.sections, start=1):
        blocks.append(f"## {_SIGNS[section.mark] or number}. {section.title}")
        if section.summary:
            blocks.append(_escape(section.summary))
        if section.rows:
            blocks.append(_render_table(section.rows))
        if section.notes:
            blocks.append("\n".join(f"- {_escape(note)}" for note in section.notes))
    return "\n\n".join(blocks) + "\n"


def _render_table(rows: Sequence[tuple[str, ...]]) -> str:
    count = max(len(row) for row in rows)
    lines = [f"|{' |' * count}", f"|{' --- |' * count}"]
    for row in rows:
        cells = [f"`{row[0]}`", *(_escape(cell) for cell in row[1:]), *[""] * (count - len(row))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _escape(text: str) -> str:
    for sign in "\\|*_<`[":
        text = text.replace(sign, f"\\{sign}")
    return text


def render_html(page: Page) -> str:
    """Render the page for a notebook."""
    parts = [f"<h4>{html.escape(page.title)}</h4>"]
    for number, section in enumerate(page.sections, start=1):
        head = f"{_SIGNS[section.mark] or number}. {section.title}"
        parts.append(f"<p><b>{html.escape(head)}</b> {html.escape(section.summary)}</p>")
        if section.rows:
            rows = (
                "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in r) for r in section.rows
            )
            parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
        parts += [f"<p>{html.escape(note)}</p>" for note in section.notes]
    return f"<div>{''.join(parts)}</div>"


# ---- a tree for a terminal ----------------------------------------------------------------------------------------


def render_tree(page: Page) -> Tree:
    """Render the page for a terminal, in colours."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415
    from rich.tree import Tree  # noqa: PLC0415

    tree = Tree(Text(page.title, style="bold"), guide_style="dim")
    widest = max((len(section.title) for section in page.sections), default=0)
    for number, section in enumerate(page.sections, start=1):
        head = Table.grid(padding=(0, 2))
        title = Text(f"{_SIGNS[section.mark] or number:<3}{section.title:<{widest}}", style=_STYLES[section.mark])
        head.add_row(title, Text(section.summary))
        branch = tree.add(head)
        if section.rows:
            table, count = Table.grid(padding=(0, 2)), max(len(row) for row in section.rows)
            for place in range(count):
                table.add_column(style=None if place == 0 else "cyan" if place < count - 1 else "dim", overflow="fold")
            for row in section.rows:
                table.add_row(*map(Text, row))
            branch.add(table)
        for note in section.notes:
            branch.add(Text(note))
    return tree


# ---- words --------------------------------------------------------------------------------------------------------


def join_names(names: Sequence[str], most: int = _MAX_NAMES) -> str:
    """Join names, as in `a, b and 3 more`.

    >>> join_names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def format_count(number: int, word: str) -> str:
    """Return a number with its noun, as in `24,000 rows`.

    >>> format_count(1, "row"), format_count(24_000, "row"), format_count(2, "batch")
    ('1 row', '24,000 rows', '2 batches')
    """
    return f"{number:,} {word}{'' if number == 1 else 'es' if word.endswith(('s', 'ch')) else 's'}"


def format_percent(share: float | None) -> str:
    """Return a share in percent, as in `27 %`.

    >>> format_percent(0.274), format_percent(0.001)
    ('27 %', 'less than 1 %')
    """
    share = share or 0.0
    return "less than 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def format_small_percent(share: float) -> str:
    """Return a share that may be very small in percent.

    >>> format_small_percent(0.0357), format_small_percent(0.00064), format_small_percent(0.0000001)
    ('3.57 %', '0.06 %', 'less than 0.01 %')
    """
    return "less than 0.01 %" if 0 < share < 0.0001 else f"{share * 100:.2f} %"
