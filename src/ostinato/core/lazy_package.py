"""Packages whose modules load when they are first used.

A run that succeeds needs no diagnosis, and most runs have nothing to do with the hub, so their modules should not be
loaded with the trainer. Such a package is imported at the top of a file like any other, and its modules are used as
attributes of it:

    from . import diagnostics

    diagnostics.plan_builder.build_run_plan(trainer)

Its `__init__` imports its modules for type checkers alone, and has this `__getattr__` otherwise:

    if TYPE_CHECKING:
        from . import plan_builder as plan_builder
    else:
        __getattr__ = load_on_use(__name__)

Python asks it once for each module: the import system then keeps the module as an attribute of its package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def load_on_use(package: str, names: Mapping[str, Iterable[str]] | None = None) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that imports its modules when they are first used.

    Args:
        package: The `__name__` of the package.
        names: Names of its modules that the package has too, by module.

    >>> load = load_on_use("json", {"decoder": ["JSONDecodeError"]})
    >>> load("scanner").__name__, load("JSONDecodeError").__name__
    ('json.scanner', 'JSONDecodeError')
    >>> load("scaner")
    Traceback (most recent call last):
    ...
    AttributeError: module 'json' has no attribute 'scaner'
    """
    module_of = {name: module for module, members in (names or {}).items() for name in members}

    def load(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise  # the module exists, and imports one that does not
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None

    return load
