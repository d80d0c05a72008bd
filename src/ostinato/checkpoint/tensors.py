"""Nested state (of optimizers, schedulers, random streams, callbacks) as JSON and safetensors. No pickle.

`<name>.json` holds the structure and every plain value, `<name>.safetensors` the tensors, under readable names:

    {"dict": {"state": {"items": [[0, {"dict": {"exp_avg": {"tensor": "state.0.exp_avg"}, ...}}]]}, ...}}

A JSON list is a list; a JSON object always has one of the tags below, so data can never be taken for a tag. What
cannot be written this way is an error when saving, with the path of keys that leads to it: reading back something
else than was saved would be worse.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from ..core.divided_tensors import get_local
from ..core.errors import CheckpointError
from . import io
from .distributed_tensors import Shard, StoredTensor, is_distributed, list_parts, open_tensors
from .state_objects import Description, build_object, describe_object
from .tensor_file import TensorFile

FORMAT = 1

_MAX_DEPTH = 64
_MAX_SHARDS = 2**16
_COMPLEX = (torch.complex64, torch.complex128)
_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMPY = (*_INTEGERS, "float16", "float32", "float64")
_EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
_DTYPES = {
    name: getattr(torch, name)
    for name in (*_NUMPY, "bfloat16", "complex64", "complex128", *_EIGHT_BITS)
    if name in vars(torch)  # older versions have fewer
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass
class FlatTree:
    """A flattened tree: JSON, and tensors by name."""

    structure: Any = None
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


class TensorWriter(Protocol):
    """A receiver of the tensors of a file: `write_tensors`, which writes them, or a `snapshot.Snapshot`."""

    def __call__(
        self, path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
    ) -> None: ...


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name, each with its own memory as the format requires."""
    file = TensorFile.of(tensors, metadata)
    try:
        with open(path, "wb", buffering=0) as out:
            for piece in file.pieces():
                rest = memoryview(piece)
                while rest:
                    rest = rest[out.write(rest) :]
    except OSError as error:
        raise io.build_write_error(path, error) from error


def write_tree(
    tree: Any, directory: Path, name: str, write: TensorWriter = write_tensors, shard: Shard | None = None
) -> None:
    """Write `<name>.json` and, if there are tensors, `<name>.safetensors`.

    With `shard`, every process writes its parts of the tensors to a file of its own, and the first process the JSON.

    >>> write_tree({"step": 3, "average": torch.zeros(2)}, Path("out"), "optimizer")
    """
    flat = flatten(tree, name)
    if shard is None:
        write_flat(flat, Path(directory), name, write)
        return
    parts, metadata = list_parts(flat.tensors, shard)
    write(Path(directory) / shard.name_file(name), parts, metadata)
    if shard.rank == 0:
        content = {"format": FORMAT, "tensors": len(flat.tensors), "shards": shard.size, "tree": flat.structure}
        io.write_json(Path(directory) / f"{name}.json", content)


def read_tree(directory: Path, name: str, *, lazily: bool = False) -> Any:
    """Return what `write_tree` was given; tensors are on the CPU and independent of the file.

    With `lazily`, tensors are `StoredTensor`, of which each process reads the part that it needs.

    >>> read_tree(Path("out"), "optimizer")  # doctest: +SKIP
    {'step': 3, 'average': tensor([0., 0.])}
    """
    path = Path(directory) / f"{name}.json"
    content = io.read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise io.build_broken_error(path, f"{path.name} is not in format {FORMAT} of nested state")
    tensor_path = path.with_suffix(".safetensors")
    reader = _Reader(path, _read_stored(path, content, lazily=lazily))
    try:
        tree = reader.decode(content["tree"])
    except RecursionError as error:
        raise io.build_broken_error(path, f"{path.name} is nested too deeply") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise io.build_broken_error(path, f"{path.name} does not describe a tree: {error!r}") from error
    if unused := reader.tensors.keys() - reader.used:
        raise io.build_broken_error(
            path, f"{tensor_path.name} has tensors that {path.name} does not name: {sorted(unused)}"
        )
    return tree


def _read_stored(path: Path, content: Mapping[str, Any], *, lazily: bool) -> dict[str, Any]:
    """Return the tensors of a tree, from its file or from those of several processes."""
    if not content.get("tensors"):
        return {}
    single, shards = path.with_suffix(".safetensors"), content.get("shards")
    if shards is None and not lazily:
        return read_tensors(single)
    if shards is not None and not (type(shards) is int and 0 < shards <= _MAX_SHARDS):
        raise io.build_broken_error(path, f"{path.name} has an impossible number of shards: {shards!r}")
    files = (
        [single] if shards is None else [path.parent / Shard(r, shards).name_file(path.stem) for r in range(shards)]
    )
    stored = open_tensors(files)
    return dict(stored) if lazily else {name: one.read() for name, one in stored.items()}


