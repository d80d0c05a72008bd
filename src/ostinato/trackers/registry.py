"""Build the callbacks that `report_to` names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..arguments.tracker_names import KNOWN, is_installed, make_missing_error
from ..callbacks.events import TrainerCallback, is_callback_of
from . import find_callback_class


def build_trackers(report_to: Any, given: Iterable[Any] | None) -> list[TrainerCallback]:
    """Return a callback for each tracker, except for those that the user has passed."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    found: list[TrainerCallback] = []
    for name in names:
        if name == "none":
            continue
        if name in KNOWN and not is_installed(name):
            raise make_missing_error(name)
        kind = find_callback_class(name)
        if not (isinstance(kind, type) and any(is_callback_of(one, kind) for one in given or ())):
            found.append(kind())
    return found
