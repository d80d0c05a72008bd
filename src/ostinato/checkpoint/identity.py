"""The identity of a run, recorded in its checkpoints, so that no run deletes, replaces or continues another's.

A run has an id. Every checkpoint holds it, in `run.json`, which the manifest covers like every other file:

    {"format": 1, "run_id": "20260114-093005-4f1c2a", "saved_at": 1768383005.2}

A checkpoint without it (written by transformers, or before there were ids) has no owner and is never deleted. Where a
run needs a name that another run's checkpoint has, that checkpoint is moved into a directory named after its own run,
under its old name: `out/checkpoint-20` to `out/run-20260114-093005-4f1c2a/checkpoint-20`. It can be loaded and resumed
from there, and a search for `checkpoint-*` in `out` (as transformers does, when it deletes) does not find it.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import CheckpointError, ConfigError
from ..core.notices import note_once
from . import io
from .atomic import find_defect, format_skip_key, is_checkpoint
from .disk import disk
from .file_names import MANIFEST_NAME, PREFIX_CHECKPOINT_DIR, RUN_NAME, TRAINER_STATE_NAME
from .space import format_size

FORMAT = 1

_NO_OWNER = "unknown"  # the directory of checkpoints without an owner
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # it becomes part of a path
_MAX_TIME = 1e11  # seconds; a larger time of saving is not valid
_NUMBERED = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")
_RUN_DIRECTORY = re.compile(rf"run-{_RUN_ID.pattern}")


def create_run_id() -> str:
    """Return an id that no other run has. Ids sort by the time they were made. No random stream of the run is used.

    >>> create_run_id()  # doctest: +SKIP
    '20260114-093005-4f1c2a'
    """
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def choose_run_id(checkpoint: str | Path, damaged: Collection[Path] = ()) -> str:
    """Return the id to continue with after a checkpoint: its own, unless its run has later checkpoints.

    Going back to an earlier checkpoint is a new run, so the later ones are kept and never mixed with the new ones.
    Checkpoints that are known to be `damaged` do not count as later ones: a run cannot continue from them.

    >>> choose_run_id("out/checkpoint-20")  # doctest: +SKIP
    '20260114-093005-4f1c2a'
    """
    checkpoint = Path(checkpoint)
    run_id = read_run_id(checkpoint)
    if run_id is None:
        return create_run_id()
    true_path = Path(os.path.realpath(checkpoint))
    step = step_of(true_path.name)
    own = [found for found in _find_whole(find_run_directory(true_path), damaged) if found.run_id == run_id]
    later = [found for found in own if step is not None and found.step > step]
    if not later:
        return run_id
    note_once(
        f"{checkpoint} is not the last checkpoint of its run: training continues as a new run. "
        f"Later checkpoints are kept: {_join_names(found.path.name for found in later)}"
    )
    return create_run_id()


def write_run_id(directory: str | Path, run_id: str) -> None:
    """Write the id of a run into a checkpoint; call it while the checkpoint is being written.

    >>> write_run_id(scratch, run_id)  # doctest: +SKIP
    """
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(
            what=f"{run_id!r} cannot be the id of a run",
            why="it becomes part of a path: up to 64 letters, digits, - and _, the first a letter or digit",
            fix="use create_run_id()",
        )
    io.write_json(Path(directory) / RUN_NAME, {"format": FORMAT, "run_id": run_id, "saved_at": time.time()})


def read_run_id(directory: str | Path) -> str | None:
    """Return the id of the run that a checkpoint belongs to; None if it has none, or no valid one.

    >>> read_run_id("out/checkpoint-20")  # doctest: +SKIP
    '20260114-093005-4f1c2a'
    """
    run_id = _read_record(Path(directory)).get("run_id")
    return run_id if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) else None


def find_other_runs(directory: str | Path, run_id: str) -> list[Path]:
    """Return the whole checkpoints in a directory that are not of this run, by step; none if there is no directory.

    >>> find_other_runs("out", run_id)  # doctest: +SKIP
    [PosixPath('out/checkpoint-10'), PosixPath('out/checkpoint-20')]
    """
    return [found.path for found in _find_whole(Path(directory)) if found.run_id != run_id]


def describe_other_runs(paths: Sequence[Path]) -> str:
    """Return one line about checkpoints of other runs, for a run that begins beside them.

    >>> describe_other_runs(find_other_runs("out", run_id))  # doctest: +SKIP
    'checkpoints of other runs are kept: 2 checkpoints, 2.7 GB (out/checkpoint-10, out/checkpoint-20)'
    """
    taken = sum(file.stat().st_size for path in paths for file in path.rglob("*") if file.is_file())
    counted = f"{len(paths)} checkpoints" if len(paths) != 1 else "1 checkpoint"
    return f"checkpoints of other runs are kept: {counted}, {format_size(taken)} ({_join_names(map(str, paths))})"


def move_other_run(target: str | Path, run_id: str) -> Path | None:
    """Move another run's checkpoint away from a name that this run needs; return its new path, None if none was moved.

    Call it as late as possible, right before the new one gets the name: nothing is lost if the run dies in between,
    but the old one has moved.

    >>> move_other_run("out/checkpoint-20", run_id)  # doctest: +SKIP
    PosixPath('out/run-20260114-093005-4f1c2a/checkpoint-20')
    """
    target = Path(target)
    if not os.path.lexists(target):
        return None
    owner = read_run_id(target)
    if owner == run_id:
        return None
    aside = _find_free_path(target, owner or _NO_OWNER)
    try:
        aside.parent.mkdir(exist_ok=True)
        disk().rename(target, aside)
        io.sync_directory(aside.parent)
        io.sync_directory(target.parent)
    except OSError as error:
        raise CheckpointError(
            what=f"{target} was not saved",
            why=f"another run's checkpoint has that name, and it could not be moved to {aside}: {error}",
            fix="move it away, or give this run another output_dir",
        ) from error
    note_once(
        f"{target} belongs to another run and is moved to {aside}; its other checkpoints move there too when needed",
        key=f"moved aside: {target.parent} {run_id}",
    )
    return aside


def find_own_checkpoint(path: str | Path, run_id: str) -> Path | None:
    """Return the present path of a checkpoint of this run that was recorded under this path; None if it is gone.

    Paths are recorded (as that of the best model is), and a later run may have moved what was there.

    >>> find_own_checkpoint("out/checkpoint-20", run_id)  # doctest: +SKIP
    PosixPath('out/run-20260114-093005-4f1c2a/checkpoint-20')
    """
    path = Path(path)
    places = (path, *(moved / path.name for moved in list_moved_directories(path.parent)))
    return next((place for place in places if place.is_dir() and read_run_id(place) == run_id), None)


def find_latest_checkpoint(directory: str | Path) -> Path | None:
    """Return the last checkpoint of the run that saved last, from which `resume_from_checkpoint=True` continues.

    Steps of different runs are not comparable: a fresh run at step 20 is newer than an old one's step 500.
    In a directory with a single run this is `get_last_checkpoint`. Checkpoints without an owner count as one run.

    >>> find_latest_checkpoint("out")
    PosixPath('out/checkpoint-20')
    """
    return next((path for path in list_newest_first(directory) if is_checkpoint(path)), None)


def list_newest_first(directory: str | Path) -> list[Path]:
    """Return every checkpoint of every run in a directory, whole or not, in the order of preference for resuming.

    >>> list_newest_first("out")  # doctest: +SKIP
    [PosixPath('out/checkpoint-20'), PosixPath('out/checkpoint-10')]
    """
    waiting = _find_all(Path(directory))
    last_save: dict[str | None, float] = {}
    for one in waiting:
        last_save[one.run_id] = max(one.saved_at, last_save.get(one.run_id, 0.0))
    waiting.sort(key=lambda one: (last_save[one.run_id], one.run_id or "", one.step, one.saved_at), reverse=True)
    return [one.path for one in waiting]


@dataclass(frozen=True)
class _FoundCheckpoint:
    path: Path
    step: int
    run_id: str | None
    saved_at: float


def _find_whole(directory: Path, damaged: Collection[Path] = ()) -> list[_FoundCheckpoint]:
    """Return every whole checkpoint of every run in a directory, by step, including those that were moved aside."""
    found, known = [], set(map(os.path.realpath, damaged))  # these have been reported already
    for one in _find_all(directory):
        if os.path.realpath(one.path) in known:
            continue
        reason = find_defect(one.path)
        if reason is None:
            found.append(one)
        else:
            note_once(f"{one.path} is left out: {reason}", key=format_skip_key(one.path))
    return sorted(found, key=lambda one: (one.step, str(one.path)))


def _find_all(directory: Path) -> list[_FoundCheckpoint]:
    """Return every checkpoint of every run in a directory, whole or not."""
    if not directory.is_dir():
        return []
    places = [
        parent / name for parent in (directory, *list_moved_directories(directory)) for name in os.listdir(parent)
    ]
    return [
        _FoundCheckpoint(path, step, read_run_id(path), _read_save_time(path))
        for path in places
        if (step := step_of(path.name)) is not None and path.is_dir()
    ]


def find_run_directory(checkpoint: Path) -> Path:
    """Return the directory that a checkpoint was saved in: one that was moved aside is one directory below it."""
    return checkpoint.parent.parent if _is_moved_directory(checkpoint.parent) else checkpoint.parent


def list_moved_directories(directory: Path) -> list[Path]:
    """Return the directories of runs whose checkpoints were moved aside."""
    if not directory.is_dir():
        return []
    return [directory / name for name in sorted(os.listdir(directory)) if _is_moved_directory(directory / name)]


def _is_moved_directory(path: Path) -> bool:
    return _RUN_DIRECTORY.fullmatch(path.name) is not None and path.is_dir()


def _find_free_path(path: Path, owner: str) -> Path:
    """Return where `path` can be moved to. Several checkpoints without an owner may have the same name."""
    names = itertools.chain([f"run-{owner}"], (f"run-{owner}-{number}" for number in itertools.count(2)))
    return next(place for name in names if not os.path.lexists(place := path.parent / name / path.name))


def step_of(name: str) -> int | None:
    """Return the step in the name of a checkpoint; None if it is not such a name.

    >>> step_of("checkpoint-20"), step_of("best-model")
    (20, None)
    """
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else None


def _read_save_time(path: Path) -> float:
    """Return when a checkpoint was completed: by its own record, since copying changes the times of files."""
    said = _read_record(path).get("saved_at")
    if isinstance(said, (int, float)) and 0 < said < _MAX_TIME:
        return float(said)
    for name in (MANIFEST_NAME, TRAINER_STATE_NAME):  # whichever was written last
        try:
            return os.lstat(path / name).st_mtime
        except OSError:
            continue
    return 0.0


def _read_record(directory: Path) -> dict[str, Any]:
    try:
        content = io.read_json(directory / RUN_NAME)
    except CheckpointError:  # missing or damaged: then it has no owner, and is kept
        return {}
    return content if isinstance(content, dict) and content.get("format") == FORMAT else {}


def _join_names(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
