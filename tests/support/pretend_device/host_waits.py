"""Where the host waits for the device: each wait with its kind and the line of source that caused it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

TORCH = str(Path(torch.__file__).parent)
HERE = str(Path(__file__).parent)
OURS = "/ostinato/"
OTHERS = ("<", TORCH, HERE, str(Path(contextlib.__file__).parent) + "/", "/_pytest/", "/pluggy/")
SITE_PACKAGES = "site-packages/"
DEPTH = 12  # lines of a stack that are kept


@dataclass(frozen=True)
class Wait:
    """One moment at which the host could not go on before the device had come to a certain point."""

    kind: str  # "item", "copy to host", "event", ...
    drains: bool  # the device has nothing left to do afterwards
    line: str  # "ostinato/engine/loop.py:120 train": the innermost of ours, or else of anything but torch
    stack: tuple[str, ...]  # from the inside out, without torch and this package


_recordings: list[list[Wait]] = []


@contextlib.contextmanager
def record_waits() -> Iterator[list[Wait]]:
    """Collect every wait of the host, of all threads, while the context is open."""
    waits: list[Wait] = []
    _recordings.append(waits)
    try:
        yield waits
    finally:
        _recordings[:] = [other for other in _recordings if other is not waits]


def note_wait(kind: str, *, drains: bool) -> None:
    """Write a wait into every open recording."""
    if _recordings:
        line, stack = find_line()
        for waits in _recordings:
            waits.append(Wait(kind, drains, line, stack))


def find_line() -> tuple[str, tuple[str, ...]]:
    """Return the line of source that is to blame for what happens now, and the stack around it."""
    frame, stack = sys._getframe(1), []
    while frame is not None and len(stack) < DEPTH:
        file = frame.f_code.co_filename
        library = SITE_PACKAGES not in file and "/lib/python3" in file  # the standard library
        if not file.startswith(OTHERS) and not library:
            stack.append(f"{_shorten(file)}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    ours = [line for line in stack if line.startswith(OURS.lstrip("/"))]
    return (ours or stack or ["(no Python line: a thread of autograd)"])[0], tuple(stack)


def _shorten(file: str) -> str:
    if OURS in file and SITE_PACKAGES not in file:
        return OURS.lstrip("/") + file.rpartition(OURS)[2]
    return file.rpartition(SITE_PACKAGES)[2] if SITE_PACKAGES in file else file
