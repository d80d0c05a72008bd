"""Train on two hosts, and disturb them: `python -m tests.multihost [SCENARIO ...]`, or `make multihost`.

The hosts are network namespaces on this machine, with addresses of their own. `ostinato launch` starts a process on
each, and they meet over the network. The link is cut for ten seconds; the worker of one host is killed; a whole host
is killed and comes back. Each time training has to end with the weights of the run that nothing happened to, bit for
bit. Last, a host of `--nnodes 1:2` is lost for good, and the other finishes alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.multihost.hosts import Host, find_obstacle, open_hosts
from tests.multihost.worker import STEPS

ROOT = Path(__file__).parents[2]
WORKER, PORT, PATIENCE = Path(__file__).with_name("worker.py"), 29400, 300
MOMENT = 35  # the step after which something happens, between two checkpoints
CUT_SECONDS = 10


class Failure(Exception):
    """Training did not end as it should have."""


class Job:
    """One run on both hosts."""

    def __init__(self, hosts: tuple[Host, Host], out: Path, nodes: str = "2") -> None:
        self.hosts, self.out = hosts, out
        words = ["launch", "--nproc", "1", "--nnodes", nodes, "--host", f"{hosts[0].address}:{PORT}"]
        self.command = [sys.executable, "-m", "ostinato", *words, str(WORKER), str(out)]
        out.mkdir(parents=True)
        self.launchers = {host.number: self.start(host) for host in hosts}

    def start(self, host: Host) -> subprocess.Popen[bytes]:
        return host.start(self.command, self.out / f"host-{host.number}.log")

    def restart(self, host: Host) -> None:
        self.launchers[host.number] = self.start(host)

    def wait_for_step(self, step: int, rank: int = 0) -> None:
        self.wait(lambda: int(self.read(f"step-{rank}") or 0) >= step, f"step {step}")

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > until:
                raise Failure(f"{what} was not reached in {PATIENCE} s")
            if any(process.poll() for process in self.launchers.values()):
                codes = {number: process.poll() for number, process in self.launchers.items()}
                raise Failure(f"before {what}, hosts ended with {codes}")
            time.sleep(0.1)

    def finish(self) -> list[str]:
        """Wait for the end; return the hash of the weights that each process ended with."""
        self.wait(lambda: all(process.poll() == 0 for process in self.launchers.values()), "the end")
        return [path.read_text() for path in sorted(self.out.glob("weights-*"))]

    def find_worker(self, host: Host) -> int:
        """Return the process that trains on a host."""
        (found,) = {int(path.read_text()) for path in self.out.glob("pid-*")} & set(host.list_processes())
        return found

    def read(self, name: str) -> str:
        path = self.out / name
        return path.read_text() if path.exists() else ""

    @property
    def beginnings(self) -> list[tuple[int, int]]:
        """The step at which rank 0 began each time, and the number of processes."""
        lines = [line.split() for line in self.read("begun-0").splitlines()]
        return [(int(step), int(size)) for step, size in lines]


def disturb_nothing(job: Job) -> None:
    pass


def cut_the_link(job: Job) -> None:
    """Pull the cable for ten seconds, in the middle of a step."""
    job.wait_for_step(MOMENT)
    job.hosts[1].set_cable("down")
    time.sleep(CUT_SECONDS)
    job.hosts[1].set_cable("up")


def kill_a_worker(job: Job) -> None:
    """Kill the process that trains on the second host. Its launcher goes on, and starts another."""
    job.wait_for_step(MOMENT)
    os.kill(job.find_worker(job.hosts[1]), signal.SIGKILL)


def kill_a_host(job: Job) -> None:
    """Cut the power of the second host; nothing tells the first. It is back ten seconds later, without its memory."""
    job.wait_for_step(MOMENT)
    host = job.hosts[1]
    host.set_cable("down")
    host.kill()
    time.sleep(CUT_SECONDS)
    host.set_cable("up")
    job.restart(host)


SCENARIOS: dict[str, Callable[[Job], None]] = {
    "link": cut_the_link,
    "worker": kill_a_worker,
    "host": kill_a_host,
}
RESUMES = ("worker", "host")


def lose_a_host(hosts: tuple[Host, Host], out: Path) -> None:
    """With `--nnodes 1:2`, the first host goes on alone from the newest checkpoint, to the last step."""
    job = Job(hosts, out, "1:2")
    job.wait_for_step(MOMENT)
    if job.beginnings[-1][1] != 2:
        raise Failure(f"the hosts did not meet: {job.beginnings}")
    hosts[1].set_cable("down")
    hosts[1].kill()
    del job.launchers[2]
    job.finish()
    hosts[1].set_cable("up")
    step, size = job.beginnings[-1]
    if size != 1 or not 0 < step <= STEPS:
        raise Failure(f"the other host did not go on alone: {job.beginnings}")


def try_scenarios(chosen: list[str], folder: Path) -> None:
    with open_hosts() as hosts:
        began = time.monotonic()
        whole = Job(hosts, folder / "undisturbed").finish()
        if len(whole) != 2 or whole[0] != whole[1]:
            raise Failure(f"two processes ended with {whole}")
        print(f"undisturbed: weights {whole[0][:16]}, {time.monotonic() - began:.0f} s", flush=True)
        for name in chosen:
            began = time.monotonic()
            if name == "lost":
                lose_a_host(hosts, folder / name)
                print(f"lost: the other host finished alone, {time.monotonic() - began:.0f} s", flush=True)
                continue
            job = Job(hosts, folder / name)
            SCENARIOS[name](job)
            if (ended := job.finish()) != whole:
                raise Failure(f"{name}: the weights are {ended}, not {whole}")
            if name in RESUMES and not any(step > 0 for step, _ in job.beginnings):
                raise Failure(f"{name}: training did not resume: {job.beginnings}")
            begun = ", ".join(str(step) for step, _ in job.beginnings)
            print(f"{name}: the same weights; began at step {begun}; {time.monotonic() - began:.0f} s", flush=True)


def main(words: list[str]) -> int:
    if (obstacle := find_obstacle()) is not None:
        print(f"make multihost: {obstacle}", file=sys.stderr)
        return 1
    every = [*SCENARIOS, "lost"]
    if unknown := set(words) - set(every):
        print(f"there is no {', '.join(sorted(unknown))}: choose among {', '.join(every)}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="multihost-"))
    os.environ.update({"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))})
    try:
        try_scenarios(words or every, folder)
    except Failure as failure:
        print(f"make multihost: {failure}; the logs are in {folder}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
