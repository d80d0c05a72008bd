"""The directory that a run writes to: check that it can be written to, and that the checkpoints will fit.

Both are checked before the first step. A run that cannot save should fail immediately, not after hours.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import CheckpointError
from . import io
from .file_names import PREFIX_CHECKPOINT_DIR

if TYPE_CHECKING:
    import torch

_TRIAL_BYTES = 4096  # bytes; an empty file fits on a full disk
_QUOTA = getattr(errno, "EDQUOT", None)
_FORECAST_ERROR = 0.1

# What a checkpoint holds besides the numbers themselves, in bytes: names, shapes and offsets of tensors in headers and
# JSON, random streams, the states of the trainer and its loop. It matters for the smallest models only.
_ALWAYS, _TRAINING_PARTS = 25_000, 17_000
_PER_WEIGHT, _PER_PARAMETER, _PER_STATE = 100, 50, 170


class OutputDirError(CheckpointError):
    """A directory that a run cannot write to. Subclasses also have the type of the system's own error."""


class OutputDirPermissionError(OutputDirError, PermissionError):
    """No permission to write."""


class OutputDirParentError(OutputDirError, NotADirectoryError):
    """A file in place of a parent directory."""


class OutputDirExistsError(OutputDirError, FileExistsError):
    """A file in place of the directory."""


class OutputDirNotFoundError(OutputDirError, FileNotFoundError):
    """A place where no directory can be made."""


_KINDS: dict[type[OSError], type[OutputDirError]] = {
    PermissionError: OutputDirPermissionError,
    NotADirectoryError: OutputDirParentError,
    FileExistsError: OutputDirExistsError,
    FileNotFoundError: OutputDirNotFoundError,
}


def check_writable(directory: str | Path) -> None:
    """Create the directory, and write, rename and remove a file in it as saving does. Leave only the directory behind.

    >>> check_writable("out")
    """
    directory = Path(directory)
    try:
        with _remove_new_directories_on_failure(directory):
            directory.mkdir(parents=True, exist_ok=True)
            _try_saving(directory)
    except (OSError, ValueError) as error:  # ValueError: a zero byte, half a character
        raise _build_directory_error(directory, error) from error


@contextmanager
def open_directory(directory: str | Path) -> Iterator[None]:
    """Run `check_writable` for a run: if the run fails and has written nothing, remove the directory again.

    >>> with open_directory("out"):  # doctest: +SKIP
    ...     trainer.train()
    """
    with _remove_new_directories_on_failure(Path(directory)):
        check_writable(directory)
        yield


def check_space(directory: str | Path, bytes_needed: int, *, keep: int | None) -> str | None:
    """Compare the free space with that of checkpoints of `bytes_needed` each; return a line to report, if any.

    `keep` is how many more will exist at once (see `count_coexisting`), None if that is not known. Raises if not
    even one fits.

    >>> check_space("out", 1_300_000_000, keep=4)  # doctest: +SKIP
    'out has space for 2 checkpoints of about 1.3 GB, and there will be 4: free 2.2 GB, ...'
    """
    directory = Path(directory)
    room = _find_free_space(directory)
    if room is None:
        return None
    if room.at_most < bytes_needed * (1 - _FORECAST_ERROR):
        error = OutputDirError(
            what=f"{directory} has no space for a checkpoint",
            why=f"one takes about {format_size(bytes_needed)}, and {format_size(room.at_most)} are free",
            fix="free some space, give another output_dir, or save less: save_only_model=True, save_strategy='no'",
        )
        error.errno = errno.ENOSPC
        raise error
    if keep is None or keep * bytes_needed <= room.free:
        return None
    fits, missing = room.free // bytes_needed, format_size(keep * bytes_needed - room.free)
    return (
        f"{directory} has space for {fits} checkpoint{'' if fits == 1 else 's'} of about {format_size(bytes_needed)}, "
        f"and there will be {keep}: free {missing}, or keep fewer with save_total_limit"
    )


