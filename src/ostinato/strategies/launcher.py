"""Processes that torch's agent starts on this host, restarts and watches."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import NamedTuple

from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousError, RendezvousTimeoutError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ..core.errors import ConfigError
from .failure_record import find_first_failure


class Place(NamedTuple):
    """Where several hosts meet."""

    host: str
    port: int
    is_here: bool

    @property
    def endpoint(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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

    Raises:
        ConfigError: The hosts do not meet.
    """
    if place is not None:
        # torch publishes the address of a store that attempts share once, before the first of them: a host that joins
        # later, or comes back, would wait for it and end. With a store for each attempt there is an address for each.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    config = LaunchConfig(
        min_nodes=nodes[0],
        max_nodes=nodes[1],
        nproc_per_node=count,
        run_id=job,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0" if place is None else place.endpoint,
        rdzv_configs={"is_host": place is None or place.is_here},
        max_restarts=restarts,
        local_addr="localhost" if place is None else _find_own_address(place),
        logs_specs=DefaultLogsSpecs(),
    )
    program, *words = command
    try:
        elastic_launch(config, program)(*words)
    except ChildFailedError as error:
        rank = find_first_failure(error.failures)
        first = error.failures[rank]
        message = first.message if isinstance(first.message, str) else first.message.get("message", "")
        told = [] if not message or message.startswith(("To enable traceback", "Signal")) else message.splitlines()
        return Failure(rank, first.exitcode, told)
    except SignalException as error:
        return 128 + int(error.sigval)
    except (RendezvousError, DistNetworkError, DistStoreError) as error:
        raise _build_meeting_error(place, nodes[0], error) from error
    return 0


def _build_meeting_error(place: Place | None, fewest: int, error: Exception) -> ConfigError:
    where = "this host" if place is None else place.endpoint
    if isinstance(error, RendezvousTimeoutError):
        return ConfigError(
            what=f"fewer than {fewest} hosts came to {where} in time",
            why=str(error),
            fix="start the same command on every host; --nnodes MIN:MAX begins with fewer",
        )
    return ConfigError(
        what=f"the processes that are to meet at {where} cannot do so, or not any more",
        why=str(error.__cause__ or error).splitlines()[0],
        fix="start the command on the host of --host too, with the same port, and see that the others reach it; "
        "if that host was lost, start the job anew on all of them",
    )


def _find_own_address(place: Place) -> str | None:
    """Return an address of this host that the others can reach; None, torch's own choice, if none is found.

    torch takes the name of the host, which others need not be able to resolve. They know the name of the place; and an
    address on the way there is one that leads back.
    """
    if place.is_here:
        return place.host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:  # a datagram socket that is connected has sent nothing
            probe.connect(address)
            return probe.getsockname()[0]
    except OSError:
        return None
