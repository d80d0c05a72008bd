"""Notices: one plain line, once, at default verbosity, for everything outside of progress and logs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("ostinato")

_said: set[str] = set()
_listeners: list[Callable[[str, str], None]] = []
_silent = 0  # number of active `unheard` blocks


class _StandardError(logging.StreamHandler):  # type: ignore[type-arg]
    """Write to the present `sys.stderr`, so that redirection and capturing work."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[override]
        return sys.stderr


def _on_main_process(record: logging.LogRecord) -> bool:
    # Read when a record is handled: a launcher may set RANK after the import.
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
    """Show messages below the level of an error from every process, not only from the first."""
    handler.removeFilter(_on_main_process)


def note(text: str) -> None:
    """Report something that the user should know: what is dropped, renamed, guessed, skipped or rescaled."""
    logger.info(text)
    _tell("notice", text)


def note_once(text: str, *, key: str | None = None) -> None:
    """Report it the first time only. `key` groups different wordings of one message."""
    if (key or text) not in _said:
        _said.add(key or text)
        note(text)


def warn(text: str, *, key: str | None = None) -> None:
    """Report a probable mistake. A later `note_once` under the same `key` is then not shown."""
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
    """Call `listener("notice" or "warning", text)` for every message inside the block, at any verbosity.

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
    """Send nothing to the listeners of `heard_by`, inside the block."""
    global _silent
    _silent += 1
    try:
        yield
    finally:
        _silent -= 1


@contextmanager
def silenced() -> Iterator[None]:
    """Show nothing but errors, inside the block; a suppressed message is shown when it comes up again."""
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
    """Allow every `note_once` to be shown again (a new run, a test)."""
    _said.clear()
