"""The power goes: what was not brought to the disk is lost. The resumed run is still the run never cut off.

The disk in between keeps book of what was brought to the disk. When the power goes, files that were not are cut short
or empty, names given since their directory was last brought to the disk are taken back or not, and what was deleted
since may be there again.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ostinato.checkpoint import disk
from tests.support import fault_runs

CUT = 77  # the exit code of a process whose power went
CUTS = int(os.environ.get("OSTINATO_POWER_CUTS", "4"))


class PowerCut(disk.Disk):
    """A disk whose power goes at the nth operation."""

    def __init__(self, root: Path, at: int, seed: int) -> None:
        self.root, self.left, self.chance = root, at, random.Random(seed)
        self.graves = root.parent / f"{root.name}-deleted"
        self.graves.mkdir(exist_ok=True)
        # Files, by their number, whose content is on the disk: all that are there when a machine comes up.
        self.safe = {file.stat().st_ino for file in root.rglob("*") if file.is_file()}
        self.renamed: list[tuple[Path, Path]] = []  # since their directory was last brought to the disk
        self.deleted: list[tuple[Path, Path]] = []

    def write(self, path: Path, content: Any, *, direct: bool = False) -> disk.Sealed:
        half_done = self.tick()
        sealed = super().write(path, content)
        if half_done:
            self.cut()
        self.safe.add(os.stat(path).st_ino)
        return sealed

    def seal(self, path: Path, descriptor: int) -> disk.Sealed:
        if self.tick():
            self.cut()
        self.safe.add(os.fstat(descriptor).st_ino)
        return super().seal(path, descriptor)

    def sync_directory(self, path: Path) -> None:
        if self.tick():
            self.cut()
        super().sync_directory(path)
        self.renamed = [(old, new) for old, new in self.renamed if path not in (old.parent, new.parent)]
        self.deleted = [(old, grave) for old, grave in self.deleted if path != old.parent]

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.renamed.append((Path(source), Path(target)))
        if self.tick():
            self.cut()

    def remove(self, path: Path) -> None:
        if not os.path.lexists(path):
            return
        grave = Path(tempfile.mkdtemp(dir=self.graves)) / "it"
        os.rename(path, grave)
        self.deleted.append((Path(path), grave))
        if self.tick():
            self.cut()

    def tick(self) -> bool:
        self.left -= 1
        return self.left == 0

    def cut(self) -> None:
        """The power goes."""
        for old, grave in reversed(self.deleted):
            if self.chance.random() < 0.5 and old.parent.exists() and not old.exists():
                os.rename(grave, old)
        for old, new in reversed(self.renamed):
            if self.chance.random() < 0.5 and new.exists() and not old.exists():
                os.rename(new, old)
        for file in self.root.rglob("*"):
            is_ours = "checkpoint-" in str(file.relative_to(self.root)) or "best-model" in str(file)
            if file.is_file() and is_ours and file.stat().st_ino not in self.safe:
                with file.open("r+b") as content:
                    content.truncate(self.chance.choice([0, file.stat().st_size // 2]))
        os._exit(CUT)


def trained(name: str, directory: Path, at: int, seed: int) -> None:
    with disk.using(PowerCut(directory, at, seed)):
        fault_runs.train(name, directory)


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", ["accumulation, evaluation, best", "saves of every step"])
def test_resumed_after_a_power_cut_is_never_cut_off(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    assert fault_runs.wait(fault_runs.start(fault_runs.train, name, whole)) == 0
    wanted = json.loads((whole / "outcome.json").read_text())
    chance, cuts, number = random.Random(CUTS), 0, 0
    while cuts < CUTS:
        directory, number = tmp_path / f"cut-{number}", number + 1
        directory.mkdir()
        cuts_here, code = 0, CUT
        while code == CUT and cuts_here < 4:
            at, seed = chance.randint(1, 60), chance.randint(0, 10**6)
            code = fault_runs.wait(fault_runs.start(trained, name, directory, at, seed))
            cuts_here += code == CUT
        if code == CUT:
            code = fault_runs.wait(fault_runs.start(fault_runs.train, name, directory))
        assert code == 0, (directory / "log.txt").read_text()
        assert json.loads((directory / "outcome.json").read_text()) == wanted
        cuts += cuts_here
