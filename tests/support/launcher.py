"""Programs in several processes, which are copies of one that has imported what takes longest."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.device_session import ROOT, VARIABLE

MOST = ("torch._dynamo", "ostinato.trainer")  # torch's optimizers import the first of them when they are first used


class Starter:
    """A process that has imported something, and makes copies of itself that run programs (`process_starter.py`)."""

    def __init__(self, imports: tuple[str, ...], environment: Mapping[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).with_name("process_starter.py")), *imports]
        # A device cannot be used by copies of a process that has one: each copy gets its own.
        own = {name: value for name, value in environment.items() if name != VARIABLE}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own)
        atexit.register(self.close)

    def run(
        self,
        program: Path,
        *words: object,
        processes: int,
        nodes: bool,
        seconds: float,
        environment: Mapping[str, str],
    ) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            asked = {"program": str(program), "words": list(map(str, words)), "processes": processes, "nodes": nodes}
            asked |= {"environment": dict(environment), "directory": os.getcwd(), "output": folder}
            asked |= {"seconds": seconds}
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            code = self.process.stdout.readline()
            assert code, f"the process that starts others ended with {self.process.wait()}"
            out, err = (Path(folder, name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([str(program), *asked["words"]], int(code), out, err)

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


_starters: dict[tuple[Any, ...], Starter] = {}


def run(
    program: Path,
    *words: object,
    processes: int = 1,
    nodes: bool = False,
    imports: tuple[str, ...] = MOST,
    seconds: float = 280,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a program in so many processes that know of one another, and wait for it so many seconds at most.

    It begins as a process that has only the `imports`, with this `environment`, whatever the process of the tests has
    done; and it leaves no process behind.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment}
    kind = (imports, *sorted(environment.items()))  # modules read variables when they are imported
    if kind not in _starters:
        _starters[kind] = Starter(imports, variables)
    options: Any = {"processes": processes, "nodes": nodes, "seconds": seconds, "environment": variables}
    return _starters[kind].run(program, *words, **options)


def launch(program: Path, *words: object, processes: int = 2, nodes: bool = False) -> str:
    """Run a program that has to succeed; what its processes wrote to standard error."""
    done = run(program, *words, processes=processes, nodes=nodes)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr
