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

_TRIAL = 4096  # bytes; an empty file fits on a full disk
_QUOTA = getattr(errno, "EDQUOT", None)
_FORECAST_ERROR = 0.1

# What a checkpoint holds besides the numbers themselves, in bytes: names, shapes and offsets of tensors in headers and
# JSON, random streams, the states of the trainer and its loop. It matters for the smallest models only.
_ALWAYS, _TRAINING_PARTS = 25_000, 17_000
_PER_WEIGHT, _PER_PARAMETER, _PER_STATE = 100, 50, 170


class HomeError(CheckpointError):
    """A directory that a run cannot write to. Subclasses also have the type of the system's own error."""


class HomePermissionError(HomeError, PermissionError):
    """No permission to write."""


class HomeNotADirectoryError(HomeError, NotADirectoryError):
    """A file in place of a parent directory."""


class HomeExistsError(HomeError, FileExistsError):
    """A file in place of the directory."""


class HomeNotFoundError(HomeError, FileNotFoundError):
    """A place where no directory can be made."""


_KINDS: dict[type[OSError], type[HomeError]] = {
    PermissionError: HomePermissionError,
    NotADirectoryError: HomeNotADirectoryError,
    FileExistsError: HomeExistsError,
    FileNotFoundError: HomeNotFoundError,
}


def check_writable(directory: str | Path) -> None:
    """Create the directory, and write, rename and remove a file in it as saving does. Leave only the directory behind.

    >>> check_writable("out")
    """
    directory = Path(directory)
    try:
        with _nothing_left_of_a_failure(directory):
            directory.mkdir(parents=True, exist_ok=True)
            _try_out(directory)
    except (OSError, ValueError) as error:  # ValueError: a zero byte, half a character
        raise _refusal(directory, error) from error


@contextmanager
def open_home(directory: str | Path) -> Iterator[None]:
    """Run `check_writable` for a run: if the run fails and has written nothing, remove the directory again.

    >>> with open_home("out"):
    ...     trainer.train()
    """
    with _nothing_left_of_a_failure(Path(directory)):
        check_writable(directory)
        yield


def check_space(directory: str | Path, bytes_needed: int, *, keep: int | None) -> str | None:
    """Compare the free space with that of checkpoints of `bytes_needed` each; return a line to report, if any.

    `keep` is how many more will exist at once (see `checkpoints_at_once`), None if that is not known. Raises if not
    even one fits.

    >>> check_space("out", 1_300_000_000, keep=4)
    'out has room for 2 checkpoints of about 1.3 GB, and there will be 4: free 2.2 GB, ...'
    """
    directory = Path(directory)
    room = _room(directory)
    if room is None:
        return None
    if room.at_most < bytes_needed * (1 - _FORECAST_ERROR):
        error = HomeError(
            what=f"{directory} has no room for a checkpoint",
            why=f"one takes about {in_words(bytes_needed)}, and {in_words(room.at_most)} are free",
            fix="free some space, give another output_dir, or save less: save_only_model=True, save_strategy='no'",
        )
        error.errno = errno.ENOSPC
        raise error
    if keep is None or keep * bytes_needed <= room.free:
        return None
    fits, missing = room.free // bytes_needed, in_words(keep * bytes_needed - room.free)
    return (
        f"{directory} has room for {fits} checkpoint{'' if fits == 1 else 's'} of about {in_words(bytes_needed)}, "
        f"and there will be {keep}: free {missing}, or keep fewer with save_total_limit"
    )


def checkpoints_at_once(saves: int | None, limit: int | None, *, present: int = 0) -> int | None:
    """Return how many more checkpoints will exist in a directory at once; None if that is not known.

    `saves` are still to come, `present` of the same run exist already. The oldest is deleted once the new one
    exists, so for a short time there is one more than the `limit`.

    >>> checkpoints_at_once(saves=100, limit=2)
    3
    """
    if limit is None or limit <= 0:
        return saves
    more = max(limit + 1 - present, 1)
    return more if saves is None else min(saves, more)


