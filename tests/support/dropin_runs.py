"""One script in two processes: on transformers as it is, and under `import ostinato.dropin`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.references import recall

SOURCE = Path(__file__).parents[2] / "src"
_END = """
import json as _json
print("RESULT", _json.dumps(result, default=str))
"""


class Ended(NamedTuple):
    """What a script left in `result`, and what it wrote to standard error."""

    result: Any
    said: str


def run_script(script: str, directory: Path, *, dropin: bool, **environment: str) -> Ended:
    """Run a script that sets `result`, in a process and a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    text = ("import ostinato.dropin\n" if dropin else "") + textwrap.dedent(script) + _END
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment},
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
    assert ended.returncode == 0 and lines, ended.stdout + ended.stderr
    return Ended(json.loads(lines[-1].partition(" ")[2]), ended.stderr)


def run_both_ways(script: str, directory: Path, **environment: str) -> tuple[Ended, Ended]:
    """Return what a script left on transformers, and how it ended under the drop-in."""
    theirs = recall(
        lambda: run_script(script, directory / "transformers", dropin=False, **environment).result,
        name="script",
        code=[script, *sorted(f"{name}={value}" for name, value in environment.items())],
    )
    return Ended(theirs, said=""), run_script(script, directory / "ostinato", dropin=True, **environment)
