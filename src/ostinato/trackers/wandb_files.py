"""Read the files of an offline wandb run, to continue it without logging anything twice.

A `.wandb` file is a header of seven bytes and then a log in LevelDB's format (blocks of 32 KiB; each piece has a
checksum, a length and a kind), whose entries are the messages of wandb's own protocol.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

_HEADER, _BLOCK, _PIECE = 7, 32768, struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_entries(path: Path) -> Iterator[bytes]:
    """Yield every complete entry; one that was being written when the run was killed is skipped."""
    content = path.read_bytes()
    place, parts = _HEADER, b""
    while place + _PIECE.size <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _PIECE.size:
            place += left
            continue
        _, length, kind = _PIECE.unpack_from(content, place)
        place += _PIECE.size
        piece = content[place : place + length]
        place += length
        if len(piece) < length or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            return
        parts = piece if kind in (_WHOLE, _FIRST) else parts + piece
        if kind in (_WHOLE, _LAST):
            yield parts


def read_records(path: Path) -> Iterator[Any]:
    """Yield the messages of a run, in the order in which they were written."""
    messages = import_module("wandb.proto.wandb_internal_pb2")
    for entry in read_entries(path):
        record = messages.Record()
        record.ParseFromString(entry)
        yield record


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what `wandb.log` was given, row by row."""
    for record in read_records(path):
        if record.WhichOneof("record_type") == "history":
            yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}


def find_run_files(directory: Path, run_id: str) -> list[Path]:
    """Return the files of all attempts at a run, oldest first."""
    return sorted(directory.glob(f"*run-*-{run_id}/run-{run_id}.wandb"))
