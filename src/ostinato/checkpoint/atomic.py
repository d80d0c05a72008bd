"""Directories that appear whole or not at all.

    with atomic_directory(Path("out/checkpoint-20")) as scratch:    # out/.checkpoint-20.partial
        (scratch / "model.safetensors").write_bytes(...)
    # out/checkpoint-20 exists now, with MANIFEST.json; had anything failed, it would not

The manifest is written last, and the directory gets its name after that. On a disk either would be enough; where
renaming is copying (object stores mounted as a disk) the manifest still distinguishes a complete directory from an
incomplete one. It protects against damage, not against an attacker, who can write another manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import CheckpointError
from ..core.notices import warn
from . import io
from .disk import Sealed, disk, hash_rest
from .file_names import (
    BEST_MODEL_NAME,
    LOOP_NAME,
    MANIFEST_NAME,
    OPTIMIZER_NAME,
    PREFIX_CHECKPOINT_DIR,
    RUN_NAME,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_JSON_NAME,
    is_plain_name,
)

FORMAT = 1

_MAX_DEPTH = 16  # directories inside directories
_STEP = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d+)")
_LEFTOVER = re.compile(rf"\.({PREFIX_CHECKPOINT_DIR}-\d+|{BEST_MODEL_NAME})\.(partial|replaced|trash)")
_TOKEN = ".writing-"
_OUR_PARTS = (OPTIMIZER_NAME, SCHEDULER_NAME, LOOP_NAME, RUN_NAME, TRAINING_ARGS_JSON_NAME, "rng-0.json")


def _skip_barrier() -> None:
    pass


@contextmanager
def atomic_directory(
    target: Path, *, leader: bool = True, barrier: Callable[[], None] = _skip_barrier
) -> Iterator[Path]:
    """Yield a scratch directory that becomes `target` once the block has succeeded in every process.

    Every process enters; one of them leads. If the block fails in any process, the scratch directory is removed, an
    existing `target` stays as it was, and every process raises: its own error, or that another process failed.

    >>> with atomic_directory(Path("out/checkpoint-20")) as scratch:
    ...     _ = (scratch / "trainer_state.json").write_text("{}")
    """
    target = Path(target)
    scratch = find_scratch(target)
    try:
        failure = catch_error(lambda: create_scratch(target)) if leader else None
        barrier()  # the directory exists
        try:
            if failure is not None:
                raise failure
            if not scratch.is_dir():
                raise build_other_process_error(target)
            # Each process creates a token here and removes it below. Removing takes no space: a full disk cannot hide
            # a failure.
            token = scratch / f"{_TOKEN}{uuid.uuid4().hex}"
            token.touch(exist_ok=False)
            yield scratch
            token.unlink()
        except Exception as error:
            failure = error
        barrier()  # all processes have written
        if leader and failure is None:
            failure = catch_error(lambda: _commit(target))
        barrier()  # the directory has its name, or the commit failed
        failed_elsewhere = failure is None and scratch.exists()
        barrier()  # all processes have seen the outcome
    finally:
        if leader:
            discard_hidden(scratch)
    if failure is not None:
        raise failure
    if failed_elsewhere:
        raise build_other_process_error(target)


def find_scratch(target: Path) -> Path:
    """Return the directory in which `target` is written until it is complete."""
    return _build_hidden_path(target, "partial")


def create_scratch(target: Path) -> Path:
    """Create the empty scratch directory beside `target`, for callers that cannot stay inside `atomic_directory`.

    Follow it with `seal` and `publish`, or with `abandon`.
    """
    scratch = find_scratch(target)
    disk().remove(scratch)
    disk().make_directory(scratch)
    return scratch


def seal(target: Path, known: Mapping[Path, Sealed] | None = None) -> None:
    """Flush the scratch directory of `target` to the disk, its manifest last.

    `known` are files that are on the disk already and were hashed while they were written.
    """
    with _name_disk_errors(target):
        _seal(find_scratch(target), target, known or {})


def seal_file(path: Path) -> Sealed:
    """Flush one file to the disk, and read it for its hash."""
    descriptor = io.open_regular(path)
    try:
        return disk().seal(path, descriptor)
    finally:
        os.close(descriptor)


def publish(target: Path) -> Path | None:
    """Give the sealed directory its name. Return the new path of what had the name before, to be deleted."""
    with _name_disk_errors(target):
        return _publish(find_scratch(target), target)


def abandon(target: Path) -> None:
    """Remove the scratch directory; `target` stays as it was."""
    discard_hidden(find_scratch(target))


def verify(path: Path, *, contents: bool = True, ignoring: Collection[str] = ()) -> None:
    """Raise `CheckpointError` unless every file of the checkpoint is there as it was written.

    `contents=False` compares sizes only, which is fast and finds what a crash does; the default reads every byte.
    Files named in `ignoring` are skipped.

    >>> verify(Path("out/checkpoint-20"))
    """
    for damage in find_damage(path, contents=contents, ignoring=ignoring):
        raise _build_damage_error(Path(path), damage.why)


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written, and in what way."""

    file: str
    why: str


