"""Write the golden files anew, from transformers: `python tests/golden/record.py`. Read the difference first."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import torch
from both import run_one
from golden_runs import RUNS
from recording import is_time


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
