"""Orders of events and loss curves on file: what a run does must not change by accident.

The files were written by transformers (`record.py`); these tests need only ostinato. Numbers are compared closely, not
bit for bit: they come from another machine.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.golden_runs import RUNS
from tests.support.parity import run_one
from tests.support.records import Record, is_time

HERE = Path(__file__).parent
EVENTS = json.loads((HERE / "events.json").read_text())
LOGS = json.loads((HERE / "logs.json").read_text())

_records: dict[str, Record] = {}


def run(name: str) -> Record:
    if name not in _records:
        _records[name] = run_one(RUNS[name], "ostinato")
    return _records[name]


def test_every_run_is_on_file() -> None:
    assert set(EVENTS) == set(LOGS) == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_order_of_events(name: str) -> None:
    assert [f"{event.global_step} {event.name}" for event in run(name).events] == EVENTS[name]


@pytest.mark.parametrize("name", RUNS)
def test_logged_numbers(name: str) -> None:
    logged = [{k: v for k, v in entry.items() if not is_time(k)} for entry in run(name).log_history]
    assert [list(entry) for entry in logged] == [list(entry) for entry in LOGS[name]]
    for entry, kept in zip(logged, LOGS[name], strict=True):
        assert entry == pytest.approx(kept, rel=1e-4)
