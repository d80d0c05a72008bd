"""The directory of a search, `search` in the output directory: what a killed search goes on from.

search/study.jsonl      the record (journal/study_record.py)
search/optuna.log       Optuna's study, unless a storage was given
search/lock             held while a worker takes a trial
search/trials/N/        of trial N: a lock, held while it is trained; its draws; the id of its run
search/models/N/        the weights of trial N, while it is among the best
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..checkpoint import atomic, identity
from ..checkpoint.lock import RunLock
from ..core.errors import ConfigError
from ..core.notices import note
from ..journal.study_record import DIRECTORY, NoStudyError, read_study

_DRAWS, _RUN = "draws.json", "run.json"


class StudyDirectory:
    """The files of one study. Studies after the first have names of their own in `trials` and `models`."""

    def __init__(self, output_dir: str | Path, study: str) -> None:
        self.output_dir = Path(output_dir)
        self.path = self.output_dir / DIRECTORY
        self.study = study

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the study: one worker at a time takes a trial."""
        self.path.mkdir(parents=True, exist_ok=True)
        with FileLock(str(self.path / "lock")):
            yield

    def name_new_study(self, known: Collection[str] = ()) -> str:
        """Return a name that no study here has, nor one of the names known; `search` for the first."""
        taken = set(known)
        with suppress(NoStudyError):
            last = read_study(self.path)
            taken.update((last.name, *last.other_studies))
        names = (f"{DIRECTORY}-{count}" for count in itertools.count(len(taken) + 1))
        return next(name for name in names if name not in taken) if taken else DIRECTORY

    # ---- a trial --------------------------------------------------------------------------------------------------

    def find_trial(self, number: int) -> Path:
        """Return the directory of a trial's own files."""
        return self.path / "trials" / self._name(number)

    def try_to_hold(self, number: int) -> RunLock | None:
        """Take the lock of a trial; return None if a process that is alive trains it."""
        lock = RunLock(self.find_trial(number))
        try:
            lock.acquire()
        except ConfigError:
            return None
        return lock

    def write_draws(self, number: int, draws: dict[str, Any]) -> None:
        """Record what was drawn for a trial, and the random streams after it."""
        _write_json(self.find_trial(number) / _DRAWS, draws)

    def read_draws(self, number: int) -> dict[str, Any] | None:
        """Return what was recorded; None if nothing was."""
        return _read_json(self.find_trial(number) / _DRAWS)

    def write_run(self, number: int, run_id: str, directory: str) -> None:
        """Record the run of a trial, so that only its own checkpoints are resumed from."""
        _write_json(self.find_trial(number) / _RUN, {"run": run_id, "directory": directory})

    def read_run(self, number: int) -> dict[str, Any]:
        """Return the id of a trial's run and its directory."""
        return _read_json(self.find_trial(number) / _RUN) or {}

    def number_of(self, identifier: str) -> int:
        """Return the number of a trial that a library identifies by text; count a new one."""
        with self.lock():
            path = self.path / "trials" / f"{_make_safe(self.study)}.json"
            numbers = _read_json(path) or {}
            if identifier not in numbers:
                _write_json(path, {**numbers, identifier: len(numbers)})
            return numbers.get(identifier, len(numbers))

    def find_checkpoint(self, number: int) -> Path | None:
        """Return the newest whole checkpoint of a trial that was broken off."""
        known = self.read_run(number)
        directory = self.output_dir / known.get("directory", "")
        if not known or not directory.is_dir():
            return None
        own = [path for path in identity.list_newest_first(directory) if identity.read_run_id(path) == known["run"]]
        return next((path for path in own if atomic.find_defect(path) is None), None)

    # ---- models ---------------------------------------------------------------------------------------------------

    def find_model(self, number: int) -> Path:
        """Return the place for the weights of a trial."""
        return self.path / "models" / self._name(number)

    def discard_models(self, kept: set[int]) -> None:
        """Delete the weights of trials that are not among the best any more."""
        wanted, models = {self._name(number) for number in kept}, self.path / "models"
        found = models.iterdir() if models.is_dir() else iter(())
        for path in found:
            if path.is_dir() and path.name not in wanted and self._is_own(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def relative(self, path: str | Path) -> str:
        """Return a path as the record has it."""
        return os.path.relpath(path, self.output_dir)

    def _name(self, number: int) -> str:
        return str(number) if self.study == DIRECTORY else f"{_make_safe(self.study)}-{number}"

    def _is_own(self, name: str) -> bool:
        prefix = "" if self.study == DIRECTORY else f"{_make_safe(self.study)}-"
        return name.startswith(prefix) and name[len(prefix) :].isdigit()


def _make_safe(study: str) -> str:
    """Return the name of a study as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in study)[:80]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a small file in one piece."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(content), "utf-8")
    os.replace(scratch, path)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        note(f"{path} cannot be read, and is left out: {error}")
        return None
    return content if isinstance(content, dict) else None
