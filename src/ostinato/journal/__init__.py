"""The journal of a run: one line of JSON per event in `events.jsonl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import journal_callback, run_journal
else:
    __getattr__ = load_on_use(__name__)
