"""The files that TensorBoard reads: records, one after the other.

    length            8 bytes
    check of length   4 bytes
    event             a protocol buffer: time, step and numbers with names
    check of event    4 bytes

tensorboard's own writer takes 0.4 ms for a log of ten numbers, most of it for the checks, which it computes byte by
byte in Python. A run that logs often has a better use for that time.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from .crc32c import crc32c

VALUES_PER_EVENT = 64
_as_float, _as_double = struct.Struct("<f").pack, struct.Struct("<d").pack
_VERSION = b"\x1a\x0dbrain.Event:2"
_numbers = itertools.count()  # of the files of this process


class EventFile:
    """A new file in a directory. `forgets_from` tells readers to forget this step and later ones of older files.

    >>> events = EventFile(Path("out/runs/first"))  # doctest: +SKIP
    >>> events.write(encoded({"train/loss": 0.5}, step=10, moment=time.time()))  # doctest: +SKIP
    """

    def __init__(self, directory: Path, *, forgets_from: int | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        moment = time.time()
        # Readers take the files of a directory in order: those of SummaryWriter, which end in ".0", come later.
        name = f"events.out.tfevents.{int(moment):010d}.{socket.gethostname()}.{os.getpid()}.-{next(_numbers)}"
        self.path = directory / name
        self._file, self._size = self.path.open("xb", buffering=0), 0
        first = [_at(moment, 0) + _VERSION]
        if forgets_from is not None:
            first.append(_at(moment, forgets_from) + b"\x3a\x02\x08\x01")  # a session starts at this step
        self.write(first)

    def write(self, events: Iterable[bytes]) -> None:
        """Append events in one piece: a killed process has written all of them, or none."""
        records = b"".join(map(_record, events))
        if self._file.write(records) < len(records):
            self._file.truncate(self._size)  # no reader gets past half a record
            self._file.seek(self._size)
            raise OSError(f"no space is left for {self.path}")
        self._size += len(records)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def encoded(numbers: Mapping[str, float], step: int, moment: float) -> Iterable[bytes]:
    """The events of one log, as TensorBoard's `Event` and its parts are encoded.

    >>> [len(event) for event in encoded({"train/loss": 0.5}, step=10, moment=0.0)]
    [32]
    """
    values = [_tagged(name) + _as_single(value) for name, value in numbers.items()]
    for first in range(0, len(values), VALUES_PER_EVENT):
        summary = b"".join(values[first : first + VALUES_PER_EVENT])
        yield _at(moment, step) + b"\x2a" + _size(len(summary)) + summary


def _at(moment: float, step: int) -> bytes:
    return b"\x09" + _as_double(moment) + b"\x10" + _size(step)


@lru_cache(maxsize=4096)
def _tagged(name: str) -> bytes:
    """A value up to its number: how long it is, its name, and that a 32-bit float follows."""
    tag = name.encode("utf-8", "replace")
    tag = b"\x0a" + _size(len(tag)) + tag + b"\x15"
    return b"\x0a" + _size(len(tag) + 4) + tag


def _as_single(value: float) -> bytes:
    try:
        return _as_float(value)
    except OverflowError:
        return _as_float(float("inf") if value > 0 else float("-inf"))


def _size(number: int) -> bytes:
    """Seven bits to a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _record(event: bytes) -> bytes:
    return _header(len(event)) + event + _masked(crc32c(event)).to_bytes(4, "little")


@lru_cache(maxsize=256)
def _header(length: int) -> bytes:
    encoded_length = length.to_bytes(8, "little")
    return encoded_length + _masked(crc32c(encoded_length)).to_bytes(4, "little")


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
