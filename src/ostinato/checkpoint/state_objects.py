"""Objects in the state of optimizers, as numbers and tensors: projectors, and tensors of 4 and 8 bits.

A file names a class by one of the names below. Nothing else is imported or called when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from ..core.tree import tree_map


@dataclass(frozen=True)
class Description:
    """An object as a file holds it."""

    name: str  # of its class, among those that are known
    fields: Any  # of plain values and tensors


@dataclass(frozen=True)
class _Codec:
    read: Callable[[Any], Any]
    build: Callable[[type, Any], Any]


def describe_object(value: Any) -> Description | None:
    """Return the fields of an object of a known class; None for any other."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    codec = _CODECS.get(name)
    return None if codec is None else Description(name, codec.read(value))


def build_object(name: str, fields: Any) -> Any:
    """Return an object with the fields of a description.

    Raises:
        LookupError: the class is not one of those that are known.
    """
    module, _, cls = name.rpartition(".")
    codec = _CODECS[name]
    return codec.build(getattr(import_module(module), cls), fields)


def _read_attributes(projector: Any) -> dict[str, Any]:
    """Return the attributes, and how their matrices lie in memory: another layout is multiplied in another order."""
    attributes = dict(vars(projector))
    return {"attributes": attributes, "strides": tree_map(_read_stride, attributes)}


def _read_stride(value: Any) -> list[int] | None:
    return list(value.stride()) if isinstance(value, torch.Tensor) else None


def _build_from_attributes(cls: type, fields: dict[str, Any]) -> Any:
    projector = object.__new__(cls)
    strides = fields["strides"]
    vars(projector).update({name: _lay_out(value, strides[name]) for name, value in fields["attributes"].items()})
    return projector


def _lay_out(value: Any, stride: Any) -> Any:
    """Return the value with its matrices in the layout that they had."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_lay_out, value, stride))
    if not isinstance(value, torch.Tensor) or list(value.stride()) == stride:
        return value
    extent = 1 + sum((size - 1) * step for size, step in zip(value.shape, stride, strict=True))
    if not 0 <= extent <= max(value.shape, default=0) ** 2:  # rows or columns of a square matrix; a file gets no more
        raise ValueError(f"stride {stride} does not fit shape {list(value.shape)}")
    return torch.empty_strided(value.shape, stride, dtype=value.dtype).copy_(value)


def _read_parts(tensor: Any) -> dict[str, Any]:
    names, context = tensor.__tensor_flatten__()
    return {"tensors": {name: getattr(tensor, name) for name in names}, "context": list(context)}


def _build_from_parts(cls: Any, fields: dict[str, Any]) -> Any:
    return cls.__tensor_unflatten__(fields["tensors"], fields["context"])


_PROJECTOR = _Codec(_read_attributes, _build_from_attributes)
_PACKED = _Codec(_read_parts, _build_from_parts)

_CODECS = {
    "galore_torch.galore_projector.GaLoreProjector": _PROJECTOR,
    "apollo_torch.svd_projector.GaLoreProjector": _PROJECTOR,
    "apollo_torch.random_projector.GradientProjector": _PROJECTOR,
    "torchao.optim.subclass_4bit.OptimState4bit": _PACKED,
    "torchao.optim.subclass_8bit.OptimState8bit": _PACKED,
    "torchao.optim.subclass_fp8.OptimStateFp8": _PACKED,
}
