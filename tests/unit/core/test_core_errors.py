"""Every error says what, why and what to do, and is the built-in type that it replaces."""

from __future__ import annotations

import pickle

import pytest

from ostinato.arguments.validate_trainer import NoModelError
from ostinato.callbacks.early_stopping import EarlyStoppingError
from ostinato.core import errors

BUILT_IN = {
    errors.ConfigError: (ValueError,),
    errors.NotSupportedError: (ValueError, NotImplementedError, errors.ConfigError),
    errors.DataError: (ValueError,),
    errors.ModelOutputError: (ValueError,),
    errors.MetricError: (ValueError,),
    errors.NonFiniteError: (ArithmeticError,),
    errors.CheckpointError: (ValueError, OSError),
    EarlyStoppingError: (ValueError, AssertionError),
    NoModelError: (ValueError, RuntimeError),
}
EVERY_ERROR = pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)


@EVERY_ERROR
def test_is_the_built_in_type_too(kind: type[errors.OstinatoError]) -> None:
    assert issubclass(kind, errors.OstinatoError)
    for built_in in BUILT_IN[kind]:
        with pytest.raises(built_in):
            raise kind(what="w", why="y", fix="f")


@EVERY_ERROR
def test_message_has_three_parts(kind: type[errors.OstinatoError]) -> None:
    error = kind(what="it broke", why="because", fix="do that")
    assert str(error) == "it broke\n  why: because\n  fix: do that"
    assert (error.what, error.why, error.fix) == ("it broke", "because", "do that")
    assert str(kind("it broke")) == "it broke"


@EVERY_ERROR
def test_survives_pickling(kind: type[errors.OstinatoError]) -> None:
    """Workers hand their errors to the main process this way."""
    error = kind(what="it broke", why="because", fix="do that")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.fix == "do that"


def test_not_caught_as_something_else() -> None:
    assert not issubclass(errors.NonFiniteError, ValueError)
    assert not issubclass(errors.ConfigError, RuntimeError)
