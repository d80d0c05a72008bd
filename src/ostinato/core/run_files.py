"""The names of the files that a run writes to its directory beside its checkpoints."""

from __future__ import annotations

JOURNAL_NAME = "events.jsonl"
REPORT_NAME = "report.html"
VERIFY_DIRECTORY = ".verify-resume"  # of `verify_resume`, removed at its end
