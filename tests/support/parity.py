"""Run one script through both libraries and compare."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.apis import Api, guest
from tests.support.records import Record, assert_same_run, record_of
from tests.support.references import recall


def run_one(script: Callable[[Api], Any], name: str) -> Record:
    """Run a script with one library in a directory of its own.

    The script builds its model and data itself, so each library gets fresh ones; the global generators start at the
    same seed. What transformers does may come from a recording (`references.py`).
    """
    if name == "transformers":
        return recall(lambda: run_live(script, name), script)
    return run_live(script, name)


def run_live(script: Callable[[Api], Any], name: str) -> Record:
    """Run a script now."""
    with tempfile.TemporaryDirectory() as directory, guest(name):
        api = Api(name, Path(directory))
        api.set_seed(42)
        return record_of(api, script(api))


def run_both(script: Callable[[Api], Any]) -> tuple[Record, Record]:
    """The records of transformers and of ostinato, in this order."""
    return run_one(script, "transformers"), run_one(script, "ostinato")


def check_parity(script: Callable[[Api], Any]) -> tuple[Record, Record]:
    """Both libraries do the same, bit for bit; the records are returned for further questions."""
    theirs, ours = run_both(script)
    assert_same_run(theirs, ours)
    return theirs, ours
