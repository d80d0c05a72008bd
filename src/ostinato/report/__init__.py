"""Pages made from journals: a page of one run, and a page that compares several.

Reads `events.jsonl`, or `trainer_state.json` if a run has no journal, and does not depend on trainers. Modules load on
use: a trainer needs a page only at the end of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from .compare import compare_runs, find_first_difference
    from .journal_reader import RunRecord, read_run
    from .run_page import write_report
else:
    __getattr__ = load_on_use(
        __name__,
        {
            "compare": ["compare_runs", "find_first_difference"],
            "journal_reader": ["RunRecord", "read_run"],
            "run_page": ["write_report"],
        },
    )

__all__ = ["RunRecord", "compare_runs", "find_first_difference", "read_run", "write_report"]
