"""Find the checkpoints in a directory, and delete those beyond the limit."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from ..core.notices import note_once, warn
from .atomic import discard, find_defect, format_skip_key, is_own
from .file_names import PREFIX_CHECKPOINT_DIR
from .identity import read_run_id

__all__ = ["PREFIX_CHECKPOINT_DIR", "get_last_checkpoint", "list_checkpoints", "rotate", "sort_checkpoints"]


def list_checkpoints(
    output_dir: str | Path, checkpoint_prefix: str = PREFIX_CHECKPOINT_DIR, run_id: str | None = None
) -> list[Path]:
    """Return the whole checkpoints in a directory, by step; with a `run_id`, those of that run.

    Damaged ones are left out, and reported once.

    >>> list_checkpoints("out")  # doctest: +SKIP
    [PosixPath('out/checkpoint-10'), PosixPath('out/checkpoint-20')]
    """
    whole = []
    for path in _list_numbered(Path(output_dir), checkpoint_prefix):
        reason = find_defect(path)
        if reason is None and (run_id is None or read_run_id(path) == run_id):
            whole.append(path)
        elif reason is not None:
            note_once(f"{path} is left out: {reason}", key=format_skip_key(path))
    return whole


def _list_numbered(output_dir: Path, prefix: str) -> list[Path]:
    """Return the directories that are named as checkpoints, by step."""
    name = re.compile(rf"{re.escape(prefix)}-(\d+)")
    numbered = [(int(match[1]), entry) for entry in os.listdir(output_dir) if (match := name.fullmatch(entry))]
    return [output_dir / entry for _, entry in sorted(numbered) if (output_dir / entry).is_dir()]


def _list_any_shape(output_dir: Path, prefix: str) -> list[Path]:
    """Return the whole checkpoints; where none is of this library, every directory with such a name, by step.

    Other libraries have checkpoints of other shapes. Among ours, a directory that is not whole is a leftover.
    """
    numbered = _list_numbered(output_dir, prefix)
    return list_checkpoints(output_dir, prefix) if any(map(is_own, numbered)) else numbered


def get_last_checkpoint(folder: str | Path) -> str | None:
    """Return the checkpoint with the highest step; among checkpoints of this library, one that is whole.

    Args:
        folder: The output directory of a run.

    Returns:
        The path of the checkpoint; None if there is none.

    >>> get_last_checkpoint("out")
    'out/checkpoint-20'
    """
    checkpoints = _list_any_shape(Path(folder), PREFIX_CHECKPOINT_DIR)
    return str(checkpoints[-1]) if checkpoints else None


def rotate(
    output_dir: str | Path, limit: int | None, keep: Collection[str | Path] = (), run_id: str | None = None
) -> list[Path]:
    """Delete the oldest checkpoints until `limit` are left; never the newest nor one in `keep`. Return the deleted.

    With a `run_id`, only the checkpoints of that run are counted and deleted: another run's stay as they are. Without
    one, those of other libraries are, too.

    >>> rotate("out", limit=2, keep=[Path("out/checkpoint-10")])  # doctest: +SKIP
    [PosixPath('out/checkpoint-20')]
    """
    if limit is None or limit <= 0:
        return []
    if run_id is not None:
        checkpoints = list_checkpoints(output_dir, run_id=run_id)
    else:
        checkpoints = _list_any_shape(Path(output_dir), PREFIX_CHECKPOINT_DIR)
    protected = {_resolve_path(path) for path in (*keep, *checkpoints[-1:])}
    removable = [path for path in checkpoints if _resolve_path(path) not in protected]
    deleted = []
    for path in removable[: max(len(checkpoints) - limit, 0)]:
        try:
            discard(path)
            deleted.append(path)
        except OSError as error:  # too many checkpoints do not justify stopping a run
            warn(f"could not delete {path}: {error}")
    return deleted


def sort_checkpoints(
    output_dir: str | Path,
    checkpoint_prefix: str = PREFIX_CHECKPOINT_DIR,
    use_mtime: bool = False,
    best_model_checkpoint: str | Path | None = None,
) -> list[str]:
    """Return checkpoints in the order of deletion; the best one is put second to last, as transformers does.

    Args:
        output_dir: The directory that contains the checkpoints.
        checkpoint_prefix: What the names of the checkpoints begin with.
        use_mtime: Sort by the time of the last change, and not by step.
        best_model_checkpoint: The path of the best checkpoint.

    Returns:
        The paths; those that are deleted first come first.

    >>> sort_checkpoints("out", best_model_checkpoint="out/checkpoint-10")  # doctest: +SKIP
    ['out/checkpoint-20', 'out/checkpoint-10', 'out/checkpoint-30']
    """
    paths = _list_any_shape(Path(output_dir), checkpoint_prefix) if os.path.isdir(output_dir) else []
    if use_mtime:
        paths.sort(key=lambda path: path.stat().st_mtime_ns)
    if best_model_checkpoint is not None:
        best = _resolve_path(best_model_checkpoint)
        position = next((index for index, path in enumerate(paths) if _resolve_path(path) == best), None)
        if position is not None and position < len(paths) - 2:
            paths.insert(len(paths) - 2, paths.pop(position))
    return [str(path) for path in paths]


def _resolve_path(path: str | Path) -> str:
    return os.path.realpath(path)