def flatten(tree: Any, name: str = "state") -> FlatTree:
    """Flatten a tree; `name` is its name in error messages."""
    writer = _Writer(name)
    structure = writer.encode(tree, ())
    return FlatTree(structure, writer.tensors)


def write_flat(flat: FlatTree, directory: Path, name: str, write: TensorWriter = write_tensors) -> None:
    """Write a flattened tree."""
    path = directory / f"{name}.json"
    tensor_path = directory / f"{name}.safetensors"
    if flat.tensors:
        write(tensor_path, flat.tensors)
    else:
        tensor_path.unlink(missing_ok=True)  # of an earlier save into the same directory
    io.write_json(path, {"format": FORMAT, "tensors": len(flat.tensors), "tree": flat.structure})


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of a file, on the CPU, in its own memory (not mapped from the file)."""
    if not path.exists():
        raise io.build_missing_error(path)
    if path.is_symlink():
        raise io.build_broken_error(path, f"{path.name} is a link, which is not followed")
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return {name: file.get_tensor(name).clone() for name in names}
    except (OSError, SafetensorError, RuntimeError) as error:
        raise io.build_broken_error(path, f"{path.name} cannot be read: {error}") from error


def check_storable(tensor: torch.Tensor, where: str) -> None:
    """Raise unless the tensor consists of plain numbers in memory."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise _build_unstorable_error(where, "a sparse or quantized tensor", "convert it to a dense one")
    if tensor.device.type == "meta":
        raise _build_unstorable_error(
            where, "a tensor on the meta device, which has no values", "materialize the model first"
        )
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not is_distributed(tensor):
        raise _build_unstorable_error(where, f"a {type(tensor).__name__}", "save its values as plain tensors")
    if tensor.dtype not in _NAMES:
        raise _build_unstorable_error(where, f"a tensor of {tensor.dtype}", "convert it to a common type")


def identify_memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for tensors with the same numbers in the same memory; unique if they have none."""
    tensor = get_local(tensor)  # the address of a tensor that is divided among processes is 0
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return (id(tensor),)
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_conj())


def _build_unstorable_error(where: str, what: str, fix: str) -> CheckpointError:
    return CheckpointError(
        what=f"cannot save {where}",
        why=f"it is {what}; a checkpoint holds tensors, numbers, strings and containers of them, never code",
        fix=fix,
    )


class _Writer:
    """Encode one tree, and collect its tensors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: dict[str, torch.Tensor] = {}
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def encode(self, value: Any, path: tuple[Any, ...]) -> Any:
        if len(path) > _MAX_DEPTH:
            raise _build_unstorable_error(
                self._format_path(path), f"nested more than {_MAX_DEPTH} levels deep", "make it flatter"
            )
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if (described := describe_object(value)) is not None:
            return self._encode_object(described, path)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.generic):
            return self._numpy_scalar(value, path)
        if type(value) is np.ndarray:
            return self._encode_array(value, path)
        if isinstance(value, torch.dtype) and value in _NAMES:
            return {"dtype": _NAMES[value]}
        if type(value) in (list, tuple, torch.Size):
            return self._encode_sequence(value, path)
        if type(value) in (dict, OrderedDict, Counter):
            return self._encode_mapping(value, path)
        raise self._build_error(value, path)

    def _encode_object(self, described: Description, path: tuple[Any, ...]) -> dict[str, Any]:
        return {"object": described.name, "fields": self.encode(described.fields, path)}

    def _encode_sequence(self, value: Any, path: tuple[Any, ...]) -> Any:
        encoded = [self.encode(item, (*path, index)) for index, item in enumerate(value)]
        if type(value) is list:
            return encoded
        return {"size" if type(value) is torch.Size else "tuple": encoded}

    def _encode_mapping(self, value: Any, path: tuple[Any, ...]) -> Any:
        for key in value:
            if not (key is None or type(key) in (bool, int, float, str)):
                raise self._build_error(key, (*path, key))
        if type(value) is dict and all(type(key) is str for key in value):
            return {"dict": {key: self.encode(item, (*path, key)) for key, item in value.items()}}
        tag = {dict: "items", OrderedDict: "ordered", Counter: "counter"}[type(value)]
        return {tag: [[self.encode(key, path), self.encode(item, (*path, key))] for key, item in value.items()]}

    def _tensor(self, value: torch.Tensor, path: tuple[Any, ...]) -> dict[str, Any]:
        check_storable(value, self._format_path(path))
        memory = identify_memory(value)
        if memory not in self._known:
            self._known[memory] = self._encode_new_tensor(value.detach(), path)
        return self._known[memory]

    def _encode_new_tensor(self, value: torch.Tensor, path: tuple[Any, ...]) -> dict[str, Any]:
        if value.dtype in _COMPLEX:
            return {"tensor": self._store(torch.view_as_real(value.resolve_conj()), path), "complex": True}
        if is_distributed(value):
            return {"tensor": self._store(value, path)}
        node: dict[str, Any] = {"tensor": self._store(value.resolve_neg(), path)}
        # Kernels that iterate over parameter and state together rely on one memory layout (channels last, transposed).
        dense = torch.empty_like(value, device="meta").stride() == value.stride()
        usual = torch.empty(value.shape, device="meta").stride() == value.stride()
        if dense and not usual and value.numel():
            node["stride"] = list(value.stride())
        return node

    def _encode_array(self, value: np.ndarray, path: tuple[Any, ...]) -> dict[str, Any]:
        if value.dtype.name not in _NUMPY or not value.dtype.isnative:
            raise self._build_error(value, path, f"an array of {value.dtype}")
        return {"array": self._store(torch.from_numpy(np.array(value, order="C")), path)}

    def _numpy_scalar(self, value: np.generic, path: tuple[Any, ...]) -> dict[str, Any]:
        if value.dtype.name not in _NUMPY:
            raise self._build_error(value, path)
        return {"numpy": value.dtype.name, "value": self.encode(value.item(), path)}

    def _store(self, tensor: torch.Tensor, path: tuple[Any, ...]) -> str:
        name = plain = ".".join(map(str, path)) or "value"
        number = 1
        # {"a": {"b": x}, "a.b": y} and {0: x, "0": y} are different keys; one name is reserved by the format.
        while name in self.tensors or name == "__metadata__":
            number += 1
            name = f"{plain}#{number}"
        self.tensors[name] = tensor
        return name

    def _format_path(self, path: tuple[Any, ...]) -> str:
        return self.name + "".join(f"[{key!r}]" for key in path)

    def _build_error(self, value: Any, path: tuple[Any, ...], what: str = "") -> CheckpointError:
        kind = type(value)
        what = what or f"a {kind.__module__}.{kind.__qualname__}"
        return _build_unstorable_error(
            self._format_path(path), what, "leave it out of state_dict(), or describe it with plain values"
        )


