"""Start a script in several processes, on one host or on several: torchrun with defaults.

  ostinato launch train.py ...                    a process for each device; without devices, one for each two cores
  ostinato launch --nproc 4 train.py ...
  ostinato launch --nproc 2 exec run_glue.py ...  a script written for transformers
  ostinato launch --nproc 2 train text-classification ...
  ostinato launch -m package.train ...
  ostinato launch --nnodes 2 --host node0:29400 train.py ...     on each of two hosts
  ostinato launch --nnodes 1:4 --host node0:29400 train.py ...   on one to four hosts, which may come and go

A process that dies is restarted with the others, up to --restarts times, and training goes on from the newest
checkpoint. Output of all processes appears as it is; errors are those of the process that failed first.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import ConfigError
from .script_runner import WRONG_COMMAND_LINE, describe_missing_script, read_count, read_number, refuse

if TYPE_CHECKING:
    from ..strategies.launcher import Failure

SUMMARY = "start a script in several processes, on one host or on several"
_PORT = 29400
_HOST = re.compile(r"(\[(?P<address>[^]]+)]|(?P<name>[^][:]+))(:(?P<port>\d+))?")
_OWN = ("exec", "train")  # commands of ours that can be started in several processes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nproc", type=read_count, help="processes on this host")
    parser.add_argument("--nnodes", default="1", metavar="N|MIN:MAX", help="hosts (default 1)")
    parser.add_argument("--host", metavar="NAME[:PORT]", help="the host at which several hosts meet, one of them")
    parser.add_argument("--job", default="ostinato", help="the name of the job, the same on all hosts")
    parser.add_argument("--restarts", type=read_number, default=3, help="how often all are restarted (default 3)")
    parser.add_argument("--threads", type=read_count, help="threads of a process (default: its share of the cores)")
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", nargs="?", help="a Python file, with -m a module; or: exec SCRIPT, train TASK")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(options: argparse.Namespace) -> int:
    if options.script is None:
        return refuse("no script is named: ostinato launch SCRIPT ARGUMENTS...", WRONG_COMMAND_LINE)
    is_own = options.script in _OWN and not options.is_module
    if not is_own and not options.is_module and not Path(options.script).is_file():
        return refuse(describe_missing_script(options.script), WRONG_COMMAND_LINE)
    try:
        fewest, most = _read_nodes(options.nnodes)
        host = _read_host(options.host) if options.host is not None else None
    except ValueError as error:
        return refuse(str(error), WRONG_COMMAND_LINE)
    if most > 1 and host is None:
        return refuse(
            "several hosts need a place to meet: --host NAME:PORT, one of them, the same on all", WRONG_COMMAND_LINE
        )
    count = options.nproc or _count_places()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads or max((os.cpu_count() or 1) // count, 1)))
    return _launch(options, count, (fewest, most), host, is_own=is_own)


def _launch(
    options: argparse.Namespace, count: int, nodes: tuple[int, int], host: tuple[str, int] | None, *, is_own: bool
) -> int:
    from ..strategies.launcher import Failure, Place, start_processes  # noqa: PLC0415

    place = None
    if host is not None:
        place = Place(*host, is_here=_is_this_host(host[0]))
        if place.is_here and (problem := _find_port_problem(place.port)):
            return refuse(problem, 1)
    words = [options.script, *options.arguments]
    if is_own:
        words = ["-m", "ostinato", *words]
    elif options.is_module:
        words = ["-m", *words]
    command = [sys.executable, "-u", *words]
    try:
        ended = start_processes(command, count, nodes, place, job=options.job, restarts=options.restarts)
    except ConfigError as error:
        return refuse(str(error), 1)
    return _tell_failure(ended) if isinstance(ended, Failure) else ended


def _tell_failure(failure: Failure) -> int:
    """Say which process failed first and how; return its exit code. The others were ended because of it."""
    how = (
        f"ended with code {failure.code}" if failure.code > 0 else f"was ended by {signal.Signals(-failure.code).name}"
    )
    lines = [f"rank {failure.rank} {how}, and the others after it", *failure.message]
    print("ostinato launch: " + "\n  ".join(lines), file=sys.stderr)
    return failure.code if failure.code > 0 else 128 - failure.code


def _count_places() -> int:
    """Return the number of devices of this host; without any, one process for each two cores."""
    import torch  # noqa: PLC0415

    devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    return devices or max((os.cpu_count() or 1) // 2, 1)


def _read_nodes(word: str) -> tuple[int, int]:
    """Return the smallest and the largest number of hosts.

    >>> _read_nodes("2"), _read_nodes("1:4")
    ((2, 2), (1, 4))
    """
    fewest, colon, most = word.partition(":")
    try:
        found = int(fewest), int(most if colon else fewest)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1]:
        raise ValueError(f"--nnodes {word} is not a number of hosts: 2, or 1:4 for one to four")
    return found


def _read_host(word: str) -> tuple[str, int]:
    """Return a host and the port at which hosts meet.

    >>> _read_host("node0"), _read_host("[fd00::1]:29500")
    (('node0', 29400), ('fd00::1', 29500))
    """
    found = _HOST.fullmatch(word)
    port = int(found["port"] or _PORT) if found is not None else 0
    if found is None or not 0 < port < 2**16:
        raise ValueError(f"--host {word} is not a host: NAME, or NAME:PORT with a port of 1 to 65535")
    return found["address"] or found["name"], port


def _is_this_host(name: str) -> bool:
    """Return whether a name or an address is one of this host's: an address can be bound here, or it is not."""
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError:
        return name == socket.gethostname()
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False


def _find_port_problem(port: int) -> str | None:
    """Return what to do if another program listens at the port at which hosts are to meet."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return f"port {port} cannot be used ({error.strerror}): choose another, the same on all hosts, in --host"
    return None
