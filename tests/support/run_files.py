"""What a run leaves in its directory beside the journal and the page that every run leaves."""

from __future__ import annotations

import os
from pathlib import Path

OF_EVERY_RUN = ("events.jsonl", "report.html")


def listed(directory: str | Path) -> list[str]:
    """The names in a directory, in order, but for those two."""
    return sorted(name for name in os.listdir(directory) if name not in OF_EVERY_RUN)
