"""Messages for a checkpoint that the disk refused."""

from __future__ import annotations

import shutil
from pathlib import Path

from .disk import DiskError
from .space import explain_refusal, find_nearest_existing, format_size


def build_save_error(target: Path, error: BaseException, *, needed: int) -> DiskError:
    """Return the error for a checkpoint that could not be written, with the space it needs and the free space.

    >>> full = OSError(28, "No space left on device")
    >>> raise build_save_error(Path("out/checkpoint-20"), full, needed=1_200_000_000)  # doctest: +SKIP
    Traceback (most recent call last):
    ...
    ostinato.checkpoint.disk.DiskError: out/checkpoint-20 was not saved
      why: the disk of out is full: a checkpoint takes about 1.2 GB, 300.0 MB are free
      fix: free some space there, or give another output_dir
    """
    system = _find_system_error(error)
    if system is None:
        why, fix = str(error), "check that the disk has free space and that the directory is writable"
    else:
        why, fix = explain_refusal(target.parent, system)
    refusal = DiskError(
        what=f"{target} was not saved",
        why=f"{why}: a checkpoint takes about {format_size(needed)}{_format_free_space(target.parent)}",
        fix=fix,
    )
    refusal.errno, refusal.filename = getattr(system, "errno", None), str(target)
    return refusal


def format_warning(refusal: DiskError, before: Path | None) -> str:
    """Return the same as a warning, for a run that continues; `before` is the newest existing checkpoint."""
    kept = f"{before} is intact" if before is not None else "there is no earlier checkpoint"
    return f"{refusal.what}: {refusal.why}. {kept}; training continues, and the next save is tried as usual"


def _find_system_error(error: BaseException | None) -> OSError | None:
    """Return the error of the operating system that caused ours."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return OSError(error.errno, error.strerror or str(error))
        error = error.__cause__
    return None


def _format_free_space(directory: Path) -> str:
    try:
        return f", {format_size(shutil.disk_usage(find_nearest_existing(directory)).free)} are free"
    except OSError:
        return ""
