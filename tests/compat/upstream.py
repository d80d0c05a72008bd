"""Run a library's own tests on transformers and on Ostinato, and compare what passes.

    python tests/compat/upstream.py PATH_OF_TESTS [PYTEST_OPTION ...]

The tests are the library's, of the version that is installed, unpacked outside this repository. A test that fails on
transformers too (it needs the hub, a GPU, another version) does not count. Exit code 1: less than 98 % of those that
pass on transformers pass here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

SOURCE = Path(__file__).parents[2] / "src"
ENOUGH = 0.98


def main() -> int:
    """Print the table, and the tests that pass on transformers alone."""
    tests, options = Path(sys.argv[1]).resolve(), sys.argv[2:]
    theirs = run(tests, options)
    ours = run(tests, ["-p", "ostinato.dropin", *options])  # first: plugins may import the library
    counted = [name for name, outcome in theirs.items() if outcome == "passed"]
    lost = [name for name in counted if ours.get(name) != "passed"]

    print(f"{'file':60} {'transformers':>12} {'ostinato':>9}")
    for file in sorted({name.partition("::")[0] for name in counted}):
        of_file = [name for name in counted if name.partition("::")[0] == file]
        print(f"{file:60} {len(of_file):12} {sum(name not in lost for name in of_file):9}")
    for name in lost:
        print(f"lost: {name} ({ours.get(name, 'not run')})")
    print(f"not counted: {dict(Counter(outcome for outcome in theirs.values() if outcome != 'passed'))}")
    share = 1 - len(lost) / len(counted) if counted else 0.0
    print(f"{len(counted) - len(lost)} of {len(counted)} pass ({share:.1%})")
    return 0 if share >= ENOUGH else 1


def run(tests: Path, options: list[str]) -> dict[str, str]:
    """Return the outcome of every test."""
    directory = tests if tests.is_dir() else tests.parent
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", str(tests), f"--junitxml={report}", "-p", "no:cacheprovider"]
        subprocess.run(
            [*command, *options],
            cwd=directory.parent,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(SOURCE), str(directory.parent), os.environ.get("PYTHONPATH", "")]),
                "HF_HUB_OFFLINE": "1",
                "OSTINATO_DEFAULTS": "isolate_rng=false",
            },
            stdout=subprocess.DEVNULL,
        )
        cases = ElementTree.parse(report).iter("testcase")
        return {f"{case.get('classname')}::{case.get('name')}": outcome(case) for case in cases}


def outcome(case: ElementTree.Element) -> str:
    """Return "passed", or what pytest says of a test instead."""
    return next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "passed")


if __name__ == "__main__":
    sys.exit(main())
