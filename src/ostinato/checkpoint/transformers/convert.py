"""Convert a checkpoint from one layout to the other. Weights are copied as files; no model is built."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal

from ...core.errors import CheckpointError
from ...core.notices import note_once
from ...core.random import RandomState
from .. import io
from ..atomic import atomic_directory, has_manifest, verify
from ..file_names import (
    LOOP_NAME,
    MANIFEST_NAME,
    OPTIMIZER_NAME,
    TRAINER_STATE_NAME,
    TRAINING_ARGS_JSON_NAME,
    TRAINING_ARGS_NAME,
)
from ..tensors import read_tree, write_tree
from . import read, write
from .detect import (
    OPTIMIZER_PT,
    ORIGIN,
    PICKLED_WEIGHTS_INDEX_NAME,
    SCALER_PT,
    SIDECAR,
    find_random_ranks,
    format_random_name,
    is_from_transformers,
)

_OURS = re.compile(r"(optimizer|scheduler|scaler|loop|rng-\d+)\.(json|safetensors)")
_THEIRS = re.compile(rf"(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|{SIDECAR}\.(json|safetensors)")


def convert(source: str | Path, target: str | Path, *, to: Literal["ostinato", "transformers"]) -> None:
    """Write a checkpoint in the layout of the other library; `target` appears whole or not at all.

    After converting there and back every tensor is the same, bit for bit. What transformers has no file for (running
    sums, the position in the data) is kept in `ostinato.json`, which it does not read.

    >>> convert("out/checkpoint-20", "for-transformers/checkpoint-20", to="transformers")  # doctest: +SKIP
    """
    source, target = Path(source), Path(target)
    _check_conversion(source, target, to)
    with atomic_directory(target) as scratch:
        if to == "transformers":
            _convert_to_transformers(source, scratch)
        else:
            _convert_to_ostinato(source, scratch)


def _check_conversion(source: Path, target: Path, to: str) -> None:
    if to not in ("ostinato", "transformers"):
        raise CheckpointError(
            what=f"cannot convert to {to!r}", why="there are two layouts", fix="use to='ostinato' or to='transformers'"
        )
    if os.path.lexists(target):
        raise CheckpointError(
            what=f"{target} already exists", why="nothing is overwritten", fix="give another target, or remove it"
        )
    if source.resolve() in target.resolve().parents:
        raise CheckpointError(
            what=f"{target} is inside {source}", why="the source is not changed", fix="give a target outside of it"
        )
    if not (source / TRAINER_STATE_NAME).is_file():
        raise CheckpointError(
            what=f"{source} is not a checkpoint",
            why=f"it has no {TRAINER_STATE_NAME}",
            fix="give a directory checkpoint-N of a run",
        )
    if has_manifest(source):
        verify(source)
    has_ours, has_theirs = (source / OPTIMIZER_NAME).exists(), (source / OPTIMIZER_PT).exists()
    if not has_ours and not has_theirs:
        raise io.build_missing_error(source / (OPTIMIZER_NAME if (source / LOOP_NAME).exists() else OPTIMIZER_PT))
    if (has_ours, has_theirs) == ((True, False) if to == "ostinato" else (False, True)):
        raise CheckpointError(
            what=f"{source} needs no conversion", why=f"it already has the layout of {to}", fix="use it unchanged"
        )


# ---- to transformers -----------------------------------------------------------------------------------------------


def _convert_to_transformers(source: Path, target: Path) -> None:
    _copy(source, target, leaving_out=lambda name: _OURS.fullmatch(name) or _THEIRS.fullmatch(name))
    parts = {name: _read_part(source, name) for name in ("optimizer", "scheduler", "scaler")}
    for name, part in parts.items():
        if part is not None:
            write.write_torch_file(target / f"{name}.pt", part.pop("state_dict"))
    world_size = _read_world_size(source)
    for rank in range(world_size):
        streams = RandomState.read(read_tree(source, f"rng-{rank}")["streams"])
        write.write_random_state(target, streams, rank, world_size)
    if not is_from_transformers(source):  # else nothing is known that is not in their files
        loop = read_tree(source, LOOP_NAME.removesuffix(".json"))
        write_tree({"parts": parts, "loop": loop, "streams": _read_extra_streams(source, world_size)}, target, SIDECAR)
    if (target / TRAINING_ARGS_JSON_NAME).exists():
        (target / TRAINING_ARGS_NAME).unlink(missing_ok=True)
        write.export_training_args(target)


def _read_part(source: Path, name: str) -> dict[str, Any] | None:
    """Return a part as `training_state` describes it; the scaler is stored without a description."""
    if not (source / f"{name}.json").exists():
        return None
    tree = read_tree(source, name)
    if not isinstance(tree, dict):
        raise io.build_broken_error(source / f"{name}.json", f"{name}.json does not hold a state_dict")
    return tree if "state_dict" in tree else {"state_dict": tree}


def _read_world_size(source: Path) -> int:
    """Return how many processes saved their random streams."""
    first = read_tree(source, "rng-0")
    world_size = first.get("world_size") if isinstance(first, dict) else None
    if type(world_size) is not int or world_size < 1:
        raise io.build_broken_error(source / "rng-0.json", "rng-0.json does not record the number of processes")
    return world_size


def _read_extra_streams(source: Path, world_size: int) -> list[dict[str, Any]]:
    """Return the random streams that their file cannot hold."""
    kept = []
    for rank in range(world_size):
        streams = RandomState.read(read_tree(source, f"rng-{rank}")["streams"])
        kept.append({"devices": streams.devices})
    return kept


# ---- to ostinato ---------------------------------------------------------------------------------------------------


def _convert_to_ostinato(source: Path, target: Path) -> None:
    foreign = is_from_transformers(source)  # else both layouts exist side by side
    weights = {path.name for path in read.find_pickled_weights(source)} | {PICKLED_WEIGHTS_INDEX_NAME}
    left_out = {TRAINING_ARGS_NAME, *(weights if foreign else ())}
    _copy(source, target, leaving_out=lambda name: _THEIRS.fullmatch(name) or name in left_out)
    if not foreign:
        return
    if read.has_pickled_weights(source):
        read.convert_weights(source, target)
    _translate(source, target)
    if (source / TRAINING_ARGS_NAME).exists() and not (source / TRAINING_ARGS_JSON_NAME).exists():
        note_once(f"{TRAINING_ARGS_NAME} of {source} is left out: it is a pickle, which runs code when it is loaded")


def _translate(source: Path, target: Path) -> None:
    read.read_state(source)  # it is copied, and a run will depend on it
    kept = read.read_sidecar(source)
    optimizer = read.read_optimizer(source)
    scheduler = None if kept and kept["parts"].get("scheduler") is None else read.read_scheduler(source)
    scaler = read.read_scaler(source) if (source / SCALER_PT).exists() else None
    known = kept.get("parts", {"optimizer": {"class": None, "parameters": None}, "scheduler": {"class": None}})
    for name, state in {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}.items():
        if state is not None:
            description = known.get(name) or {}
            write_tree({**description, "state_dict": state} if description else state, target, name)
    world_size = len(find_random_ranks(source)) or 1
    if kept and len(kept["streams"]) != world_size:
        raise io.build_broken_error(source / f"{SIDECAR}.json", f"{SIDECAR}.json is of another number of processes")
    for rank in range(world_size):
        streams = read.read_random_state(source / format_random_name(rank, world_size)).export()
        if kept:
            del streams["devices"]
            streams = RandomState.read({**streams, **kept["streams"][rank]}).export()
        write_tree({"world_size": world_size, "streams": streams}, target, f"rng-{rank}")
    write_tree(kept.get("loop", ORIGIN), target, LOOP_NAME.removesuffix(".json"))


# ---- copying -------------------------------------------------------------------------------------------------------


def _copy(source: Path, target: Path, *, leaving_out: Any) -> None:
    """Copy every other file and directory, none of them through a link."""
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.name == MANIFEST_NAME or leaving_out(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            inner = target / entry.name
            inner.mkdir()
            _copy(Path(entry.path), inner, leaving_out=lambda name: False)
            continue
        _copy_file(Path(entry.path), target / entry.name)


def _copy_file(original: Path, copy: Path) -> None:
    try:
        descriptor = io.open_regular(original)
    except OSError as error:
        raise io.build_broken_error(
            original, f"{original.name} cannot be read (links are not followed): {error}"
        ) from error
    with os.fdopen(descriptor, "rb") as content:
        try:
            with open(copy, "xb") as file:
                shutil.copyfileobj(content, file)
        except OSError as error:
            raise io.build_write_error(copy, error) from error
