"""Our names in transformers' modules: put there when a module is imported, or at once if it was before.

The modules of its trainer are not loaded for our names: an empty module stands in, which finds ours when asked. Asked
for anything else it runs the module's own code, and then puts ours back in place. So code from anywhere sees one
`Trainer` and one `TrainingArguments`, and the functions of these modules that stay transformers' own see ours as well.
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
    """Our object for a name of one of transformers' modules; KeyError if it stays their own."""
    if name in MODULES[module]:
        return ours(name)
    return VALUES.get(module, {})[name]


def _replaced(module: str) -> list[str]:
    return [*MODULES[module], *VALUES.get(module, {})]


def say_if_gone(module: str, name: str) -> None:
    """`from … import NAME` swallows the text of an AttributeError, so it is said before."""
    instead = GONE.get(module, {}).get(name)
    if instead is not None:
        note_once(f"{module}.{name} does not exist any more: {instead}")


class StandIn(ModuleType):
    """A module of transformers that has our names, and runs its own code only for the others."""

    _their_spec: ModuleSpec | None = None
    _their_names: dict[str, Any] | None = None  # what our names meant, once their code has run

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
            if self._their_names is not None:  # another thread did, or this very one is at it
                return
            assert self._their_spec is not None and self._their_spec.loader is not None
            vars(self)["_their_names"] = {}
            try:
                self._their_spec.loader.exec_module(self)
            except BaseException:
                vars(self)["_their_names"] = None  # the next who asks hears the reason too
                raise
            put_ours(self)


def put_ours(module: ModuleType) -> None:
    """Our names over theirs in a module whose own code has run; theirs are remembered."""
    space = vars(module)
    names = [name for name in _replaced(module.__name__) if name in space]
    before = {name: space[name] for name in names}
    space.update({name: replacement(module.__name__, name) for name in names})
    space["_their_names"] = before


class _StandInLoader(Loader):
    """Makes a stand-in and runs nothing."""

    def __init__(self, theirs: ModuleSpec) -> None:
        self.theirs = theirs

    def create_module(self, spec: ModuleSpec) -> StandIn:
        module = StandIn(spec.name)
        vars(module)["_their_spec"] = self.theirs
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _PackageLoader(Loader):
    """Loads the package itself as ever, and lets it find our names first."""

    def __init__(self, theirs: ModuleSpec) -> None:
        self.theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self.theirs.loader is not None
        return self.theirs.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self.theirs.loader is not None
        self.theirs.loader.exec_module(module)
        look_here_first(sys.modules.get(module.__name__, module))  # a lazy package puts another object in its place


def look_here_first(package: ModuleType) -> None:
    """Let the package find our names before its own, which it looks up when they are asked for.

    Its type is changed, not the package: transformers makes a second object of itself while models are imported.
    """
    kind: Any = type(package)
    if kind is ModuleType or "_looked_before" in vars(kind):
        return  # a package that looks nothing up takes our names from its modules
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
    """Finds the modules of the table before anyone else does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        theirs = PathFinder.find_spec(fullname, path)
        if theirs is None or theirs.loader is None:
            return None  # another version: nothing to stand in for
        loader = _PackageLoader(theirs) if fullname == PACKAGE else _StandInLoader(theirs)
        spec = ModuleSpec(fullname, loader, origin=theirs.origin)
        spec.submodule_search_locations = theirs.submodule_search_locations
        spec.has_location = theirs.has_location
        return spec
