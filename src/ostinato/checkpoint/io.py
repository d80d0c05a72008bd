"""Read and write single files: bounded, regular, never through a symbolic link."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from ..core.errors import CheckpointError
from .disk import DiskError, disk

LARGEST_JSON = 64 * 2**20  # bytes; reading is bounded, so writing has to be

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NON_BLOCKING = getattr(os, "O_NONBLOCK", 0)  # opening a pipe must not block; it is refused right after
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> int:
    """Open a regular file for reading; return its descriptor. Links, pipes and devices are an error."""
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | _NON_BLOCKING | _CLOSE_ON_EXEC | _BINARY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return descriptor


def create_file(path: Path, content: bytes) -> None:
    """Write a new file, and return once it is on the disk."""
    disk().write(path, [content])


def sync_directory(path: Path) -> None:
    """Return once the entries of a directory (names, renames) are on the disk."""
    disk().sync_directory(path)


def write_json(path: Path, content: Any) -> None:
    """Write JSON as ASCII, so that every string survives. Raise for content that `read_json` would refuse."""
    text = json.dumps(content, allow_nan=False)
    if len(text) > LARGEST_JSON:
        raise CheckpointError(
            what=f"cannot save {path.name}",
            why=f"it would take {len(text)} bytes of JSON, more than the limit of {LARGEST_JSON} for reading",
            fix="keep large values in tensors or arrays, which are stored separately",
        )
    try:
        path.write_text(text + "\n", encoding="ascii")
    except OSError as error:
        raise build_write_error(path, error) from error


def read_json(path: Path) -> Any:
    """Read JSON of bounded size and depth."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(LARGEST_JSON + 2)
    except FileNotFoundError as error:
        raise build_missing_error(path) from error
    except OSError as error:
        raise build_broken_error(path, f"{path.name} cannot be read: {error}") from error
    if len(content) > LARGEST_JSON + 1:
        raise build_broken_error(path, f"{path.name} is larger than {LARGEST_JSON} bytes")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise build_broken_error(path, f"{path.name} is not JSON that can be read: {error}") from error


def build_missing_error(path: Path) -> CheckpointError:
    """Return the error for a required file that is missing."""
    return CheckpointError(
        what=f"checkpoint {path.parent} has no {path.name}",
        why=f"{path.name} is missing",
        fix="resume from another checkpoint; without this part the run would not continue as it was",
    )


def build_broken_error(path: Path, why: str) -> CheckpointError:
    """Return the error for a file that exists and cannot be used."""
    return CheckpointError(
        what=f"checkpoint {path.parent} cannot be read",
        why=why,
        fix="resume from another checkpoint, or remove this one",
    )


def build_write_error(path: Path, error: Exception) -> DiskError:
    """Return the error for a file that could not be written."""
    refusal = DiskError(
        what=f"cannot write {path}",
        why=str(error),
        fix="check that the disk has free space and that the directory is writable",
    )
    refusal.errno, refusal.filename = getattr(error, "errno", None), str(path)
    return refusal
