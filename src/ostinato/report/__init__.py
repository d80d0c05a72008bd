"""Pages made from journals: a page of one run, and a page that compares several.

Reads `events.jsonl`, or `trainer_state.json` if a run has no journal, and does not depend on trainers. Names are
loaded when they are first used: the trainer needs a page only at the end of a run, and importing it stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import compare_runs, find_first_difference
    from .journal_reader import RunRecord, read_run
    from .run_page import write_report

__all__ = ["RunRecord", "compare_runs", "find_first_difference", "read_run", "write_report"]

_MODULE_OF = {
    "RunRecord": "journal_reader",
    "read_run": "journal_reader",
    "write_report": "run_page",
    "compare_runs": "compare",
    "find_first_difference": "compare",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