def find_damage(path: Path, *, contents: bool = True, ignoring: Collection[str] = ()) -> Iterator[Damage]:
    """Yield every file that `verify` would report, one after the other as they are read.

    Raises `CheckpointError` where there is no valid manifest.

    >>> list(find_damage(Path("out/checkpoint-20")))
    []
    """
    path = Path(path)
    if not path.is_dir():
        raise CheckpointError(what=f"there is no checkpoint {path}", why="it is not a directory")
    manifest = _read_manifest(path)
    if ignoring and isinstance(manifest.get("files"), dict):
        manifest = {**manifest, "files": {k: v for k, v in manifest["files"].items() if k not in ignoring}}
    yield from _find_damage_in(path, manifest, contents=contents)


def has_manifest(path: Path) -> bool:
    """Return whether the directory has a manifest to verify. What transformers wrote has none."""
    return os.path.lexists(Path(path) / MANIFEST_NAME)


def list_sealed_files(path: Path) -> set[str]:
    """Return the files that a directory's manifest lists, and the manifest; none where there is no valid manifest.

    >>> list_sealed_files(Path("out/checkpoint-20"))  # doctest: +SKIP
    {'MANIFEST.json', 'model.safetensors', ...}
    """
    try:
        return {MANIFEST_NAME, *_list_files(_read_manifest(path))}
    except CheckpointError:
        return set()


