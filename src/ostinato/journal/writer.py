"""Append whole lines to a file without ever raising.

A line is written by one `os.write` to a descriptor opened with O_APPEND: the system puts it at the end in one piece,
also when two processes write. A killed process therefore loses nothing that it has written. Nothing is flushed to the
disk (`fsync`): that takes milliseconds, often more than a training step, and a power cut costs no more than the last
seconds of a file that nothing is resumed from.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..core.notices import warn

_MAX_DEPTH = 8
_MAX_TEXT = 4_000  # characters of a text that JSON has no form for
_MAX_BITS = 10_000  # of an integer: Python refuses to write out much longer ones
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class JournalFile:
    """Lines of JSON, appended.

    >>> journal = JournalFile("out/events.jsonl")  # doctest: +SKIP
    >>> journal.append({"event": "log", "loss": 0.5})  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None
        self._torn = False  # the last line is not whole
        self._missed = 0  # lines that could not be written since the last that could
        self._has_warned = False

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line. Warn once if the disk does not take it, and record later how many lines are missing."""
        self.append_line(format_json(entry))

    def append_line(self, line: str) -> None:
        """Write one line that is JSON already."""
        try:
            if self._descriptor is None:
                self._open()
            if self._missed:
                entry = json.loads(line)
                missed = {name: entry[name] for name in ("v", "run", "time") if name in entry}
                self._write(_encode({**missed, "event": "gap", "lines": self._missed}))
                self._missed = 0
            self._write(line)
        except OSError as error:
            self._missed += 1
            if not self._has_warned:
                self._has_warned = True
                warn(f"the journal {self.path} could not be written, and has a gap now: {error.strerror or error}")

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                os.close(descriptor)
            except OSError:  # some file systems say here that an earlier write failed
                self._torn = True

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self.path, flags, 0o644)
        size = os.fstat(descriptor).st_size
        if size:  # of a process that was killed, or met a full disk, in the middle of a line
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            self._torn = os.read(descriptor, 1) != b"\n"
        self._descriptor = descriptor

    def _write(self, line: str) -> None:
        assert self._descriptor is not None
        data = f"{line}\n".encode("ascii")
        if self._torn:  # ends the half line, which readers then leave out
            data = b"\n" + data
        written = os.write(self._descriptor, data)
        self._torn = written < len(data)
        if self._torn:
            raise OSError(f"only {written} of {len(data)} bytes were written: no space left")


def format_json(value: Any) -> str:
    """Return a value as JSON on one line; what JSON has no form for becomes text.

    >>> format_json({"loss": float("nan"), "path": Path("out")})
    '{"loss":"NaN","path":"out"}'
    """
    if _is_plain_number(value):
        return repr(value)  # setting up an encoder takes longer than writing a number
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # a number that is not finite, a tensor, anything
        return _encode(to_plain(value))


def format_numbers_json(numbers: Any) -> str:
    """Return a dict as JSON, in half the time if it holds finite numbers.

    >>> format_numbers_json({"loss": 0.5, "tokens": 128})
    '{"loss":0.5,"tokens":128}'
    """
    if type(numbers) is not dict:
        return format_json(numbers)
    parts = []
    for name, value in numbers.items():
        if type(name) is not str or not _is_plain_number(value):
            return format_json(numbers)
        parts.append(f"{_quote(name)}:{value!r}")
    return "{" + ",".join(parts) + "}"


def _is_plain_number(value: Any) -> bool:
    kind = type(value)  # not isinstance: a bool, or a number of numpy, is written otherwise
    return math.isfinite(value) if kind is float else kind is int and value.bit_length() < _MAX_BITS


@lru_cache(maxsize=1_000)
def _quote(name: str) -> str:
    return _encode(name)


def to_plain(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """Return a value as numbers, texts, lists and dicts; NaN and the infinities become texts."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < _MAX_BITS else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _format_not_finite(value)
    if isinstance(value, Mapping) and depth:
        return {str(name): to_plain(one, depth - 1) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) and depth:
        return [to_plain(one, depth - 1) for one in value]
    item = getattr(value, "item", None)  # a number of numpy or torch
    if (callable(item) and getattr(value, "size", 1) in (1, ())) or callable(getattr(value, "numel", None)):
        try:
            return to_plain(item(), 0) if callable(item) else _to_text(value)
        except Exception:  # more than one number, or one without a value
            return _to_text(value)
    return _to_text(value)


def _format_not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _to_text(value: Any) -> str:
    try:
        return str(value)[:_MAX_TEXT]
    except Exception:
        return f"<{type(value).__name__}>"
