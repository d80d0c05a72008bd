"""The callbacks that `report_to` asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..arguments.tracker_names import KNOWN, is_installed, missing
from ..callbacks.events import TrainerCallback
from . import callback_class


def trackers(report_to: Any, given: Iterable[Any] | None) -> list[TrainerCallback]:
    """One for each tracker, but for those that the user made and handed over."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    found: list[TrainerCallback] = []
    for name in names:
        if name == "none":
            continue
        if name in KNOWN and not is_installed(name):
            raise missing(name)
        kind = callback_class(name)
        if not any(one is kind or (isinstance(kind, type) and isinstance(one, kind)) for one in given or ()):
            found.append(kind())
    return found
