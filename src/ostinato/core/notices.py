"""Notices: one plain line, once, at default verbosity, for everything outside of progress and logs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("ostinato")

_shown_keys: set[str] = set()
_listeners: list[Callable[[str, str], None]] = []
_suspended = 0  # number of active `suspend_listeners` blocks


class _StandardErrorHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Write to the present `sys.stderr`, so that redirection and capturing work."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):  # type: ignore[override]
        return sys.stderr


def _is_shown_here(record: logging.LogRecord) -> bool:
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
VERBOSITY_VARIABLES = ("OSTINATO_VERBOSITY", "TRANSFORMERS_VERBOSITY")  # the first that is set counts


def _read_verbosity() -> int:
    """Return the level at which messages start to be shown."""
    for name in VERBOSITY_VARIABLES:
        if word := os.environ.get(name):
            if word.lower() in LEVELS:
                return LEVELS[word.lower()]
            logger.warning(f"{name}={word!r} has no effect: the words are {', '.join(LEVELS)}")
    return logging.INFO


handler = _StandardErrorHandler()
handler.setFormatter(logging.Formatter("ostinato: %(message)s"))
handler.addFilter(_is_shown_here)
if not logger.handlers:
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(_read_verbosity())


def show_notices_of_all_processes() -> None:
    """Show messages from every process; by default, only the first shows those below the level of an error."""
    handler.removeFilter(_is_shown_here)


def note(text: str) -> None:
    """Report something that the user should know: what is dropped, renamed, guessed, skipped or rescaled."""
    logger.info(text)
    _notify_listeners("notice", text)


def note_once(text: str, *, key: str | None = None) -> None:
    """Report something the first time only. `key` groups different wordings of one message."""
    if (key or text) not in _shown_keys:
        _shown_keys.add(key or text)
        note(text)


def warn(text: str, *, key: str | None = None) -> None:
    """Report a probable mistake. A later `note_once` under the same `key` is then not shown."""
    if key is not None:
        _shown_keys.add(key)
    logger.warning(text)
    _notify_listeners("warning", text)


def _notify_listeners(kind: str, text: str) -> None:
    if not _suspended:
        for listener in tuple(_listeners):
            listener(kind, text)


@contextmanager
def listen_to_notices(listener: Callable[[str, str], None]) -> Iterator[None]:
    """Call `listener("notice" or "warning", text)` for every message inside the block, at any verbosity.

    >>> heard = []
    >>> with listen_to_notices(lambda kind, text: heard.append(kind)):
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
def suspend_listeners() -> Iterator[None]:
    """Send nothing to the listeners of `listen_to_notices`, inside the block."""
    global _suspended
    _suspended += 1
    try:
        yield
    finally:
        _suspended -= 1


@contextmanager
def silence_notices() -> Iterator[None]:
    """Show nothing but errors, inside the block; a suppressed message is shown when it comes up again."""
    level, shown = logger.level, set(_shown_keys)
    logger.setLevel(logging.ERROR)
    try:
        with suspend_listeners():
            yield
    finally:
        logger.setLevel(level)
        _shown_keys.clear()
        _shown_keys.update(shown)


def forget_notices() -> None:
    """Allow every `note_once` to be shown again (a new run, a test)."""
    _shown_keys.clear()
