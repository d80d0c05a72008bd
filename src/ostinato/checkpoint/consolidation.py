"""Checkpoints whose parts were written by several processes, as the plain files that one process would have written.

Tensors are copied one at a time: memory for the largest of them is enough.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import torch

from ..core.errors import CheckpointError
from . import io
from .atomic import atomic_directory, verify
from .distributed_tensors import Shard, StoredTensor, open_tensors
from .file_names import MANIFEST_NAME
from .lock import RunLock
from .retention import PREFIX_CHECKPOINT_DIR, list_checkpoints
from .tensor_file import TensorFile, view_bytes


def consolidate(source: str | Path, target: str | Path | None = None) -> tuple[Path, list[str]]:
    """Write a checkpoint with plain files, by default in the place of the one that is read.

    Args:
        source: A checkpoint, or the directory of a run, whose newest one is taken.
        target: The directory to write, which does not exist yet.

    Returns:
        The directory that was written, and the names of the files that were joined; none if all were plain before.

    Raises:
        CheckpointError: The source is no whole checkpoint, or the target exists.

    >>> consolidate("out/checkpoint-20")  # doctest: +SKIP
    (PosixPath('out/checkpoint-20'), ['optimizer.safetensors'])
    """
    directory = find_checkpoint(Path(source))
    verify(directory)
    trees = dict(_find_divided(directory))
    if target is None and not trees:
        return directory, []
    place = directory if target is None else Path(target)
    if target is not None and os.path.lexists(place):
        raise CheckpointError(what=f"{place} exists", why="it would be overwritten", fix="name a new directory")
    place.parent.mkdir(parents=True, exist_ok=True)
    with RunLock(place.parent), atomic_directory(place) as scratch:
        _copy_others(directory, scratch, leaving={name for files in trees.values() for name in files})
        for tree, files in trees.items():
            _join(directory, scratch, tree, files)
    return place, [f"{name}.safetensors" for name in trees]


def find_checkpoint(path: Path) -> Path:
    """Return a checkpoint: the directory itself, or the newest one in the directory of a run."""
    if (path / MANIFEST_NAME).exists() or path.name.startswith(f"{PREFIX_CHECKPOINT_DIR}-"):
        return path
    found = list_checkpoints(path) if path.is_dir() else []
    if not found:
        raise CheckpointError(
            what=f"there is no checkpoint in {path}",
            why=f"it has no {MANIFEST_NAME} and no {PREFIX_CHECKPOINT_DIR}-N",
            fix="name a checkpoint, or the output_dir of a run",
        )
    return found[-1]


def _find_divided(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the states that are in several files, and the names of these."""
    for path in sorted(directory.glob("*.json")):
        content = io.read_json(path)
        shards = content.get("shards") if isinstance(content, dict) else None
        if type(shards) is int and "tree" in content:
            yield path.stem, [Shard(rank, shards).name_file(path.stem) for rank in range(shards)]


def _copy_others(directory: Path, scratch: Path, leaving: set[str]) -> None:
    for entry in os.scandir(directory):
        if entry.name in leaving or entry.name == MANIFEST_NAME:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.copytree(entry.path, scratch / entry.name, symlinks=True)
        else:
            shutil.copyfile(entry.path, scratch / entry.name, follow_symlinks=False)


def _join(directory: Path, scratch: Path, name: str, files: list[str]) -> None:
    content = io.read_json(directory / f"{name}.json")
    stored = open_tensors([directory / file for file in files])
    if stored:
        _write(scratch / f"{name}.safetensors", stored)
    io.write_json(scratch / f"{name}.json", {key: value for key, value in content.items() if key != "shards"})


def _write(path: Path, stored: dict[str, StoredTensor]) -> None:
    shapes = {name: torch.empty(one.shape, dtype=one.dtype, device="meta") for name, one in stored.items()}
    names = {id(tensor): name for name, tensor in shapes.items()}
    file = TensorFile.of(shapes)
    try:
        with open(path, "wb", buffering=0) as out:
            _write_all(out, file.header)
            for tensor in file.sources:
                if tensor.numel():
                    _write_all(out, view_bytes(stored[names[id(tensor)]].read()))
    except OSError as error:
        raise io.build_write_error(path, error) from error


def _write_all(out: FileIO, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[out.write(rest) :]
