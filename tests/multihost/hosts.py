"""Two hosts on this machine: network namespaces with addresses of their own, joined by a cable that can be cut.

Nothing leaves the namespaces. Linux, iproute2 and root are needed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

NETWORK = "10.213.77"


def find_obstacle() -> str | None:
    """Return why there can be no hosts here; None if there can."""
    if sys.platform != "linux":
        return "it needs Linux: hosts are network namespaces"
    if os.geteuid() != 0:
        return "it needs root, to make network namespaces: sudo make multihost"
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            return f"it needs {program!r}: apt-get install {package}"
    made = subprocess.run(["ip", "netns", "add", f"probe-{os.getpid()}"], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    run("ip", "netns", "delete", f"probe-{os.getpid()}")
    return None


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@dataclass
class Host:
    """One host. Its name is its address, which every program can resolve."""

    number: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def space(self) -> str:
        return f"ostinato-{os.getpid()}-{self.number}"

    @property
    def cable(self) -> str:
        return f"cable{self.number}"

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a command on the host; its output is added to `log`."""
        named = ["sh", "-c", 'hostname "$0" && exec "$@"', self.address, *command]
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.space, "unshare", "--uts", *named],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process

    def set_cable(self, state: str) -> None:
        """Plug the cable in ("up"), or out ("down")."""
        run("ip", "-n", self.space, "link", "set", self.cable, state)

    def list_processes(self) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self.space], check=True, capture_output=True, text=True)
        return list(map(int, found.stdout.split()))

    def kill(self) -> None:
        """End every process of the host, as a power cut does."""
        while running := self.list_processes():
            for process in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)
        for process in self.started:
            process.wait()
        self.started.clear()


@contextmanager
def open_hosts() -> Iterator[tuple[Host, Host]]:
    """Make two hosts, and remove them and their processes at the end."""
    hosts = Host(1), Host(2)
    with suppress_leftovers(hosts):
        for host in hosts:
            run("ip", "netns", "add", host.space)
        first, second = hosts
        run(
            *("ip", "-n", first.space, "link", "add", first.cable, "type", "veth"),
            *("peer", "name", second.cable, "netns", second.space),
        )
        for host in hosts:
            run("ip", "-n", host.space, "address", "add", f"{host.address}/24", "dev", host.cable)
            run("ip", "-n", host.space, "link", "set", "lo", "up")
            host.set_cable("up")
        yield hosts


@contextmanager
def suppress_leftovers(hosts: tuple[Host, Host]) -> Iterator[None]:
    """Remove the hosts at the end of the block, however it ends."""
    try:
        yield
    finally:
        for host in hosts:
            with suppress(subprocess.CalledProcessError):
                host.kill()
            subprocess.run(["ip", "netns", "delete", host.space], capture_output=True, check=False)
