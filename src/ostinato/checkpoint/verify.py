"""Check that checkpoints are as they were written: one, or all of a run. Nothing is unpickled for it.

What we wrote has a manifest: every byte is compared with it. What transformers wrote has none: then the files are
checked for being readable (headers and sizes of safetensors, JSON, the checksums inside torch's archives), which finds
truncated files and most altered ones, but not a changed number in the weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..core.errors import CheckpointError
from . import io
from .atomic import Damage, find_damage, find_defect, has_manifest
from .file_names import (
    ADAPTER_WEIGHTS_NAME,
    BEST_MODEL_NAME,
    MANIFEST_NAME,
    OPTIMIZER_NAME,
    RUN_NAME,
    TRAINER_STATE_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    is_plain_name,
)
from .identity import list_moved_directories, step_of
from .transformers.detect import OPTIMIZER_PT, PICKLED_WEIGHTS_NAME, SCHEDULER_PT
from .transformers.unpickle import check_archive

_ARCHIVES = re.compile(
    r"(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|pytorch_model.*\.bin|training_args\.bin"
)
_WEIGHTS = (
    WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    ADAPTER_WEIGHTS_NAME,
    PICKLED_WEIGHTS_NAME,
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class Verdict:
    """The result of checking one checkpoint."""

    path: Path
    step: int | None
    size: int  # bytes
    damage: tuple[Damage, ...]
    remark: str  # what a whole checkpoint can be used for

    @property
    def is_whole(self) -> bool:
        return not self.damage

    @property
    def has_trusted_owner(self) -> bool:
        """Whether its record of its run can be trusted, damaged or not."""
        return not any(one.file in (MANIFEST_NAME, RUN_NAME) for one in self.damage)

    def __str__(self) -> str:
        if self.is_whole:
            return self.remark
        return "; ".join(one.why for one in self.damage)


def check_checkpoint(checkpoint: str | Path) -> Verdict:
    """Read every byte of a checkpoint and return what is wrong with it, if anything.

    >>> check_checkpoint("out/checkpoint-20").is_whole
    True
    """
    path = Path(checkpoint)
    if has_manifest(path):
        damage, remark = _compare_with_manifest(path), _describe_use(path)
    elif (reason := find_defect(path)) is not None:
        damage, remark = (Damage(_find_file_name(reason), reason),), ""
    else:
        damage, remark = tuple(_find_unreadable(path)), "no checksums; files readable"
    return Verdict(path, _find_step(path), _count_bytes(path), damage, remark)


def verify_run(path: str | Path) -> list[Verdict]:
    """Check a checkpoint, or every one in the directory of a run, with the best model and those moved aside.

    >>> [verdict.is_whole for verdict in verify_run("out")]  # doctest: +SKIP
    [True, True]
    """
    path = Path(path)
    if not path.is_dir():
        raise CheckpointError(
            what=f"there is nothing to verify in {path}",
            why="it is not a directory",
            fix="name a checkpoint, or the output_dir of a run",
        )
    inside = sorted(_find_checkpoints(path), key=_build_sort_key)
    if not inside and not _is_checkpoint_like(path):
        raise CheckpointError(
            what=f"there is nothing to verify in {path}",
            why="it is not a checkpoint and has no checkpoint-N",
            fix="name a checkpoint, or the output_dir of a run",
        )
    return [check_checkpoint(one) for one in inside or [path]]


# ---- which ---------------------------------------------------------------------------------------------------------


def _find_checkpoints(directory: Path) -> Iterator[Path]:
    for parent in (directory, *list_moved_directories(directory)):
        for name in os.listdir(parent):
            if (step_of(name) is not None or name == BEST_MODEL_NAME) and (parent / name).is_dir():
                yield parent / name


def _build_sort_key(path: Path) -> tuple[Any, ...]:
    step = step_of(path.name)
    return len(path.parts), str(path.parent), step is None, step or 0


def _is_checkpoint_like(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in (MANIFEST_NAME, TRAINER_STATE_NAME, OPTIMIZER_NAME))


def _find_step(path: Path) -> int | None:
    step = step_of(path.name)
    if step is not None:
        return step
    try:
        said = io.read_json(path / TRAINER_STATE_NAME)
    except CheckpointError:
        return None
    step = said.get("global_step") if isinstance(said, dict) else None
    return step if type(step) is int else None


def _count_bytes(path: Path) -> int:
    found = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return sum(os.lstat(file).st_size for file in found if os.path.lexists(file))


# ---- ours ----------------------------------------------------------------------------------------------------------


def _compare_with_manifest(path: Path) -> tuple[Damage, ...]:
    try:
        return tuple(find_damage(path))
    except CheckpointError as error:  # no manifest to compare with
        return (Damage(MANIFEST_NAME, error.why),)


def _describe_use(path: Path) -> str:
    resumable = (path / OPTIMIZER_NAME).exists() or (path / OPTIMIZER_PT).exists()
    parts = len(list(path.glob("optimizer.shard-*")))
    whole = f"whole; written in parts by {parts} processes" if parts else "whole"
    return whole if resumable else "whole; weights only"


def _find_file_name(reason: str) -> str:
    return MANIFEST_NAME if reason.startswith(MANIFEST_NAME) else ""


# ---- of transformers -----------------------------------------------------------------------------------------------


def _find_unreadable(path: Path) -> Iterator[Damage]:
    """Yield the files that cannot be read, and those that are named but missing."""
    names = sorted(entry.name for entry in os.scandir(path) if not entry.is_dir(follow_symlinks=False))
    for name in names:
        why = _find_read_error(path / name)
        if why is not None:
            yield Damage(name, why)
    yield from (Damage(name, f"{name} is missing") for name in _find_missing(path, set(names)))


def _find_read_error(file: Path) -> str | None:
    try:
        if file.suffix == ".json" and file.lstat().st_size <= io.LARGEST_JSON:
            io.read_json(file)
        elif file.suffix == ".safetensors":
            os.close(io.open_regular(file))
            with safe_open(file, framework="pt") as opened:  # reads the header, and compares it with the size
                opened.keys()
        elif _ARCHIVES.fullmatch(file.name):
            check_archive(file)
    except CheckpointError as error:
        return error.why
    except (OSError, SafetensorError, ValueError) as error:
        return f"{file.name} cannot be read: {error}"
    return None


def _find_missing(path: Path, names: set[str]) -> Iterator[str]:
    """Yield missing files. transformers silently uses a fresh optimizer where one of its two files is missing."""
    if not names & set(_WEIGHTS):
        yield WEIGHTS_NAME
    for one, other in ((OPTIMIZER_PT, SCHEDULER_PT), (SCHEDULER_PT, OPTIMIZER_PT)):
        if one in names and other not in names:
            yield other
    for index in (name for name in names if name.endswith(".index.json")):
        try:
            content = io.read_json(path / index)
        except CheckpointError:
            continue  # reported already
        table = content.get("weight_map") if isinstance(content, dict) else None
        shards = set(table.values()) if isinstance(table, dict) else set()
        yield from sorted(str(shard) for shard in shards if not is_plain_name(shard) or shard not in names)
