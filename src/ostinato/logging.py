"""How much Ostinato says: the names of `transformers.utils.logging`, for the logger `ostinato`.

    import ostinato

    ostinato.logging.set_verbosity_error()

All messages except progress and logs go through this one logger: notices (what was dropped, renamed, guessed, skipped
or rescaled) have the level INFO, which is the default, and likely mistakes have WARNING. The environment variable
`OSTINATO_VERBOSITY` (debug, info, warning, error, critical) sets the initial level, or else `TRANSFORMERS_VERBOSITY`.
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
    """Return the logger with this name.

    Args:
        name: The name; without one, the library's own logger.

    Returns:
        A logger of the standard library.

    >>> get_logger().name
    'ostinato'
    """
    return _logging.getLogger(name or "ostinato")


def get_verbosity() -> int:
    """Return the level below which no message is printed.

    >>> get_verbosity() == INFO
    True
    """
    return logger.getEffectiveLevel()


def set_verbosity(verbosity: int) -> None:
    """Print no message below a level.

    Args:
        verbosity: The level, such as `ostinato.logging.WARNING`.

    >>> set_verbosity(WARNING)
    >>> set_verbosity(INFO)
    """
    logger.setLevel(verbosity)


def set_verbosity_debug() -> None:
    """Print every message.

    >>> set_verbosity_debug()
    >>> set_verbosity_info()
    """
    set_verbosity(DEBUG)


def set_verbosity_info() -> None:
    """Print notices, warnings and errors: the default.

    >>> set_verbosity_info()
    """
    set_verbosity(INFO)


def set_verbosity_warning() -> None:
    """Print warnings (likely mistakes) and errors, but no notices.

    >>> set_verbosity_warning()
    >>> set_verbosity_info()
    """
    set_verbosity(WARNING)


def set_verbosity_error() -> None:
    """Print errors only.

    >>> set_verbosity_error()
    >>> set_verbosity_info()
    """
    set_verbosity(ERROR)


def get_log_levels_dict() -> dict[str, int]:
    """Return the values that `log_level` accepts, with their levels.

    >>> get_log_levels_dict()["warning"] == WARNING
    True
    """
    return dict(LEVELS)


def disable_default_handler() -> None:
    """Do not write messages to standard error. Handlers that were added still receive them.

    >>> disable_default_handler()
    >>> enable_default_handler()
    """
    logger.removeHandler(handler)


def enable_default_handler() -> None:
    """Write messages to standard error: the default.

    >>> enable_default_handler()
    """
    if handler not in logger.handlers:
        logger.addHandler(handler)


def add_handler(handler: _logging.Handler) -> None:
    """Pass all messages to another handler too.

    Args:
        handler: A handler of the standard library, such as a `FileHandler`.

    >>> nowhere = _logging.NullHandler()
    >>> add_handler(nowhere)
    >>> remove_handler(nowhere)
    """
    logger.addHandler(handler)


def remove_handler(handler: _logging.Handler) -> None:
    """Remove a handler that was added.

    Args:
        handler: The handler that was passed to `add_handler`, whose example shows both.

    >>> remove_handler(_logging.NullHandler())
    """
    logger.removeHandler(handler)


def enable_propagation() -> None:
    """Pass all messages to the root logger too.

    If the root logger writes to standard error, disable the default handler: otherwise messages are written twice.

    >>> enable_propagation()
    >>> disable_propagation()
    """
    logger.propagate = True


def disable_propagation() -> None:
    """Pass no message to the root logger: the default.

    >>> disable_propagation()
    """
    logger.propagate = False


def enable_explicit_format() -> None:
    """Write `[WARNING|notices.py:52] 2026-01-31 12:00:00,000 >> text` instead of `ostinato: text`.

    >>> enable_explicit_format()
    >>> reset_format()
    """
    handler.setFormatter(_logging.Formatter("[%(levelname)s|%(filename)s:%(lineno)s] %(asctime)s >> %(message)s"))


def reset_format() -> None:
    """Write `ostinato: text`: the default.

    >>> reset_format()
    """
    handler.setFormatter(_logging.Formatter("ostinato: %(message)s"))