def forecast_bytes(model: torch.nn.Module, optimizer_state_factor: float | None) -> int:
    """Return the size of one checkpoint, to within a tenth.

    `optimizer_state_factor`: how many numbers the optimizer keeps for each one it trains (Adam 2, plain SGD 0); see
    `state_factor`. None: only the model is saved.

    >>> forecast_bytes(model, optimizer_state_factor=2)
    1332000000
    """
    adapters_only = bool(getattr(model, "peft_config", None))
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad or not adapters_only]
    buffers = [] if adapters_only else list(_saved_buffers(model))
    needed = _ALWAYS + sum(_size(tensor) + len(name) + _PER_WEIGHT for name, tensor in (*parameters, *buffers))
    if optimizer_state_factor is None:
        return needed
    trained = [p for _, p in parameters if p.requires_grad]
    entries = -(-optimizer_state_factor // 1) + 1 if optimizer_state_factor else 0  # Adam's two averages and a count
    needed += _TRAINING_PARTS + sum(int(_size(p) * optimizer_state_factor) + _PER_PARAMETER for p in trained)
    return int(needed + len(trained) * entries * _PER_STATE)


def state_factor(optimizer: Any) -> float:
    """Return how many numbers an optimizer keeps for each one it trains, judged by its settings; rather too few.

    >>> state_factor(torch.optim.AdamW(model.parameters()))
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
def _nothing_left_of_a_failure(directory: Path) -> Iterator[None]:
    """Remove the directories that were not there before and are empty, if the block fails."""
    missing = [level for level in (directory, *directory.parents) if not os.path.isdir(level)]
    try:
        yield
    except BaseException:
        for level in missing:
            with suppress(OSError, ValueError):  # never created, or in use
                level.rmdir()
        raise


class _Room(NamedTuple):
    free: int  # for all users
    at_most: int  # with what the file system reserves for root, if this process is root


def _try_out(directory: Path) -> None:
    """Do what a save does, in small. The names are those of leftovers: the next run removes them if this one dies."""
    name = f".{PREFIX_CHECKPOINT_DIR}-{secrets.randbelow(10**12):012}"
    scratch, renamed = directory / f"{name}.partial", directory / f"{name}.trash"
    try:
        scratch.mkdir()
        io.create_plain(scratch / f".writing-{secrets.token_hex(16)}", bytes(_TRIAL))  # as long as names become
        os.rename(scratch, renamed)
        io.sync_directory(directory)
    except BaseException:
        for path in (scratch, renamed):
            shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(renamed)


def _refusal(directory: Path, error: OSError | ValueError) -> HomeError:
    what = f"output_dir {str(directory)!r} cannot be written to"
    if not isinstance(error, OSError):
        return HomeError(what=what, why=f"it is not a path: {error}", fix="give another output_dir")
    why, fix = reason(directory, error)
    refusal = _KINDS.get(type(error), HomeError)(what=what, why=why, fix=fix)
    refusal.errno, refusal.filename = error.errno, str(directory)
    return refusal


def reason(directory: Path, error: OSError) -> tuple[str, str]:
    """Return why a directory cannot be written to, and what to do about it."""
    another = "give another output_dir"
    nearest = nearest_existing(directory)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return _obstacle(directory), f"{another}, or move that away"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"permission denied in {nearest}{_rights(nearest)}", f"{another}, or change the rights of {nearest}"
    if error.errno == errno.EROFS:
        return f"the file system of {nearest} can only be read", f"{another}, on a disk that can be written to"
    if error.errno in (errno.ENOSPC, _QUOTA):
        return _fullness(nearest, error), f"free some space there, or {another}"
    if error.errno == errno.ENAMETOOLONG:
        return _length(directory), f"{another}, with a shorter path"
    if error.errno == errno.EIO:
        return f"the disk of {nearest} says: {error.strerror or error}", f"{another}, on another disk"
    if error.errno == errno.EFBIG:
        return f"a file may not become that large in {nearest}", another
    return f"{error.strerror or error} ({nearest} is the last part of it that is there)", another


def nearest_existing(directory: Path) -> Path:
    """Return the last part of a path that exists."""
    return next((level for level in (directory, *directory.parents) if os.path.lexists(level)), directory)


def _obstacle(directory: Path) -> str:
    for level in (*reversed(directory.parents), directory):
        if level.is_symlink() and not level.exists():
            return f"{level} is a link to {os.readlink(level)}, which does not exist"
        if os.path.lexists(level) and not level.is_dir():
            return f"{level} is a file, not a directory"
    return f"{directory} is not a directory"


def _rights(path: Path) -> str:
    try:
        status = os.stat(path)
        return f" ({stat.filemode(status.st_mode)} of user {status.st_uid}; this process is user {os.geteuid()})"
    except (OSError, AttributeError):  # Windows has no user ids
        return ""


def _fullness(path: Path, error: OSError) -> str:
    if error.errno == _QUOTA:
        return f"your quota on the disk of {path} is used up"
    try:
        if os.statvfs(path).f_files and not os.statvfs(path).f_favail:
            return f"the disk of {path} cannot hold any more files, however small"
    except (OSError, AttributeError):
        pass
    return f"the disk of {path} is full"


def _length(directory: Path) -> str:
    for part in directory.parts:
        if len(os.fsencode(part)) > 255:
            return f"the name {part[:20]}… has {len(os.fsencode(part))} bytes, and 255 is what most file systems take"
    length = len(os.fsencode(directory))
    return f"its path has {length} bytes; with the names of a checkpoint's files that is more than the system takes"


def _room(directory: Path) -> _Room | None:
    """Return the free space on the disk of a directory; None if the file system does not report it."""
    try:
        usage = shutil.disk_usage(nearest_existing(directory))
        at_most = usage.free
        if os.name == "posix" and os.geteuid() == 0:
            status = os.statvfs(nearest_existing(directory))
            at_most = status.f_bfree * status.f_frsize
    except OSError:
        return None
    return _Room(usage.free, max(usage.free, at_most)) if usage.total > 0 else None


def _saved_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    seen: set[int] = set()
    for path, module in model.named_modules():
        unsaved: Iterable[str] = getattr(module, "_non_persistent_buffers_set", ())
        for name, buffer in module.named_buffers(recurse=False):
            if name not in unsaved and id(buffer) not in seen:
                seen.add(id(buffer))
                yield f"{path}.{name}", buffer


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def in_words(number: float) -> str:
    """Return a number of bytes in a readable unit.

    >>> in_words(1_300_000_000)
    '1.3 GB'
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"
