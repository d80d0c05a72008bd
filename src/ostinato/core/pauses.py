"""The time for which a run was paused in this process, which is no part of the length of its steps."""

from __future__ import annotations

_seconds = 0.0


def add_pause(seconds: float) -> None:
    """Add the seconds of a pause."""
    global _seconds
    _seconds += seconds


def get_paused_seconds() -> float:
    """Return the seconds of all pauses since the process began."""
    return _seconds
