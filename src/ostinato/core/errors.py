"""The error tree. Every error says what happened, why, and what to do.

    OstinatoError
    ├── ConfigError(ValueError)            arguments that contradict one another or cannot be honoured
    │   └── NotSupportedError(NotImplementedError)   asked for something Ostinato does not do
    ├── DataError(ValueError)              a data set or batch the model cannot be fed with
    ├── ModelOutputError(ValueError)       a model that returns no loss, or one of the wrong shape
    ├── MetricError(ValueError)            a metric that is missing, misspelt or not a dict
    ├── NonFiniteError(ArithmeticError)    NaN or infinity for more steps than the patience allows
    └── CheckpointError(ValueError, OSError)     a checkpoint that is missing, broken or of another model

Each is also the built-in type that transformers raises in its place, so `except ValueError` keeps working.
"""

from __future__ import annotations


class OstinatoError(Exception):
    """What happened; why; what to do.

    >>> raise ConfigError(what="save_steps=0 never saves", why="steps are counted from 1", fix="set save_steps=500")
    Traceback (most recent call last):
    ...
    ostinato.core.errors.ConfigError: save_steps=0 never saves
      why: steps are counted from 1
      fix: set save_steps=500
    """

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what, self.why, self.fix = what, why, fix
        lines = [what]
        if why:
            lines.append(f"  why: {why}")
        if fix:
            lines.append(f"  fix: {fix}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[OstinatoError], tuple[str, str, str]]:
        return type(self), (self.what, self.why, self.fix)


class ConfigError(OstinatoError, ValueError):
    """Arguments that contradict one another or cannot be honoured."""


class NotSupportedError(ConfigError, NotImplementedError):
    """Something that Ostinato does not do (yet); the fix names what to use instead."""


class DataError(OstinatoError, ValueError):
    """A data set, row or batch that the model cannot be fed with."""


class ModelOutputError(OstinatoError, ValueError):
    """A model whose output holds no usable loss."""


class MetricError(OstinatoError, ValueError):
    """A metric that is missing, misspelt or of the wrong type."""


class NonFiniteError(OstinatoError, ArithmeticError):
    """The loss or the gradient was not a finite number for too many steps in a row."""


class CheckpointError(OstinatoError, ValueError, OSError):
    """A checkpoint that is missing, damaged or of another model."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


def add_note(error: BaseException, text: str) -> None:
    """Add a line to what Python prints below an exception that is not ours; said once, however often it is added.

    >>> error = KeyError("text")
    >>> add_note(error, "ostinato: while row 7 of the training set was read")
    >>> error.__notes__
    ['ostinato: while row 7 of the training set was read']
    """
    notes = error.__dict__.setdefault("__notes__", [])  # what BaseException.add_note does, which Python 3.10 lacks
    if text not in notes:
        notes.append(text)
