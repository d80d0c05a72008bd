"""The types that may replace a plain row on its way to the collator."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

RowKey: TypeAlias = int | tuple[str, int]  # the number of a row; in a mixture the set, and the number in it


class BadRow(NamedTuple):
    """A replacement for a row that could not be read."""

    index: int
    reason: str
    source: str | None = None  # its set, in a mixture

    @property
    def key(self) -> RowKey:
        return self.index if self.source is None else (self.source, self.index)


class SetRow(NamedTuple):
    """A row, and the name of the set it comes from."""

    source: str
    row: Any


class PaddingRow(NamedTuple):
    """A row for a process that would otherwise have none; it makes a padding batch and counts nowhere."""

    row: Any


def find_bad_row(row: Any) -> BadRow | None:
    """Return the row if it could not be read, also as a row of a mixture; None otherwise."""
    if isinstance(row, BadRow):
        return row
    return row.row if isinstance(row, SetRow) and isinstance(row.row, BadRow) else None
