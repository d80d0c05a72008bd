"""How much Ostinato says: the names of `transformers.utils.logging`, for the logger `ostinato`.

    import ostinato

    ostinato.logging.set_verbosity_error()

Everything the library says outside of progress and logs goes through this one logger: notes (what was dropped,
renamed, guessed, skipped or rescaled) at level INFO, which is the default, and likely mistakes at WARNING. The
environment variable `OSTINATO_VERBOSITY` (debug, info, warning, error, critical) sets where it starts, or else
`TRANSFORMERS_VERBOSITY`.
"""

from __future__ import annotations

import logging as _logging
from logging import CRITICAL, DEBUG, ERROR, FATAL, INFO, NOTSET, WARN, WARNING

from .core.notices import LEVELS, handler, logger

__all__ = [
    "CRITICAL",
    "DEBUG",
    "ERROR",
    "FATAL",
    "INFO",
    "NOTSET",
    "WARN",
    "WARNING",
    "add_handler",
    "disable_default_handler",
    "disable_propagation",
    "enable_default_handler",
    "enable_explicit_format",
    "enable_propagation",
    "get_log_levels_dict",
    "get_logger",
    "get_verbosity",
    "remove_handler",
    "reset_format",
    "set_verbosity",
    "set_verbosity_debug",
    "set_verbosity_error",
    "set_verbosity_info",
    "set_verbosity_warning",
]


def get_logger(name: str | None = None) -> _logging.Logger:
    """The logger of this name; without one, the library's own.

    >>> get_logger().name
    'ostinato'
    """
    return _logging.getLogger(name or "ostinato")


def get_verbosity() -> int:
    """The level below which no notice is printed.

    >>> get_verbosity() == INFO
    True
    """
    return logger.getEffectiveLevel()


def set_verbosity(verbosity: int) -> None:
    """Say nothing below this level.

    >>> set_verbosity(WARNING)
    >>> set_verbosity(INFO)
    """
    logger.setLevel(verbosity)


def set_verbosity_debug() -> None:
    """Say everything."""
    set_verbosity(DEBUG)


def set_verbosity_info() -> None:
    """Say what was dropped, renamed, guessed, skipped or rescaled, and likely mistakes: the default."""
    set_verbosity(INFO)


def set_verbosity_warning() -> None:
    """Say likely mistakes only."""
    set_verbosity(WARNING)


def set_verbosity_error() -> None:
    """Say errors only."""
    set_verbosity(ERROR)


def get_log_levels_dict() -> dict[str, int]:
    """The words that `log_level` takes, and the levels they stand for."""
    return dict(LEVELS)


def disable_default_handler() -> None:
    """Do not write to standard error; handlers of yours still hear everything."""
    logger.removeHandler(handler)


def enable_default_handler() -> None:
    """Write to standard error again."""
    if handler not in logger.handlers:
        logger.addHandler(handler)


def add_handler(handler: _logging.Handler) -> None:
    """Pass notices to a handler of yours."""
    logger.addHandler(handler)


def remove_handler(handler: _logging.Handler) -> None:
    """Take it out again."""
    logger.removeHandler(handler)


def enable_propagation() -> None:
    """Pass everything on to the root logger; disable the default handler as well, or it is written twice."""
    logger.propagate = True


def disable_propagation() -> None:
    """Keep it to this logger's handlers: the default."""
    logger.propagate = False


def enable_explicit_format() -> None:
    """`[WARNING|notices.py:52] 2026-01-31 12:00:00,000 >> text` in place of `ostinato: text`."""
    handler.setFormatter(_logging.Formatter("[%(levelname)s|%(filename)s:%(lineno)s] %(asctime)s >> %(message)s"))


def reset_format() -> None:
    """`ostinato: text` again."""
    handler.setFormatter(_logging.Formatter("ostinato: %(message)s"))
