"""Keep files as they are now, for an upload beside training.

An upload takes minutes, in which checkpoints are deleted and models overwritten. It reads from a folder of its own in
the run's directory. Files there are hard links, which take no space and outlive the original name, or copies where
they are small or may be written to in place.
"""

from __future__ import annotations

import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

PREFIX = ".hub-"
_MIN_LINK_BYTES = 2**20  # bytes
_NEVER_APPENDED = (".safetensors", ".bin", ".pt", ".pth")  # not appended to, as logs are


class StagedFolder:
    """A folder that exists until `remove`, or until the program ends.

    >>> staged = StagedFolder(Path("out"))  # doctest: +SKIP
    >>> staged.add_folder(Path("out/checkpoint-10"), link_all=True, exclude=str.isupper)  # doctest: +SKIP
    """

    def __init__(self, output_path: Path) -> None:
        self.folder = Path(output_path) / f"{PREFIX}{uuid.uuid4().hex[:12]}"
        self.folder.mkdir(parents=True)
        self.size = 0
        self._linked: set[tuple[int, int]] = set()
        self.remove = weakref.finalize(self, partial(shutil.rmtree, self.folder, ignore_errors=True))

    def add_folder(self, source: Path, *, link_all: bool, exclude: Callable[[str], bool] = lambda name: False) -> None:
        """Add a folder, without the direct children that `exclude` names. `link_all`: it is not written to."""
        for path in _list_files(Path(source), exclude):
            target = self.folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            is_large = path.stat().st_size >= _MIN_LINK_BYTES
            links = is_large and not path.is_symlink() and (link_all or path.suffix in _NEVER_APPENDED)
            if not (links and self._link(path, target)):
                shutil.copyfile(path, target)
            self.size += target.stat().st_size

    def _link(self, path: Path, target: Path) -> bool:
        try:
            os.link(path, target)
        except OSError:  # a file system without them
            return False
        self._linked.add(_get_inode(path))
        return True

    def release(self, directory: Path) -> None:
        """Unlink files of `directory` that are linked here, before they are written to."""
        if not self.remove.alive or not self._linked or not directory.is_dir():
            return
        for path in directory.iterdir():
            if path.is_file() and not path.is_symlink() and _get_inode(path) in self._linked:
                path.unlink()


def remove_leftovers(output_path: Path, keep: set[Path]) -> None:
    """Remove the folders of uploads whose program was killed."""
    for path in Path(output_path).glob(f"{PREFIX}*"):
        if path.is_dir() and path not in keep:
            shutil.rmtree(path, ignore_errors=True)


def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches_any one of the patterns.

    >>> matches_any("rng-0.json", ("rng-*", "loop.*"))
    True
    """
    return any(fnmatch(name, pattern) for pattern in patterns)


def _list_files(source: Path, exclude: Callable[[str], bool]) -> Iterator[Path]:
    for path in sorted(source.iterdir()):
        if exclude(path.name):
            continue
        if path.is_file():
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _list_files(path, lambda name: False)


def _get_inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
