"""Runs a program in several processes, connected as torchrun connects them: `together.py COUNT PROGRAM WORD...`

What the program imports is imported once, before the processes part: that takes longer than most of what is tested.
`{rank}` in a word is the number of the process. With `--nodes` before the count, each has a machine of its own.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import runpy
import signal
import socket
import sys
from pathlib import Path


def main() -> None:
    words = sys.argv[1:]
    nodes = words[0] == "--nodes"
    count, program, *words = words[nodes:]
    sys.path.insert(0, str(Path(program).parent))
    _import_ahead(Path(program))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = int(count)
    started: dict[int, int] = {}
    for rank in range(processes):
        process = os.fork()
        if process == 0:
            local = {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1} if nodes else {"LOCAL_RANK": rank}
            facts = {"RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, **local}
            facts |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in facts.items()} if processes > 1 else {})
            sys.argv = [program, *(word.replace("{rank}", str(rank)) for word in words)]
            runpy.run_path(program, run_name="__main__")
            return
        started[process] = rank
    _wait_for(started)


def _import_ahead(program: Path) -> None:
    """What stands at the top of a program, and is not of its own folder."""
    for statement in ast.parse(program.read_text()).body:
        names = [one.name for one in statement.names] if isinstance(statement, ast.Import | ast.ImportFrom) else []
        module = statement.module if isinstance(statement, ast.ImportFrom) else None
        for name in names:
            with contextlib.suppress(ImportError, AttributeError):
                if (program.parent / f"{module or name}.py").exists():
                    continue
                found = importlib.import_module(module or name)
                if module is not None:
                    getattr(found, name)  # of packages that load their parts when they are asked for


def _wait_for(started: dict[int, int]) -> None:
    """The first that fails ends the others."""
    failed = None
    while started:
        process, status = os.wait()
        rank, code = started.pop(process), os.waitstatus_to_exitcode(status)
        if code and failed is None:
            failed = f"process {rank} ended with {code}"
            for other in started:
                os.kill(other, signal.SIGTERM)
    if failed is not None:
        raise SystemExit(failed)


if __name__ == "__main__":
    main()
