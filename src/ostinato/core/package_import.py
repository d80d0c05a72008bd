"""Import packages that only some runs need."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .errors import MissingPackageError


@dataclass(frozen=True)
class Package:
    """An optional package."""

    name: str
    how: str  # to install it


def import_from(path: str, package: Package | None, *, needed_by: str) -> Any:
    """Return a class or function of an optional package.

    Args:
        path: its module and name.
        package: where it comes from; None if it is always there.
        needed_by: what was requested.

    Raises:
        MissingPackageError: the package is not installed, or cannot be imported.

    >>> import_from("math.sqrt", None, needed_by="an example")(4)
    2.0
    >>> import_from("not_there.Adam", Package("not_there", "pip install not-there"), needed_by="optim='adam'")
    Traceback (most recent call last):
    ...
    ostinato.core.errors.MissingPackageError: optim='adam' needs the package not_there
      why: No module named 'not_there'
      fix: pip install not-there
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        if package is None:
            raise
        raise MissingPackageError(
            what=f"{needed_by} needs the package {package.name}", why=str(error), fix=package.how
        ) from error