def count_coexisting(saves: int | None, limit: int | None, *, present: int = 0) -> int | None:
    """Return how many more checkpoints will exist in a directory at once; None if that is not known.

    `saves` are still to come, `present` of the same run exist already. The oldest is deleted once the new one
    exists, so for a short time there is one more than the `limit`.

    >>> count_coexisting(saves=100, limit=2)
    3
    """
    if limit is None or limit <= 0:
        return saves
    more = max(limit + 1 - present, 1)
    return more if saves is None else min(saves, more)


def forecast_size(model: torch.nn.Module, optimizer_state_factor: float | None) -> int:
    """Return the size of one checkpoint, to within a tenth.

    `optimizer_state_factor`: how many numbers the optimizer keeps for each one it trains (Adam 2, plain SGD 0); see
    `estimate_state_factor`. None: only the model is saved.

    >>> forecast_size(model, optimizer_state_factor=2)  # doctest: +SKIP
    1332000000
    """
    adapters_only = bool(getattr(model, "peft_config", None))
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad or not adapters_only]
    buffers = [] if adapters_only else list(_iterate_saved_buffers(model))
    needed = _ALWAYS + sum(_count_bytes(tensor) + len(name) + _PER_WEIGHT for name, tensor in (*parameters, *buffers))
    if optimizer_state_factor is None:
        return needed
    trained = [p for _, p in parameters if p.requires_grad]
    entries = -(-optimizer_state_factor // 1) + 1 if optimizer_state_factor else 0  # Adam's two averages and a count
    needed += _TRAINING_PARTS + sum(int(_count_bytes(p) * optimizer_state_factor) + _PER_PARAMETER for p in trained)
    return int(needed + len(trained) * entries * _PER_STATE)


def estimate_state_factor(optimizer: Any) -> float:
    """Return how many numbers an optimizer keeps for each one it trains, judged by its settings; rather too few.

    >>> estimate_state_factor(torch.optim.AdamW(model.parameters()))  # doctest: +SKIP
    2.0
    """
    group = optimizer.param_groups[0] if getattr(optimizer, "param_groups", None) else {}
    name = type(optimizer).__name__.lower()
    if "adafactor" in name:
        return 0.0  # it keeps rows and columns instead of all
    if "lion" in name or "adagrad" in name:
        factor = 1.0
    elif "rmsprop" in name:
        factor = 1.0 + bool(group.get("centered")) + bool(group.get("momentum"))
    elif "betas" in group:
        factor = 2.0 + bool(group.get("amsgrad"))
    else:
        factor = 1.0 if group.get("momentum") else 0.0
    return factor / 4 if "8bit" in name else factor


@contextmanager
def _remove_new_directories_on_failure(directory: Path) -> Iterator[None]:
    """Remove the directories that were not there before and are empty, if the block fails."""
    missing = [level for level in (directory, *directory.parents) if not os.path.isdir(level)]
    try:
        yield
    except BaseException:
        for level in missing:
            with suppress(OSError, ValueError):  # never created, or in use
                level.rmdir()
        raise


class _FreeSpace(NamedTuple):
    free: int  # for all users
    at_most: int  # with what the file system reserves for root, if this process is root


def _try_saving(directory: Path) -> None:
    """Do what a save does, in small. The names are those of leftovers: the next run removes them if this one dies."""
    name = f".{PREFIX_CHECKPOINT_DIR}-{secrets.randbelow(10**12):012}"
    scratch, renamed = directory / f"{name}.partial", directory / f"{name}.trash"
    try:
        scratch.mkdir()
        io.create_file(scratch / f".writing-{secrets.token_hex(16)}", bytes(_TRIAL_BYTES))  # as long as names become
        os.rename(scratch, renamed)
        io.sync_directory(directory)
    except BaseException:
        for path in (scratch, renamed):
            shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(renamed)


def _build_directory_error(directory: Path, error: OSError | ValueError) -> OutputDirError:
    what = f"output_dir {str(directory)!r} cannot be written to"
    if not isinstance(error, OSError):
        return OutputDirError(what=what, why=f"it is not a path: {error}", fix="give another output_dir")
    why, fix = explain_refusal(directory, error)
    refusal = _KINDS.get(type(error), OutputDirError)(what=what, why=why, fix=fix)
    refusal.errno, refusal.filename = error.errno, str(directory)
    return refusal


def explain_refusal(directory: Path, error: OSError) -> tuple[str, str]:
    """Return why a directory cannot be written to, and what to do about it."""
    another = "give another output_dir"
    nearest = find_nearest_existing(directory)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return _describe_obstacle(directory), f"{another}, or move that away"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"permission denied in {nearest}{_describe_rights(nearest)}",
            f"{another}, or change the rights of {nearest}",
        )
    if error.errno == errno.EROFS:
        return f"the file system of {nearest} is read-only", f"{another}, on a writable disk"
    if error.errno in (errno.ENOSPC, _QUOTA):
        return _describe_full_disk(nearest, error), f"free some space there, or {another}"
    if error.errno == errno.ENAMETOOLONG:
        return _describe_long_path(directory), f"{another}, with a shorter path"
    if error.errno == errno.EIO:
        return f"the disk of {nearest} reports: {error.strerror or error}", f"{another}, on another disk"
    if error.errno == errno.EFBIG:
        return f"the file would be too large for {nearest}", another
    return f"{error.strerror or error} ({nearest} is the last part of the path that exists)", another


