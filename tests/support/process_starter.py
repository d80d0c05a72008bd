"""Runs programs in several processes each, connected as torchrun connects them: `process_starter.py MODULE...`

The modules are imported once, and so is what a program imports itself, before its processes part: that takes longer
than most of what is tested. Requests are lines of JSON on the standard input (`launcher.py` writes them); the answer
to each is the exit code. `{rank}` in a word is the number of the process. With `nodes`, each has a machine of its own.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # what was imported needs no collecting, in no copy
    while line := sys.stdin.readline():
        asked = json.loads(line)
        process = os.fork()
        if process == 0:
            _leave(asked)
            _run(Path(asked["program"]), asked["words"], asked["processes"], nodes=asked["nodes"])
            return  # as a program ends
        sys.stdout.write(f"{_code_of(process, asked['seconds'])}\n")
        sys.stdout.flush()


def _leave(asked: dict[str, Any]) -> None:
    """Become what a new process would be: a group, streams, variables and a directory of its own."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(asked["output"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])


def _code_of(process: int, seconds: float) -> int:
    """Wait for a program; what it leaves behind, or what takes too long, is killed with its group."""
    until = time.monotonic() + seconds
    ended = 0
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        time.sleep(0 if ended else 0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def _run(program: Path, words: list[str], processes: int, *, nodes: bool) -> None:
    _import_ahead(program)
    if processes == 1:
        _install_device()
        sys.argv = [str(program), *(word.replace("{rank}", "0") for word in words)]
        runpy.run_path(str(program), run_name="__main__")
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started: dict[int, int] = {}
    for rank in range(processes):
        process = os.fork()
        if process == 0:
            local = {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1} if nodes else {"LOCAL_RANK": rank}
            facts = {"RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, **local}
            facts |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in facts.items()})
            _install_device()
            sys.argv = [str(program), *(word.replace("{rank}", str(rank)) for word in words)]
            runpy.run_path(str(program), run_name="__main__")
            return
        started[process] = rank
    _wait_for(started)


def _install_device() -> None:
    """Give this copy the device of the tests, if they have one: what has no device does not import it."""
    if "OSTINATO_TEST_DEVICE" in os.environ:
        importlib.import_module("tests.support.device_session").install_here()


def _import_ahead(program: Path) -> None:
    """What stands at the top of a program, also what it tries to import."""
    body = ast.parse(program.read_text()).body
    tried = [inner for statement in body if isinstance(statement, ast.Try) for inner in statement.body]
    for statement in [*body, *tried]:
        names = [one.name for one in statement.names] if isinstance(statement, ast.Import | ast.ImportFrom) else []
        module = statement.module if isinstance(statement, ast.ImportFrom) else None
        for name in names:
            with contextlib.suppress(ImportError, AttributeError):
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