def _list_files(listed: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    yield from (f"{prefix}{name}" for name in listed["files"])
    for name, inside in listed["directories"].items():
        yield from _list_files(inside, f"{prefix}{name}/")


def is_checkpoint(path: Path) -> bool:
    """Return whether discovery may offer the directory: whole by its manifest and sizes, or finished by transformers.

    >>> is_checkpoint(Path("out/.checkpoint-20.partial"))
    False
    """
    return find_defect(path) is None


def is_own(path: Path) -> bool:
    """Return whether the directory is a checkpoint of this library, whole or not."""
    return has_manifest(path) or any((Path(path) / name).exists() for name in _OUR_PARTS)


def find_defect(path: Path) -> str | None:
    """Return the reason why `is_checkpoint` is False; None if it is True."""
    path = Path(path)
    if has_manifest(path):
        try:
            verify(path, contents=False)
        except CheckpointError as error:
            return error.why
        return None
    if not path.is_dir():
        return "it is not a directory"
    if is_own(path):
        return f"{MANIFEST_NAME} is missing"
    if (path / TRAINER_STATE_NAME).is_file():  # transformers writes it last
        return None
    return f"it has neither {MANIFEST_NAME} nor {TRAINER_STATE_NAME}"


def format_skip_key(path: Path) -> str:
    """Return the key under which a directory that is not whole is reported once: several functions examine it."""
    return f"left out: {os.path.realpath(path)}"


def discard(path: Path) -> None:
    """Delete a directory so that it is never visible half deleted: it loses its name first.

    >>> discard(Path("out/checkpoint-10"))  # doctest: +SKIP
    """
    path = Path(path)
    trash = _build_hidden_path(path, "trash")
    disk().remove(trash)
    disk().rename(path, trash)
    io.sync_directory(path.parent)
    discard_hidden(trash)


def sweep_leftovers(output_dir: Path) -> list[str]:
    """Remove what a killed run left behind; return the names. Call it only while no other process writes there.

    A checkpoint that was being replaced is restored if its replacement never got its name.
    """
    output_dir = Path(output_dir)
    if not output_dir.is_dir():
        return []
    swept = []
    for name in sorted(os.listdir(output_dir)):
        match = _LEFTOVER.fullmatch(name)
        if not match:
            continue
        target = output_dir / match[1]
        if match[2] == "replaced" and not os.path.lexists(target):
            disk().rename(output_dir / name, target)
        else:
            discard_hidden(output_dir / name)
        swept.append(name)
    return swept


def _build_hidden_path(target: Path, purpose: str) -> Path:
    return target.with_name(f".{target.name}.{purpose}")


def catch_error(action: Callable[[], object]) -> Exception | None:
    """Return the error of an action instead of raising it: the next barrier has to be reached before it is raised."""
    try:
        action()
    except Exception as error:
        return error
    return None


class OtherProcessError(CheckpointError):
    """Another process could not write its part."""


def build_other_process_error(target: Path) -> OtherProcessError:
    """Return the error of a process whose own part was written."""
    return OtherProcessError(
        what=f"{target} was not saved",
        why="another process failed while writing its part",
        fix="see the error of that process",
    )


@contextmanager
def _name_disk_errors(target: Path) -> Iterator[None]:
    """Convert errors of the system into one that names the checkpoint."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise io.build_write_error(target, error) from error


def _commit(target: Path) -> None:
    seal(target)
    replaced = publish(target)
    if replaced is not None:
        discard_hidden(replaced)


def _seal(scratch: Path, target: Path, known: Mapping[Path, Sealed]) -> None:
    if any(name.startswith(_TOKEN) for name in os.listdir(scratch)):
        raise build_other_process_error(target)
    if os.path.lexists(scratch / MANIFEST_NAME):
        raise CheckpointError(
            what=f"{target} was not saved",
            why=f"something else wrote a file called {MANIFEST_NAME} into it",
            fix="give that file another name",
        )
    match = _STEP.fullmatch(target.name)
    content = {"format": FORMAT, "step": int(match[1]) if match else None, **_seal_directory(scratch, known, depth=0)}
    manifest = {**content, "sha256": _hash_manifest(content)}
    io.create_file(scratch / MANIFEST_NAME, json.dumps(manifest, indent=1).encode("ascii"))
    io.sync_directory(scratch)


def _seal_directory(directory: Path, known: Mapping[Path, Sealed], *, depth: int) -> dict[str, Any]:
    """Flush every file to the disk; return what the manifest says about this directory."""
    if depth > _MAX_DEPTH:
        raise CheckpointError(what=f"cannot save {directory}", why=f"more than {_MAX_DEPTH} directories deep")
    sealed: dict[str, Any] = {"files": {}, "directories": {}}
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if not is_plain_name(entry.name):
            raise CheckpointError(what=f"cannot save {entry.name!r}", why="its name has a separator in it")
        if entry.is_dir(follow_symlinks=False):
            sealed["directories"][entry.name] = _seal_directory(Path(entry.path), known, depth=depth + 1)
        elif entry.is_file(follow_symlinks=False):
            sealed["files"][entry.name] = _seal_file(Path(entry.path), known.get(Path(entry.path)))
        else:
            raise CheckpointError(
                what=f"cannot save {entry.name}",
                why="it is a link or a special file, and its target is not part of the checkpoint",
                fix="copy the file into the checkpoint instead",
            )
    io.sync_directory(directory)
    return sealed


def _seal_file(path: Path, known: Sealed | None) -> dict[str, Any]:
    if known is None or not known.is_unchanged(path):
        known = seal_file(path)
    return {"size": known.size, "sha256": known.sha256}


def _hash_manifest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _publish(scratch: Path, target: Path) -> Path | None:
    """Give the directory its name; if that fails, restore the previous state."""
    aside = _build_hidden_path(target, "replaced")
    replaces = os.path.lexists(target)
    if replaces:
        disk().remove(aside)
        disk().rename(target, aside)
    try:
        disk().rename(scratch, target)
        io.sync_directory(target.parent)
    except BaseException:
        if not os.path.lexists(scratch):
            disk().rename(target, scratch)
        if replaces:
            disk().rename(aside, target)
        raise
    return aside if replaces else None


def discard_hidden(path: Path) -> None:
    """Delete a directory that is no longer visible; a failure to delete it does not stop a run."""
    try:
        disk().remove(path)
    except OSError as error:
        warn(f"could not delete {path}: {error}")


def _build_damage_error(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        what=f"checkpoint {path} is damaged",
        why=why,
        fix="resume from an earlier checkpoint, or remove this one",
    )


def _read_manifest(path: Path) -> dict[str, Any]:
    if not has_manifest(path):
        raise _build_damage_error(path, f"{MANIFEST_NAME} is missing")
    try:
        manifest = io.read_json(path / MANIFEST_NAME)
    except CheckpointError as error:
        raise _build_damage_error(path, error.why) from error
    if not isinstance(manifest, dict):
        raise _build_damage_error(path, f"{MANIFEST_NAME} is altered: not an object")
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    try:
        intact = manifest.get("sha256") == _hash_manifest(content)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise _build_damage_error(path, f"{MANIFEST_NAME} is altered: it does not match its own hash")
    if content.get("format") != FORMAT:
        raise CheckpointError(
            what=f"checkpoint {path} cannot be read",
            why=f"its format is {content.get('format')!r}, this version reads {FORMAT}",
            fix="use the version of Ostinato that wrote it, or a newer one",
        )
    return content


def _find_damage_in(root: Path, listed: Any, *, contents: bool, prefix: str = "", depth: int = 0) -> Iterator[Damage]:
    entries = listed.get("files") if isinstance(listed, dict) else None
    directories = listed.get("directories") if isinstance(listed, dict) else None
    if not isinstance(entries, dict) or not isinstance(directories, dict) or depth > _MAX_DEPTH:
        yield Damage(MANIFEST_NAME, f"{MANIFEST_NAME} has no valid list of files")
        return
    for name in (*entries, *directories):
        if not is_plain_name(name):
            yield Damage(MANIFEST_NAME, f"{MANIFEST_NAME} names {name!r}, which leads out of the checkpoint")
            return
    for name, entry in entries.items():
        shown = f"{prefix}{name}"
        why = _find_file_damage(root, shown, entry, contents=contents)
        if why is not None:
            yield Damage(shown, why)
    for name, inner in directories.items():
        shown = f"{prefix}{name}"
        if not os.path.lexists(root / shown):
            yield Damage(shown, f"{shown} is missing")
        elif not stat.S_ISDIR(os.lstat(root / shown).st_mode):
            yield Damage(shown, f"{shown} is altered: not a directory")
        else:
            yield from _find_damage_in(root, inner, contents=contents, prefix=f"{shown}/", depth=depth + 1)


def _find_file_damage(root: Path, name: str, entry: Any, *, contents: bool) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("size"), int) or "sha256" not in entry:
        return f"{MANIFEST_NAME} has no size and hash of {name}"
    if not os.path.lexists(root / name):
        return f"{name} is missing"
    if (root / name).is_symlink():
        return f"{name} is altered: a link, which is not followed"
    try:
        size, digest = _measure(root / name, contents=contents)
    except OSError as error:
        return f"{name} cannot be read: {error}"
    if size != entry["size"]:
        kind = "truncated" if size < entry["size"] else "altered"
        return f"{name} is {kind}: {size} bytes of {entry['size']}"
    if contents and digest != entry["sha256"]:
        return f"{name} is altered: its contents do not match the hash in {MANIFEST_NAME}"
    return None


def _measure(path: Path, *, contents: bool) -> tuple[int, str | None]:
    descriptor = io.open_regular(path)
    try:
        return os.fstat(descriptor).st_size, hash_rest(descriptor) if contents else None
    finally:
        os.close(descriptor)
