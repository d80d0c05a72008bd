"""Import hook that puts Ostinato's names into transformers' modules, on import or at once if already imported.

The modules of transformers' trainer are not loaded for Ostinato's names: a placeholder module is put in their place
and resolves these names. For any other name it runs the module's own code, and then puts Ostinato's names back. So all
code sees one `Trainer` and one `TrainingArguments`, and so do the functions of these modules that stay transformers'
own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ..core.notices import note_once
from .name_map import GONE, MODULES, PACKAGE, VALUES, ours

_lock = threading.RLock()


def replacement(module: str, name: str) -> Any:
    """Return Ostinato's object for a name of a transformers module; KeyError if it stays transformers' own."""
    if name in MODULES[module]:
        return ours(name)
    return VALUES.get(module, {})[name]


def _replaced(module: str) -> list[str]:
    return [*MODULES[module], *VALUES.get(module, {})]


def say_if_gone(module: str, name: str) -> None:
    """Note that a name was removed: `from … import NAME` swallows the text of an AttributeError."""
    instead = GONE.get(module, {}).get(name)
    if instead is not None:
        note_once(f"{module}.{name} does not exist any more: {instead}")


class StandIn(ModuleType):
    """A module of transformers that has Ostinato's names, and runs its own code only for other names."""

    _their_spec: ModuleSpec | None = None
    _their_names: dict[str, Any] | None = None  # the original values, once the module's own code has run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            value = replacement(self.__name__, name)
        except KeyError:
            pass
        else:
            vars(self)[name] = value
            return value
        if self._their_names is None and self._their_spec is not None:
            self._run_their_code()
            if name in vars(self):
                return vars(self)[name]
        say_if_gone(self.__name__, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *_replaced(self.__name__)})

    def _run_their_code(self) -> None:
        with _lock:
            if self._their_names is not None:  # another thread has run the code, or this one is running it
                return
            assert self._their_spec is not None and self._their_spec.loader is not None
            vars(self)["_their_names"] = {}
            try:
                self._their_spec.loader.exec_module(self)
            except BaseException:
                vars(self)["_their_names"] = None  # the next access raises the same error
                raise
            put_ours(self)


def put_ours(module: ModuleType) -> None:
    """Replace names in a module whose own code has run, and keep the original values."""
    space = vars(module)
    names = [name for name in _replaced(module.__name__) if name in space]
    before = {name: space[name] for name in names}
    space.update({name: replacement(module.__name__, name) for name in names})
    space["_their_names"] = before


class _StandInLoader(Loader):
    """A loader that makes a placeholder module and runs no code."""

    def __init__(self, theirs: ModuleSpec) -> None:
        self.theirs = theirs

    def create_module(self, spec: ModuleSpec) -> StandIn:
        module = StandIn(spec.name)
        vars(module)["_their_spec"] = self.theirs
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _PackageLoader(Loader):
    """A loader that loads the package itself as usual, and makes it find Ostinato's names first."""

    def __init__(self, theirs: ModuleSpec) -> None:
        self.theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self.theirs.loader is not None
        return self.theirs.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self.theirs.loader is not None
        self.theirs.loader.exec_module(module)
        look_here_first(sys.modules.get(module.__name__, module))  # a lazy package replaces its own module object


def look_here_first(package: ModuleType) -> None:
    """Make the package find Ostinato's names before its own, which it looks up on access.

    Its type is changed, not the package: transformers makes a second object of itself while models are imported.
    """
    kind: Any = type(package)
    if kind is ModuleType or "_looked_before" in vars(kind):
        return  # a package without lazy lookup takes the names from its modules
    look = kind.__getattr__

    def look_for_ours(self: ModuleType, name: str) -> Any:
        if self.__name__ != PACKAGE:
            return look(self, name)
        if name in MODULES[PACKAGE]:
            value = ours(name)
            setattr(self, name, value)
            return value
        say_if_gone(PACKAGE, name)
        return look(self, name)

    kind._looked_before, kind.__getattr__ = look, look_for_ours


def look_as_before(package: ModuleType) -> None:
    """Undo `look_here_first`."""
    kind: Any = type(package)
    if "_looked_before" in vars(kind):
        kind.__getattr__ = kind._looked_before
        del kind._looked_before


class Finder(MetaPathFinder):
    """A finder that finds the modules of the table before all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        theirs = PathFinder.find_spec(fullname, path)
        if theirs is None or theirs.loader is None:
            return None  # another version, without this module
        loader = _PackageLoader(theirs) if fullname == PACKAGE else _StandInLoader(theirs)
        spec = ModuleSpec(fullname, loader, origin=theirs.origin)
        spec.submodule_search_locations = theirs.submodule_search_locations
        spec.has_location = theirs.has_location
        return spec
