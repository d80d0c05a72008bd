"""A process that does not come is named before the wait for it fails, with the line at which it is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("late_worker.py")


def test_who_is_late_is_told(tmp_path: Path) -> None:
    told = re.split(r"^ostinato: (?=training)", launch(WORKER, tmp_path), flags=re.M)[1:]
    assert len(told) == 2, "the run in which nobody was late is not mentioned"
    stopped, reading = told
    for message in told:
        assert re.match(r"training has stood still for [3-5] s; waits for other processes fail after 6 s\n", message)
        assert re.search(r"^  process 0: step [12], \w+.py:\d+ in \w+$", message, flags=re.M)
    assert "  process 1: does not answer; it was last at step 2, late_worker.py:" in stopped
    assert re.search(r"  process 1: step [12], late_worker.py:\d+ in __getitem__\n", reading)