class _Reader:
    """Decode one tree."""

    def __init__(self, path: Path, tensors: dict[str, Any]) -> None:
        self.path = path
        self.tensors = tensors
        self.used: set[str] = set()
        self._made: dict[str, Any] = {}
        self._decoders: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": lambda node: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[node["float"]],
            "tuple": lambda node: tuple(map(self.decode, node["tuple"])),
            "size": lambda node: torch.Size(map(self.decode, node["size"])),
            "dict": lambda node: {key: self.decode(value) for key, value in node["dict"].items()},
            "items": lambda node: dict(self._decode_pairs(node["items"])),
            "ordered": lambda node: OrderedDict(self._decode_pairs(node["ordered"])),
            "counter": lambda node: Counter(dict(self._decode_pairs(node["counter"]))),
            "dtype": lambda node: _DTYPES[node["dtype"]],
            "numpy": self._numpy_scalar,
            "array": lambda node: _read_whole(self._take_tensor(node["array"])).numpy(),
            "tensor": self._tensor,
            "object": lambda node: build_object(node["object"], self.decode(node["fields"])),
        }

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        tag = next(iter(node), "")
        if tag not in self._decoders:
            raise io.build_broken_error(self.path, f"{self.path.name} has an unknown kind of value, {tag!r}")
        return self._decoders[tag](node)

    def _decode_pairs(self, pairs: Iterable[Any]) -> list[tuple[Any, Any]]:
        return [(self.decode(key), self.decode(value)) for key, value in pairs]

    def _numpy_scalar(self, node: dict[str, Any]) -> np.generic:
        if node["numpy"] not in _NUMPY:
            raise io.build_broken_error(self.path, f"{self.path.name} has an unknown number type, {node['numpy']!r}")
        return np.dtype(node["numpy"]).type(self.decode(node["value"]))

    def _tensor(self, node: dict[str, Any]) -> Any:
        name = node["tensor"]
        if name not in self._made:  # one tensor in two places is restored as one tensor
            tensor = self._take_tensor(name)
            if node.get("complex"):
                tensor = torch.view_as_complex(_read_whole(tensor))
            if stride := node.get("stride"):
                tensor = _restride(_read_whole(tensor), stride)
            self._made[name] = tensor
        return self._made[name]

    def _take_tensor(self, name: str) -> Any:
        if name not in self.tensors:
            raise io.build_broken_error(self.path, f"{self.path.stem}.safetensors has no tensor {name!r}")
        self.used.add(name)
        return self.tensors[name]


def _read_whole(tensor: Any) -> torch.Tensor:
    return tensor.read() if isinstance(tensor, StoredTensor) else tensor


def _restride(tensor: torch.Tensor, stride: list[int]) -> torch.Tensor:
    """Return the same numbers in the same amount of memory, in another order. A file must not request more."""
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, stride, strict=True))
    if extent != tensor.numel():
        raise ValueError(f"stride {stride} does not fit shape {list(tensor.shape)}")
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)
