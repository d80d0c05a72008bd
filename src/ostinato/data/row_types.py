"""What may come in the place of a plain row on its way to the collator."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

RowKey: TypeAlias = int | tuple[str, int]  # the number of a row; in a mixture the set, and the number in it


class BadRow(NamedTuple):
    """In place of a row that could not be read."""

    index: int
    reason: str
    source: str | None = None  # the set of a mixture

    @property
    def key(self) -> RowKey:
        return self.index if self.source is None else (self.source, self.index)


class SetRow(NamedTuple):
    """A row, and the name of the set it comes from."""

    source: str
    row: Any


class StandIn(NamedTuple):
    """A row that a process got only because it would have had none; it counts for nothing."""

    row: Any


def bad_row(row: Any) -> BadRow | None:
    """A row that could not be read, be it one of a mixture."""
    if isinstance(row, BadRow):
        return row
    return row.row if isinstance(row, SetRow) and isinstance(row.row, BadRow) else None
