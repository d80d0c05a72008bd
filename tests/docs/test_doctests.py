"""The examples in the docstrings run, in a process of their own: some replace names of transformers for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_examples_run() -> None:
    examples = Path(__file__).with_name("docstring_examples.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(examples)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
