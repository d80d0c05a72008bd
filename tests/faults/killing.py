"""Kills runs with SIGKILL, again and again, and compares what they end with.

    python -m tests.faults.killing DIRECTORY --kills 200 --seed 1

A process that has everything imported forks the runs: a run begins within milliseconds. Half of the kills wait until
a checkpoint is being written, on a disk that is slow enough to be caught at it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

from ostinato.checkpoint import disk
from tests.support import fault_runs


class SlowDisk(disk.Disk):
    """Takes a moment for everything, so that there is a middle to be killed in."""

    def write(self, path, content, *, direct=False):
        time.sleep(0.004)
        return super().write(path, content, direct=direct)

    def seal(self, path, descriptor):
        time.sleep(0.002)
        return super().seal(path, descriptor)

    def sync_directory(self, path):
        time.sleep(0.002)
        super().sync_directory(path)

    def rename(self, source, target):
        time.sleep(0.002)
        super().rename(source, target)
        time.sleep(0.002)


def trained(name: str, directory: Path) -> None:
    with disk.using(SlowDisk()):
        fault_runs.train(name, directory)


def being_written(directory: Path) -> bool:
    return any(entry.name.endswith(".partial") for entry in os.scandir(directory)) if directory.is_dir() else False


class Killer:
    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.chance = root, random.Random(seed)
        self.references: dict[str, dict] = {}
        self.seconds: dict[str, float] = {}
        self.kills = {"any moment": 0, "while saving": 0}
        self.ended = self.different = 0
        self.failures: list[str] = []

    def reference(self, name: str) -> None:
        directory = self.root / "never killed" / name
        directory.mkdir(parents=True)
        started = time.monotonic()
        code = fault_runs.wait(fault_runs.start(trained, name, directory))
        assert code == 0, (directory / "log.txt").read_text()
        self.seconds[name] = time.monotonic() - started
        self.references[name] = json.loads((directory / "outcome.json").read_text())

    def until_it_ends(self, name: str, most: int) -> None:
        """Start a run and kill it, and again, until it was not hit or was killed often enough; then compare."""
        directory = self.root / "killed" / f"{name} {self.ended + len(self.failures)}"
        directory.mkdir(parents=True)
        children: list[int] = []
        try:
            while len(children) < most and self.is_hit(name, directory, children):
                pass
            code = 0 if (directory / "outcome.json").exists() else fault_runs.wait(self.last_leg(name, directory))
        finally:  # workers that read rows outlive the run that was killed, and are there while the next one runs
            for child in children:
                fault_runs.clear_away(child)
        self.judge(name, directory, code)

    def is_hit(self, name: str, directory: Path, children: list[int]) -> bool:
        """Start a run and try to kill it before it ends."""
        child = fault_runs.start(trained, name, directory)
        children.append(child)
        moment = "while saving" if self.kills["while saving"] <= self.kills["any moment"] else "any moment"
        hit = self.hit_saving(child, directory) if moment == "while saving" else self.hit(child, name)
        self.kills[moment] += hit
        return hit

    def last_leg(self, name: str, directory: Path) -> int:
        return fault_runs.start(trained, name, directory)

    def hit(self, child: int, name: str) -> bool:
        time.sleep(self.chance.uniform(0, self.seconds[name]))
        return self.kill(child)

    def hit_saving(self, child: int, directory: Path) -> bool:
        """Wait for one of the next saves to begin, and then for part of the time it takes."""
        saves = self.chance.randint(1, 3)
        was_writing = False
        while saves:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self.reaped(status)
                return False
            now = being_written(directory)
            saves -= now and not was_writing
            was_writing = now
            time.sleep(0.0005)
        time.sleep(self.chance.uniform(0, 0.06))
        return self.kill(child)

    def kill(self, child: int) -> bool:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        self.reaped(status)
        return os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def reaped(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, -signal.SIGKILL):
            self.failures.append(f"exit code {code}")

    def judge(self, name: str, directory: Path, code: int) -> None:
        if code != 0 or not (directory / "outcome.json").exists():
            self.failures.append(f"{name}: exit code {code}\n{(directory / 'log.txt').read_text()[-3000:]}")
            return
        self.ended += 1
        found, wanted = json.loads((directory / "outcome.json").read_text()), self.references[name]
        differs = [part for part in wanted if found[part] != wanted[part]]
        if differs:
            self.failures.append(f"{name}: {', '.join(differs)} differ in {directory}")
        else:
            shutil.rmtree(directory)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("directory", type=Path)
    asked.add_argument("--kills", type=int, default=200)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", nargs="*", default=list(fault_runs.RUNS))
    given = asked.parse_args()
    killer = Killer(given.directory, given.seed)
    for name in given.only:
        killer.reference(name)
    turn = 0
    while sum(killer.kills.values()) < given.kills:
        killer.until_it_ends(given.only[turn % len(given.only)], most=4)
        turn += 1
    print(json.dumps({"kills": killer.kills, "runs": killer.ended, "failures": killer.failures}))
    raise SystemExit(1 if killer.failures else 0)


if __name__ == "__main__":
    main()
