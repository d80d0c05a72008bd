"""Programs in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def launch(program: Path, *words: object, processes: int = 2, nodes: bool = False) -> str:
    """Run a program in so many processes that know of one another; what they wrote to standard error."""
    command = [sys.executable, str(Path(__file__).with_name("together.py")), *(["--nodes"] if nodes else [])]
    command += [str(processes), str(program), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr
