"""Processes that torch's agent starts on this host, restarts and watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


class Place(NamedTuple):
    """Where several hosts meet."""

    host: str
    port: int
    is_here: bool


class Failure(NamedTuple):
    """The process that failed first."""

    rank: int
    code: int  # negative: the signal that ended it
    message: list[str]


def start_processes(
    command: Sequence[str], count: int, nodes: tuple[int, int], place: Place | None, *, job: str, restarts: int
) -> Failure | int:
    """Run a command in `count` processes on this host and wait; return an exit code, or what failed.

    `nodes` are the smallest and the largest number of hosts; without a `place`, there is one.
    """
    config = LaunchConfig(
        min_nodes=nodes[0],
        max_nodes=nodes[1],
        nproc_per_node=count,
        run_id=job,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0" if place is None else f"{place.host}:{place.port}",
        rdzv_configs={"is_host": place is None or place.is_here},
        max_restarts=restarts,
        local_addr="localhost" if place is None else None,
        logs_specs=DefaultLogsSpecs(),
    )
    program, *words = command
    try:
        elastic_launch(config, program)(*words)
    except ChildFailedError as error:
        rank, first = error.get_first_failure()
        message = first.message if isinstance(first.message, str) else first.message.get("message", "")
        told = [] if not message or message.startswith(("To enable traceback", "Signal")) else message.splitlines()
        return Failure(rank, first.exitcode, told)
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0
