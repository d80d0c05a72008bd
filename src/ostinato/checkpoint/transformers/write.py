"""Write the files from which stock transformers resumes a checkpoint of ours.

They are written beside our own, which are the ones we read. They hold tensors and plain values only, so that they load
with `weights_only=True` and no allow-list. `model.safetensors` and `trainer_state.json` are the same in both layouts.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core.errors import CheckpointError
from ...core.notices import note_once
from ...core.random import RandomState
from .. import io
from ..file_names import TRAINING_ARGS_JSON_NAME, TRAINING_ARGS_NAME
from ..tensors import flatten
from ..training_state import Stateful
from .detect import OPTIMIZER_PT, SCALER_PT, SCHEDULER_PT, format_random_name


def export_training_parts(
    directory: str | Path, *, optimizer: Stateful, scheduler: Stateful | None, scaler: Stateful | None = None
) -> None:
    """Write `optimizer.pt`, `scheduler.pt` and `scaler.pt`, for the parts that exist.

    >>> export_training_parts("out", optimizer=optimizer, scheduler=scheduler)  # doctest: +SKIP
    """
    for name, part in ((OPTIMIZER_PT, optimizer), (SCHEDULER_PT, scheduler), (SCALER_PT, scaler)):
        if part is not None:
            write_torch_file(Path(directory) / name, part.state_dict())


def export_random_state(directory: str | Path, rank: int, world_size: int) -> None:
    """Write the state of this process's random streams: `rng_state.pth`, or `rng_state_<rank>.pth` of several.

    >>> export_random_state("out", rank=0, world_size=1)
    """
    write_random_state(Path(directory), RandomState.capture(), rank, world_size)


def export_training_args(directory: str | Path) -> None:
    """Write `training_args.bin`: the arguments of `training_args.json` as a dict, not as an object of a class.

    transformers does not read it when it resumes; users and tools do, to see the arguments of a run.

    >>> export_training_args("out")  # doctest: +SKIP
    """
    directory = Path(directory)
    write_torch_file(directory / TRAINING_ARGS_NAME, io.read_json(directory / TRAINING_ARGS_JSON_NAME))


def write_random_state(directory: Path, state: RandomState, rank: int, world_size: int) -> None:
    """Write random streams in the form that transformers restores."""
    numpy = state.numpy
    streams: dict[str, Any] = {
        "python": state.python,
        # The words as plain numbers, which numpy accepts as well: an array could not be loaded without an allow-list.
        "numpy": (
            numpy["bit_generator"],
            [int(word) for word in numpy["state"]["key"]],
            int(numpy["state"]["pos"]),
            int(numpy["has_gauss"]),
            float(numpy["gauss"]),
        ),
        "cpu": state.torch,
    }
    for kind, states in state.devices.items():  # of all devices if there are several processes, else of the one in use
        if kind == "mps":
            note_once("the random stream of MPS is not in the files for transformers, which has no place for it")
        else:
            streams[kind] = states if world_size > 1 else states[0]
    write_torch_file(directory / format_random_name(rank, world_size), streams)


def write_torch_file(path: Path, content: Any) -> None:
    """Write with `torch.save` what `weights_only=True` reads; raise for anything else, which could not be loaded.

    >>> write_torch_file(Path("out/scheduler.pt"), scheduler.state_dict())  # doctest: +SKIP
    """
    flatten(content, path.name)  # raises with the path of a value that is not plain
    try:
        torch.save(_to_plain(content), path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk by an error of its own
        path.unlink(missing_ok=True)
        raise io.build_write_error(path, error) from error
    if names := torch.serialization.get_unsafe_globals_in_checkpoint(path):
        path.unlink()
        raise CheckpointError(
            what=f"cannot save {path.name} for transformers",
            why=f"it would hold {', '.join(sorted(names)[:5])}, which cannot be read without running code",
            fix="leave it out of state_dict(), or describe it with plain values",
        )


def _to_plain(value: Any) -> Any:
    """Convert numbers of numpy to those of Python; containers are rebuilt, tensors stay the same."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (dict, OrderedDict):
        return type(value)((_to_plain(key), _to_plain(item)) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(map(_to_plain, value))
    return value
