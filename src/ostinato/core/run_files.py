"""Names of the files that a run leaves in its directory beside its checkpoints."""

from __future__ import annotations

JOURNAL_NAME = "events.jsonl"
REPORT_NAME = "report.html"
VERIFY_DIRECTORY = ".verify-resume"  # of `verify_resume`, removed when it is done
