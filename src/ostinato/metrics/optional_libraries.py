"""Import the libraries that only some metrics need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..core.errors import MetricError


def import_library(module: str, *, needed_by: str, alternative: str = "") -> Any:
    """Import an optional module.

    Args:
        module: its full name.
        needed_by: what cannot be computed without it.
        alternative: what to do instead of installing it.

    Raises:
        MetricError: it is not installed.

    >>> import_library("not_there.at_all", needed_by="an example")
    Traceback (most recent call last):
    ...
    ostinato.core.errors.MetricError: an example needs not_there
      why: it is not installed
      fix: pip install not_there, or pip install 'ostinato[metrics]' for all metrics
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        fix = f"pip install {package}, or pip install 'ostinato[metrics]' for all metrics"
        raise MetricError(
            what=f"{needed_by} needs {package}",
            why="it is not installed",
            fix=f"{fix}; {alternative}" if alternative else fix,
        ) from error
