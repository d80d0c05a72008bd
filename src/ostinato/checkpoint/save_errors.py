"""Messages for a checkpoint that the disk refused."""

from __future__ import annotations

import shutil
from pathlib import Path

from .disk import DiskError
from .space import in_words, nearest_existing, reason


def not_saved(target: Path, error: BaseException, *, needed: int) -> DiskError:
    """Return the error for a checkpoint that could not be written, with the space it needs and the free space.

    >>> raise not_saved(Path("out/checkpoint-20"), OSError(28, "No space left on device"), needed=1_200_000_000)
    Traceback (most recent call last):
    ...
    ostinato.checkpoint.disk.DiskError: out/checkpoint-20 was not saved
      why: the disk of out is full: a checkpoint takes about 1.2 GB, 300.0 MB are free
      fix: free some space there, or give another output_dir
    """
    system = _system_error(error)
    if system is None:
        why, fix = str(error), "see that the disk has room and that the directory may be written to"
    else:
        why, fix = reason(target.parent, system)
    refusal = DiskError(
        what=f"{target} was not saved",
        why=f"{why}: a checkpoint takes about {in_words(needed)}{_free(target.parent)}",
        fix=fix,
    )
    refusal.errno, refusal.filename = getattr(system, "errno", None), str(target)
    return refusal


def in_one_line(refusal: DiskError, before: Path | None) -> str:
    """Return the same as a warning, for a run that continues; `before` is the newest existing checkpoint."""
    kept = f"{before} is intact" if before is not None else "there is no earlier checkpoint"
    return f"{refusal.what}: {refusal.why}. {kept}; training goes on, and the next save is tried as usual"


def _system_error(error: BaseException | None) -> OSError | None:
    """Return the error of the operating system that caused ours."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return OSError(error.errno, error.strerror or str(error))
        error = error.__cause__
    return None


def _free(directory: Path) -> str:
    try:
        return f", {in_words(shutil.disk_usage(nearest_existing(directory)).free)} are free"
    except OSError:
        return ""
