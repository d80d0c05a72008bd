"""The files of a model that is divided among processes: gathered one tensor at a time, written by the first process.

The model's own `save_pretrained` decides about files, names and tied weights; it is shown tensors without numbers. All
processes then gather the tensors in the order of the files, and none of them ever holds more than one whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.compiled_model import get_uncompiled
from ..core.divided_tensors import gather_whole
from . import io
from .atomic import OtherProcessError
from .distributed_tensors import Shard, broadcast_from_first
from .tensor_file import TensorFile, view_bytes
from .tensors import TensorWriter, identify_memory, write_tensors


@dataclass(frozen=True)
class _FilePlan:
    """One file: the header, and the model's name for each tensor in the order of the file."""

    path: Path
    header: bytes
    sources: tuple[str, ...]


_PLACE = "distributed_config"  # of a transformers config: how `from_pretrained` divided the model

# Saves a state, whose tensors it passes to a writer file by file.
SaveState = Callable[[Mapping[str, Any], TensorWriter], None]


def stream_weights(model: nn.Module, save: SaveState, shard: Shard) -> None:
    """Write the files of a model. All processes have to call it; `save` is called in the first one.

    Raises:
        OtherProcessError: The first process failed.
    """
    state, leads = get_uncompiled(model).state_dict(), shard.rank == 0
    with _hide_division(model):
        _stream(state, save, leads=leads)


def _stream(state: Mapping[str, Any], save: SaveState, *, leads: bool) -> None:
    failure: Exception | None = None
    plans: list[_FilePlan] | str = "failed"
    if leads:
        try:
            plans = _plan_files(state, save)
        except _ConvertedWeights:
            plans = "gather"
        except Exception as error:  # the other processes are waiting
            failure = error
    plans = broadcast_from_first(plans)
    if plans == "gather":
        failure = _save_gathered(state, save, leads=leads)
    elif isinstance(plans, list):
        for plan in plans:
            failure = _write_file(plan, state, failure, leads=leads)
    elif not leads:
        failure = OtherProcessError(
            what="the model was not saved", why="the first process failed", fix="see the error of that process"
        )
    if failure is not None:
        raise failure


@contextmanager
def _hide_division(model: nn.Module) -> Iterator[None]:
    """Let `save_pretrained` take the model for a whole one, inside the block: it would gather the weights itself."""
    owners = [vars(config) for module in model.modules() if hasattr(config := getattr(module, "config", None), _PLACE)]
    hidden = [(owner, owner[_PLACE]) for owner in owners if owner.get(_PLACE) is not None]
    for owner, _ in hidden:
        owner[_PLACE] = None
    try:
        yield
    finally:
        for owner, value in hidden:
            owner[_PLACE] = value


class _ConvertedWeights(Exception):
    """`save_pretrained` stores weights in another form than the model has them."""


def _save_gathered(state: Mapping[str, Any], save: SaveState, *, leads: bool) -> Exception | None:
    """Gather all weights in the first process, and save them there; return the error that occurred, if any."""
    whole: dict[str, Any] = {}
    for name, value in state.items():
        gathered = gather_whole(value) if isinstance(value, torch.Tensor) else value
        if leads:
            whole[name] = gathered
    if leads:
        try:
            save(whole, write_tensors)
        except Exception as error:
            return error
    return None


def _plan_files(state: Mapping[str, Any], save: SaveState) -> list[_FilePlan]:
    plans: list[_FilePlan] = []

    def collect(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
        sources = {id(tensor): _find_source(name, tensor) for name, tensor in tensors.items()}
        file = TensorFile.of(tensors, metadata)
        plans.append(_FilePlan(Path(path), file.header, tuple(sources[id(tensor)] for tensor in file.sources)))

    def _find_source(name: str, tensor: torch.Tensor) -> str:
        """Return the model's name of a tensor that is saved: adapters are saved under other names."""
        found = described_names.get(id(tensor), name)
        if found not in state or state[found].shape != tensor.shape or state[found].dtype != tensor.dtype:
            raise _ConvertedWeights
        return found

    described = _describe(state)
    described_names = {id(tensor): name for name, tensor in reversed(described.items())}
    save(described, collect)
    return plans


def _describe(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with tensors that have shapes and no numbers; tied ones are one tensor."""
    first: dict[tuple[Any, ...], torch.Tensor] = {}
    return {
        name: first.setdefault(identify_memory(value), torch.empty(value.shape, dtype=value.dtype, device="meta"))
        if isinstance(value, torch.Tensor)
        else value
        for name, value in state.items()
    }


def _write_file(
    plan: _FilePlan, state: Mapping[str, Any], failure: Exception | None, *, leads: bool
) -> Exception | None:
    """Gather the tensors of a file, and write them in the first process; return the error that occurred, if any.

    Gathering continues after an error: the other processes wait for it.
    """
    file = _LeadingFile(plan.path, failure) if leads else None
    if file is not None:
        file.write(plan.header)
    for name in plan.sources:
        whole = gather_whole(state[name])
        if file is not None and whole.numel():
            file.write(view_bytes(whole))
    return failure if file is None else file.failure


@dataclass
class _LeadingFile:
    """A file that the first process writes. After an error, nothing more is written."""

    path: Path
    failure: Exception | None
    begun: bool = False

    def write(self, content: bytes | memoryview) -> None:
        """Append bytes, the first of which begin the file."""
        if self.failure is not None:
            return
        try:
            with open(self.path, "ab" if self.begun else "wb", buffering=0) as out:
                rest = memoryview(content)
                while rest:
                    rest = rest[out.write(rest) :]
        except OSError as error:
            self.failure = io.build_write_error(self.path, error)
        self.begun = True
