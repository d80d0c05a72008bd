"""One plain line, once, at default verbosity: how the library speaks outside of progress and logs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("ostinato")

_said: set[str] = set()
_listeners: list[Callable[[str, str], None]] = []
_silent = 0  # how many `unheard` blocks are entered


class _StandardError(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever `sys.stderr` is at the time, so redirection and capturing work."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[override]
        return sys.stderr


def _on_main_process(record: logging.LogRecord) -> bool:
    # Read at the time of speaking: a launcher may set RANK after the import.
    return record.levelno >= logging.ERROR or os.environ.get("RANK", "0") == "0"


LEVELS = {
    "detail": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
VERBOSITY = "OSTINATO_VERBOSITY"

handler = _StandardError()
handler.setFormatter(logging.Formatter("ostinato: %(message)s"))
handler.addFilter(_on_main_process)
if not logger.handlers:
    logger.addHandler(handler)
    logger.setLevel(LEVELS.get(os.environ.get(VERBOSITY, "info").lower(), logging.INFO))
    logger.propagate = False


def let_replicas_speak() -> None:
    """Hear from every process, not from the first alone, what is below an error."""
    handler.removeFilter(_on_main_process)


def note(text: str) -> None:
    """Say something the user should know: a thing dropped, renamed, guessed, skipped or rescaled."""
    logger.info(text)
    _tell("notice", text)


def note_once(text: str, *, key: str | None = None) -> None:
    """Say it the first time only. `key` groups different wordings of one message."""
    if (key or text) not in _said:
        _said.add(key or text)
        note(text)


def warn(text: str, *, key: str | None = None) -> None:
    """Say something that probably is a mistake. What `note_once` would say under the same `key` is said with it."""
    if key is not None:
        _said.add(key)
    logger.warning(text)
    _tell("warning", text)


def _tell(kind: str, text: str) -> None:
    if not _silent:
        for listener in tuple(_listeners):
            listener(kind, text)


@contextmanager
def heard_by(listener: Callable[[str, str], None]) -> Iterator[None]:
    """Inside, `listener("notice" or "warning", text)` hears what is said, whatever the verbosity is.

    >>> heard = []
    >>> with heard_by(lambda kind, text: heard.append(kind)):
    ...     note("a column was dropped")
    >>> heard
    ['notice']
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def unheard() -> Iterator[None]:
    """Inside, those that `heard_by` has let in hear nothing."""
    global _silent
    _silent += 1
    try:
        yield
    finally:
        _silent -= 1


@contextmanager
def silenced() -> Iterator[None]:
    """Inside nothing is said but errors; what was not said then is said when it comes up again."""
    level, said = logger.level, set(_said)
    logger.setLevel(logging.ERROR)
    try:
        with unheard():
            yield
    finally:
        logger.setLevel(level)
        _said.clear()
        _said.update(said)


def forget_notices() -> None:
    """Let every `note_once` speak again (a new run, a test)."""
    _said.clear()
