"""Write the golden files anew, from transformers: `python -m tests.golden.record`. Read the difference first."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import torch

from tests.support.golden_runs import RUNS
from tests.support.parity import run_one
from tests.support.records import is_time


def main() -> None:
    torch.set_num_threads(1)
    here = Path(__file__).parent
    events, numbers = {}, {}
    for name, script in RUNS.items():
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            record = run_one(script, "transformers")
        events[name] = [f"{event.global_step} {event.name}" for event in record.events]
        numbers[name] = [{k: v for k, v in entry.items() if not is_time(k)} for entry in record.log_history]
    (here / "events.json").write_text(json.dumps(events, indent=1) + "\n")
    (here / "logs.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
