"""Values as JSON that says what they were: what is read back is equal, of the same type and in the same order.

Two exceptions. Tensors and arrays of many numbers come back as a `Digest`. Numbers that depend on the clock come back
as zero: `records.py` does not compare them, and recording again should change nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Callable
from enum import Enum
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import torch

from tests.support.digests import Digest
from tests.support.records import Event, Record, is_time

INLINE = 256  # numbers that an array may have to be written out


class CannotRecordError(TypeError):
    """A value that cannot be written down so that it would be the same when read."""


def encode(value: Any, inline: int = INLINE) -> Any:
    """Return a value as JSON has it; anything but plain values becomes `{"$kind": content}`.

    This is the one place that decides what can be recorded. For whatever is not listed (a trainer, a module, a
    function, a generator, an exception) it raises `CannotRecordError`, and the run that returned it stays live.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [encode(one, inline) for one in value]
    if kind is dict:
        return _encode_dict(value, inline)
    if kind in (tuple, torch.Size):
        return {"$tuple" if kind is tuple else "$size": [encode(one, inline) for one in value]}
    if kind in (set, frozenset):
        return {f"${kind.__name__}": sorted((encode(one, inline) for one in value), key=json.dumps)}
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return _encode_array(value, inline)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"$numpy": [str(value.dtype), encode(value.item())]}
    if kind is torch.dtype:
        return {"$dtype": str(value).removeprefix("torch.")}
    if kind is PosixPath:
        return {"$path": str(value)}
    if isinstance(value, Enum):
        return {"$enum": [_name_of(kind), value.name]}
    if isinstance(value, type):
        return {"$class": _name_of(value)}
    if kind is Record:
        return {"$record": _encode_record(value)}
    if isinstance(value, tuple) and "_fields" in vars(kind):
        return {"$object": [_name_of(kind), encode(value._asdict(), inline)]}
    if dataclasses.is_dataclass(value) and set(vars(value)) == {one.name for one in dataclasses.fields(value)}:
        return {"$object": [_name_of(kind), encode(dict(vars(value)), inline)]}
    raise CannotRecordError(f"{kind.__module__}.{kind.__qualname__} cannot be recorded")


def _encode_dict(value: dict[Any, Any], inline: int) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: 0.0 if is_time(key) and type(one) is float else encode(one, inline) for key, one in value.items()}
    return {"$dict": [[encode(key, inline), encode(one, inline)] for key, one in value.items()]}


def _encode_record(record: Record) -> dict[str, Any]:
    """Return what is in a record, without empty fields; weights are digests, however few."""
    fields = {name: value for name, value in vars(record).items() if not _is_default(name, value)}
    encoded = {
        name: encode(value, 0 if name == "weights" else INLINE) for name, value in fields.items() if name != "events"
    }
    return {**encoded, **_encode_events(record.events)} if record.events else encoded


def _encode_events(events: list[Event]) -> dict[str, Any]:
    """Return a row for every step and epoch, with events and the flags that are up, and the keywords by event."""
    rows: list[list[Any]] = []
    keywords: dict[str, list[str]] = {}
    for event in events:
        when, words = [event.global_step, event.epoch], list(event.keywords)
        if keywords.setdefault(event.name, words) != words:
            raise CannotRecordError(f"{event.name} does not always have the same keywords")
        if (
            not rows
            or rows[-1][:2] != when
            or any(type(a) is not type(b) for a, b in zip(rows[-1], when, strict=False))
        ):
            rows.append([*when, ""])
        rows[-1][2] += " " * bool(rows[-1][2]) + "+".join([event.name, *event.flags])
    return {"events": rows, "keywords": keywords}


def _is_default(name: str, value: Any) -> bool:
    return value is None if name in ("output", "result") else not value


def _encode_array(value: Any, inline: int) -> Any:
    if isinstance(value, torch.Tensor):
        is_plain = type(value) is torch.Tensor and value.layout is torch.strided
        is_plain = is_plain and not value.is_quantized and not value.is_complex()
    else:
        is_plain = type(value) is np.ndarray and value.dtype.kind in "biufU"
    if not is_plain:
        raise CannotRecordError(f"{type(value).__name__} of {value.dtype} cannot be recorded")
    digest = Digest.of(value)
    assert digest is not None
    kind, dtype, shape, sha256 = digest.facts
    numbers = math.prod(shape)
    content = encode(value.reshape(-1).tolist()) if numbers <= inline else sha256
    return {f"${kind}": [dtype, list(shape), content]}


def _name_of(kind: type) -> str:
    """Return the name by which a class can be imported."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        found = _import(name)
    except (ImportError, AttributeError):
        found = None
    if found is not kind:
        raise CannotRecordError(f"the class {name} cannot be imported")
    return name


def _import(name: str) -> Any:
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


# ------------------------------------------------------------------------------------------------------------ decoding


def decode(value: Any) -> Any:
    """Return the value that was encoded."""
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((kind, content),) = value.items()
        if kind.startswith("$"):
            return _DECODERS[kind](content)
    return {key: decode(one) for key, one in value.items()}


def _decode_record(content: dict[str, Any]) -> Record:
    fields = decode(content)
    keywords = fields.pop("keywords", {})
    fields["events"] = [
        Event(name, step, epoch, tuple(flags), tuple(keywords[name]))
        for step, epoch, events in fields.get("events", [])
        for name, *flags in (event.split("+") for event in events.split())
    ]
    return Record(**fields)


def _decode_tensor(content: list[Any]) -> Any:
    dtype, shape, numbers = content
    if isinstance(numbers, str):
        return Digest("tensor", dtype, tuple(shape), numbers)
    return torch.tensor(decode(numbers), dtype=getattr(torch, dtype)).reshape(shape)


def _decode_array(content: list[Any]) -> Any:
    dtype, shape, numbers = content
    if isinstance(numbers, str):
        return Digest("array", dtype, tuple(shape), numbers)
    return np.array(decode(numbers), dtype=dtype).reshape(shape)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$dict": lambda content: {decode(key): decode(one) for key, one in content},
    "$tuple": lambda content: tuple(map(decode, content)),
    "$size": torch.Size,
    "$set": lambda content: set(map(decode, content)),
    "$frozenset": lambda content: frozenset(map(decode, content)),
    "$tensor": _decode_tensor,
    "$array": _decode_array,
    "$numpy": lambda content: np.dtype(content[0]).type(decode(content[1])),
    "$dtype": lambda content: getattr(torch, content),
    "$path": Path,
    "$enum": lambda content: _import(content[0])[content[1]],
    "$class": _import,
    "$record": _decode_record,
    "$object": lambda content: _import(content[0])(**decode(content[1])),
}
