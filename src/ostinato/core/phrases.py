"""Phrases for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_LISTED = 6  # things of a kind that a sentence lists


def format_items(word: str, things: list[Any]) -> str:
    """Return items with their noun, as in `row 3` or `rows 3, 5, 8, … (12 in all)`."""
    shown = ", ".join(str(thing) for thing in things[:MAX_LISTED])
    if len(things) > MAX_LISTED:
        shown += f", … ({len(things)} in all)"
    return f"{word} {shown}" if len(things) == 1 else f"{word}s {shown}"


def join_names(names: Iterable[str]) -> str:
    """Return names separated by commas, as in `x, labels`; `nothing` if there are none."""
    return ", ".join(names) or "nothing"
