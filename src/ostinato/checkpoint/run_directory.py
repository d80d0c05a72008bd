"""The directory of a run, for the trainer: its lock, the owners of its checkpoints, and free space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from torch import nn

from ..core.notices import note, warn
from . import identity, retention, space
from .atomic import format_skip_key, sweep_leftovers
from .early_files import copy_early_files
from .lock import RunLock
from .transformers import read
from .verify import Verdict, check_checkpoint


class RunDirectory:
    """One run in its directory.

    >>> run_directory = RunDirectory()
    >>> with run_directory.lock(Path("out")):  # doctest: +SKIP
    ...     run_directory.begin(Path("out"), checkpoint=None, writes=True)
    """

    def __init__(self) -> None:
        self.run_id = identity.create_run_id()
        self.verified: Path | None = None  # the checkpoint of which every byte was read
        self._damaged: list[Verdict] = []
        self._lock: RunLock | None = None
        self._older: set[str] = set()  # directories that were there when the run began, and are not its own

    @contextmanager
    def lock(self, directory: Path) -> Iterator[None]:
        """Make sure, inside the block, that the directory can be written to and that this is the only run in it."""
        with space.open_directory(directory), RunLock(directory) as self._lock:
            if self._lock.held:
                sweep_leftovers(directory)
            yield

    def find_newest_whole(self, directory: Path) -> Path | None:
        """Return the newest checkpoint of which every byte is as it was written, to resume from; None if none is.

        Reports which ones it skips, and why. If all checkpoints of the newest run are damaged, it does not fall back
        to an older run: that would silently be another run.
        """
        self.verified, self._damaged, owner = None, [], None
        for path in identity.list_newest_first(directory):
            if owner is not None and identity.read_run_id(path) != owner:
                continue
            verdict = check_checkpoint(path)
            if verdict.is_whole:
                self.verified = path
                return path
            self._damaged.append(verdict)
            warn(f"{path} is skipped: {verdict}", key=format_skip_key(path))
            if verdict.has_trusted_owner and owner is None:
                owner = identity.read_run_id(path)
        return None

    @property
    def damage(self) -> list[str]:
        """What is wrong with the checkpoints that `find_newest_whole` skipped, one line each."""
        return [f"{verdict.path.name}: {verdict}" for verdict in self._damaged]

    def begin(self, directory: Path, checkpoint: str | None, *, writes: bool) -> None:
        """Continue the run of a checkpoint, or begin a new one; report checkpoints of other runs in the directory."""
        if checkpoint is not None:
            self.run_id = identity.choose_run_id(checkpoint, [verdict.path for verdict in self._damaged])
        else:
            self.run_id = identity.create_run_id()
        present = identity.list_newest_first(directory)
        self._older = {os.path.realpath(path) for path in present if not self.owns(path)}
        if checkpoint is None and writes and (others := identity.find_other_runs(directory, self.run_id)):
            note(identity.describe_other_runs(others))

    def check_space(
        self, directory: Path, model: nn.Module, optimizer: Any, *, saves: int | None, limit: int | None
    ) -> None:
        """Compare free space with the size of the checkpoints to come; without an optimizer, of weights alone."""
        size = space.forecast_size(model, None if optimizer is None else space.estimate_state_factor(optimizer))
        keep = space.count_coexisting(saves, limit, present=len(self.list_checkpoints(directory)))
        if line := space.check_space(directory, size, keep=keep):
            note(line)

    def claim(self, directory: Path, target: Path) -> None:
        """Complete a checkpoint, and move another run's away from its name, right before it appears."""
        self.complete(directory, target)
        self.move_other_run(target)

    def complete(self, directory: Path, target: Path) -> None:
        """Write the run's id into a checkpoint, and add the files that this run has put under its name before."""
        if self._lock is not None:
            self._lock.refresh()
        identity.write_run_id(directory, self.run_id)
        if not self._is_of_other_run(target):
            copy_early_files(target, directory)

    def move_other_run(self, target: Path) -> None:
        """Move another run's checkpoint away from a name."""
        if self._is_of_other_run(target):
            identity.move_other_run(target, self.run_id)
            self._older.discard(os.path.realpath(target))

    def _is_of_other_run(self, target: Path) -> bool:
        """Return whether what has a name was there before this run, or belongs to another."""
        if not target.is_dir():
            return os.path.lexists(target)
        owner = identity.read_run_id(target)
        return os.path.realpath(target) in self._older if owner is None else owner != self.run_id

    def owns(self, directory: Path) -> bool:
        """Return whether this run wrote the checkpoint."""
        return identity.read_run_id(directory) == self.run_id

    def list_checkpoints(self, directory: Path) -> list[Path]:
        """Return this run's checkpoints, oldest first."""
        return retention.list_checkpoints(directory, run_id=self.run_id) if directory.is_dir() else []


def find_best_model(checkpoint: str, best: str) -> str | None:
    """Return the present path of the best model of a checkpoint's run; None if it is gone, with a notice.

    The run's directory may have been moved or copied since, and a later run may have moved the best out of its way.
    """
    owner = identity.read_run_id(Path(checkpoint))
    if owner is not None:
        beside = identity.find_run_directory(Path(checkpoint)) / PurePath(best.replace("\\", "/")).name
        own = identity.find_own_checkpoint(beside, owner) or identity.find_own_checkpoint(best, owner)
        if own is not None:
            return str(own)
    return read.find_best_beside(Path(checkpoint), best)
