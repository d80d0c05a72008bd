"""The file of Optuna's study: that of its `JournalFileBackend`, which any process may be killed in.

Two things differ from Optuna's own: the lock is one of the operating system, which is free when its holder is gone;
and a line that a killed process has not finished is removed before the next one is written. Optuna can read and
continue the file: `JournalStorage(JournalFileBackend("search/optuna.log"))`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

FILE_NAME = "optuna.log"


class _SystemLock:
    """What `JournalFileBackend` calls of a lock."""

    def __init__(self, path: str) -> None:
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


class StudyLog(JournalFileBackend):
    """A journal without half lines."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._guard = FileLock(f"{path}.lock")
        super().__init__(str(path), lock_obj=cast(Any, _SystemLock(f"{path}.lock")))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with self._guard:
            self._remove_half_line()
        super().append_logs(logs)

    def _remove_half_line(self) -> None:
        with open(self._path, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            if not size:
                return
            file.seek(size - 1)
            if file.read(1) == b"\n":
                return
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)


def open_storage(directory: Path) -> JournalStorage:
    """Return the storage of the studies in a directory."""
    return JournalStorage(StudyLog(directory / FILE_NAME))
