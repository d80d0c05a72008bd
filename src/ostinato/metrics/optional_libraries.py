"""Libraries that a metric can use and nobody has to have."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..core.errors import MetricError


def optional(module: str, *, needed_by: str, fix: str) -> Any:
    """The module, or an error that says what needs it.

    >>> optional("not_there", needed_by="an example", fix="pip install not_there")
    Traceback (most recent call last):
    ...
    ostinato.core.errors.MetricError: an example needs not_there
      why: it is not installed
      fix: pip install not_there
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MetricError(f"{needed_by} needs {package}", "it is not installed", fix) from error