def find_nearest_existing(directory: Path) -> Path:
    """Return the last part of a path that exists."""
    return next((level for level in (directory, *directory.parents) if os.path.lexists(level)), directory)


def _describe_obstacle(directory: Path) -> str:
    for level in (*reversed(directory.parents), directory):
        if level.is_symlink() and not level.exists():
            return f"{level} is a link to {os.readlink(level)}, which does not exist"
        if os.path.lexists(level) and not level.is_dir():
            return f"{level} is a file, not a directory"
    return f"{directory} is not a directory"


def _describe_rights(path: Path) -> str:
    try:
        status = os.stat(path)
        return f" ({stat.filemode(status.st_mode)} of user {status.st_uid}; this process is user {os.geteuid()})"
    except (OSError, AttributeError):  # Windows has no user ids
        return ""


def _describe_full_disk(path: Path, error: OSError) -> str:
    if error.errno == _QUOTA:
        return f"your quota on the disk of {path} is used up"
    try:
        if os.statvfs(path).f_files and not os.statvfs(path).f_favail:
            return f"the disk of {path} has no free inodes: it cannot hold more files"
    except (OSError, AttributeError):
        pass
    return f"the disk of {path} is full"


def _describe_long_path(directory: Path) -> str:
    for part in directory.parts:
        if len(os.fsencode(part)) > 255:
            return f"the name {part[:20]}… has {len(os.fsencode(part))} bytes; most file systems allow 255"
    length = len(os.fsencode(directory))
    return f"its path has {length} bytes; with the names of a checkpoint's files that is more than the system allows"


def _find_free_space(directory: Path) -> _FreeSpace | None:
    """Return the free space on the disk of a directory; None if the file system does not report it."""
    try:
        usage = shutil.disk_usage(find_nearest_existing(directory))
        at_most = usage.free
        if os.name == "posix" and os.geteuid() == 0:
            status = os.statvfs(find_nearest_existing(directory))
            at_most = status.f_bfree * status.f_frsize
    except OSError:
        return None
    return _FreeSpace(usage.free, max(usage.free, at_most)) if usage.total > 0 else None


def _iterate_saved_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    seen: set[int] = set()
    for path, module in model.named_modules():
        unsaved: Iterable[str] = getattr(module, "_non_persistent_buffers_set", ())
        for name, buffer in module.named_buffers(recurse=False):
            if name not in unsaved and id(buffer) not in seen:
                seen.add(id(buffer))
                yield f"{path}.{name}", buffer


def _count_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def format_size(number: float) -> str:
    """Return a number of bytes in a readable unit.

    >>> format_size(1_300_000_000)
    '1.3 GB'
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"
