"""How long a run was told to pause in this process: time that says nothing of how long its steps are."""

from __future__ import annotations

_seconds = 0.0


def count_pause(seconds: float) -> None:
    """Told by whoever made a run wait."""
    global _seconds
    _seconds += seconds


def seconds_paused() -> float:
    """All pauses since the process began."""
    return _seconds
