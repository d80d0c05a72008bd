"""Tensors that are divided among processes: the part that this process writes, and the part that it reads.

A file of parts has, beside the numbers, the offsets of each part in the whole tensor, in the form of torch's
distributed checkpoints over safetensors (`DCP_SHARDING_INFO`): `HuggingFaceStorageReader` reads the files too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from . import io

_INFORMATION, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"


@dataclass(frozen=True)
class Shard:
    """The number of a process among those that write parts of the same tensors."""

    rank: int
    size: int

    def name_file(self, name: str) -> str:
        """Return the name of the file with this process's parts.

        >>> Shard(0, 2).name_file("optimizer")
        'optimizer.shard-1-of-2.safetensors'
        """
        return f"{name}.shard-{self.rank + 1}-of-{self.size}.safetensors"


def is_distributed(value: Any) -> TypeGuard[DTensor]:
    """Return whether a tensor is divided among processes, or a copy in each that torch keeps track of."""
    return isinstance(value, DTensor)


def list_parts(tensors: Mapping[str, Tensor], shard: Shard) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the parts of tensors that this process writes, and the metadata of their file.

    Each number is written once: of copies, by the first process that holds it; a plain tensor by the first process.
    """
    parts: dict[str, Tensor] = {}
    offsets: dict[str, dict[str, list[int]]] = {}
    for name, tensor in tensors.items():
        if is_distributed(tensor):
            if not _writes(tensor):
                continue
            shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
            local = tensor.to_local()
            if local.numel() == 0 or 0 in shape:
                continue
        elif shard.rank == 0:
            local, offset = tensor, (0,) * tensor.dim()
        else:
            continue
        parts[name], offsets[name] = local, {_OFFSETS: list(offset)}
    return parts, {"format": "pt", "DCP_VERSION": "1.0", _INFORMATION: json.dumps(offsets)}


def _writes(tensor: DTensor) -> bool:
    """Return whether this process is the first of those with the same numbers."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or 0 not in tensor.device_mesh.mesh:  # a mesh without the first process has copies
        return False
    return all(
        at == 0
        for at, placement in zip(coordinate, tensor.placements, strict=True)
        if isinstance(placement, Replicate)
    )


@dataclass(frozen=True)
class _Part:
    path: Path
    offset: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in one file or in several, of which any part can be read."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[_Part, ...]

    @property
    def dtype(self) -> torch.dtype:
        return _read_dtype(self.parts[0], self.name)

    def read(self, offset: Sequence[int] | None = None, shape: Sequence[int] | None = None) -> Tensor:
        """Return the numbers of a box; without arguments, all of them."""
        offset = tuple(offset) if offset is not None else (0,) * len(self.shape)
        shape = tuple(shape) if shape is not None else self.shape
        found: Tensor | None = None
        filled = 0
        for part in self.parts:
            begin = [max(a, b) for a, b in zip(offset, part.offset, strict=True)]
            end = [min(a + n, b + m) for a, n, b, m in zip(offset, shape, part.offset, part.shape, strict=True)]
            if any(a >= b for a, b in zip(begin, end, strict=True)):
                continue
            box = _read_box(part, self.name, begin, end)
            found = torch.empty(shape, dtype=box.dtype) if found is None else found
            found[tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, offset, strict=True))] = box
            filled += box.numel()
        if found is None:  # a part without numbers
            found = torch.empty(shape, dtype=_read_dtype(self.parts[0], self.name))
        if filled != found.numel():
            path = self.parts[0].path
            raise io.build_broken_error(path, f"parts of {self.name!r} are missing in {path.parent.name}")
        return found

    def read_like(self, tensor: Any) -> Tensor:
        """Return the numbers that this process needs for a tensor that is divided as `tensor`; else all of them."""
        if not is_distributed(tensor) or tuple(tensor.shape) != self.shape:
            return self.read()
        shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        local = self.read(offset, shape).to(tensor.device)
        return DTensor.from_local(
            local, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride(), run_check=False
        )


def open_tensors(paths: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of one file, or those whose parts are in several, by name. Numbers are read later."""
    parts: dict[str, list[_Part]] = {}
    for path in paths:
        for name, part in _list_stored(path):
            parts.setdefault(name, []).append(part)
    return {
        name: StoredTensor(name, tuple(map(max, zip(*map(_find_end, each), strict=True))), tuple(each))
        for name, each in parts.items()
    }


def _find_end(part: _Part) -> tuple[int, ...]:
    return tuple(offset + size for offset, size in zip(part.offset, part.shape, strict=True))


def _list_stored(path: Path) -> Iterator[tuple[str, _Part]]:
    if not path.exists():
        raise io.build_missing_error(path)
    if path.is_symlink():
        raise io.build_broken_error(path, f"{path.name} is a link, which is not followed")
    try:
        with safe_open(path, framework="pt") as file:
            offsets = json.loads((file.metadata() or {}).get(_INFORMATION, "{}"))
            names = list(file.keys())
            for name in names:
                shape = tuple(file.get_slice(name).get_shape())
                offset = tuple(offsets[name][_OFFSETS]) if name in offsets else (0,) * len(shape)
                if len(offset) != len(shape) or not all(type(one) is int and one >= 0 for one in offset):
                    raise ValueError(f"the offsets of {name!r} do not fit its shape")
                yield name, _Part(path, offset, shape)
    except (OSError, SafetensorError, RuntimeError, ValueError, TypeError, KeyError) as error:
        raise io.build_broken_error(path, f"{path.name} cannot be read: {error}") from error


def _read_box(part: _Part, name: str, begin: Sequence[int], end: Sequence[int]) -> Tensor:
    try:
        with safe_open(part.path, framework="pt") as file:
            if not part.shape:
                return file.get_tensor(name).clone()
            inside = tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, part.offset, strict=True))
            return file.get_slice(name)[inside].clone()
    except (OSError, SafetensorError, RuntimeError) as error:
        raise io.build_broken_error(part.path, f"{part.path.name} cannot be read: {error}") from error


def _read_dtype(part: _Part, name: str) -> torch.dtype:
    with safe_open(part.path, framework="pt") as file:
        if not part.shape:
            return file.get_tensor(name).dtype
        return file.get_slice(name)[tuple(slice(0, 0) for _ in part.shape)].dtype


def find_shard(strategy: Any) -> Shard | None:
    """Return this process's place among those that write parts; None where one process writes everything."""
    return Shard(strategy.process_index, strategy.processes) if strategy.is_sharded else None


def broadcast_from_first(value: Any) -> Any:
    """Return the value of the first process."""
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
