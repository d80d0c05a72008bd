"""What functions accept: overrides of users may have the parameters that a method had in an older version."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def takes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Return whether a function can be called with these arguments; it is not called.

    >>> takes(lambda rows: None, [1, 2]), takes(lambda: None, [1, 2])
    (True, False)
    """
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # some functions of C have no signature
        return True
    return True


def fit_arguments(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """Return the arguments, without the last one if a function does not take it.

    >>> fit_arguments(lambda model, inputs: None, "model", "inputs", 8)
    ('model', 'inputs')
    """
    return args if takes(function, *args) else args[:-1]
